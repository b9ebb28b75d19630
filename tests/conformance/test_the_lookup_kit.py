"""Each check of the look-ups' kit catches a provider that is broken on purpose; the look-up of files passes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
import trio
from broken_plugins import Config, KitContract, forgetting_a_socket, leaving_its_socket, one_at_a_time, opening

from flowjoin._plugins.file_lookup import flowjoin_lookup_types
from flowjoin._plugins.file_tables import FileLookupConfig
from flowjoin.api import Egress, LookupType, Node, PluginContext, Pod, PodLookup, PolicyRule, Service, ServicePort
from flowjoin.testing import LookupConformance, LookupExample, lookup_checks
from flowjoin.testing.lookup_checks import LookupSubject
from flowjoin.testing.subject import CheckSkipped

ADDRESS = "10.0.0.1"
WEB = Pod(namespace="shop", name="web-1")


class Colours(Protocol):
    """A protocol of the plugin's own, with an async method."""

    async def colour(self, name: str) -> str: ...


class Sound:
    """Keeps the contract; each broken one changes one thing of it."""

    def __init__(self, config: Config, context: PluginContext) -> None:
        self.config = config
        self.context = context

    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return WEB if address == ADDRESS else None

    async def colour(self, name: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"{name} is blue"


class AsyncPods(Sound):
    async def pod(self, address: str, at: float | None = None) -> Pod | None:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        return super().pod(address, at)


class SyncColours(Sound):
    def colour(self, name: str) -> str:  # type: ignore[override]
        return f"{name} is blue"


class NoColours(Sound):
    colour = None  # type: ignore[assignment]


class KnowsNobody(Sound):
    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return None


class KnowsEverybody(Sound):
    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return WEB


class AsksWhileItWorks(Sound):
    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return None if self.config.is_down[0] else super().pod(address, at)


class Computes(Sound):
    def pod(self, address: str, at: float | None = None) -> Pod | None:
        time.sleep(0.0002)
        return super().pod(address, at)


class TellsItsSecret(Sound):
    def pod(self, address: str, at: float | None = None) -> Pod | None:
        self.context.log.info("asked", how=self.config.secret.reveal())
        return super().pod(address, at)


class Alone(Sound):
    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return None if len(self.config.kept) > 1 else super().pod(address, at)


def opened_with(open_lookup: Any, *, provides: tuple[type[Any], ...] = (PodLookup, Colours)) -> LookupType:
    return LookupType("broken", Config, provides, open_lookup, api_version=1)


def of(
    provider: Callable[[Config, PluginContext], Any], *, provides: tuple[type[Any], ...] = (PodLookup, Colours)
) -> LookupType:
    return opened_with(opening(provider), provides=provides)


checks = lookup_checks
BROKEN = [
    (checks.check_entry_point, of(Sound), "no installed distribution"),
    (checks.check_opens_and_closes, opened_with(forgetting_a_socket(Sound)), "sockets or files are open"),
    (checks.check_each_protocol_is_provided, of(Sound, provides=()), "provides no protocol"),
    (checks.check_each_protocol_is_provided, of(NoColours), "it lacks Colours.colour"),
    (checks.check_each_protocol_is_provided, of(AsyncPods), "PodLookup.pod must not be async"),
    (checks.check_each_protocol_is_provided, of(SyncColours), "Colours.colour must be async"),
    (checks.check_the_examples_are_answered, of(KnowsNobody), "is None, not Pod("),
    (checks.check_what_nobody_has_is_none, of(KnowsEverybody), "not None"),
    (checks.check_without_its_source_it_goes_on, of(AsksWhileItWorks), "is None, not Pod("),
    (
        checks.check_cancellation_leaves_nothing_behind,
        opened_with(leaving_its_socket(Sound)),
        "sockets or files are open",
    ),
    (checks.check_two_instances_do_not_meet, opened_with(one_at_a_time(Alone)), "is None, not Pod("),
    (checks.check_no_task_step_is_long, of(Computes), "held trio's thread for"),
    (checks.check_secrets_are_not_shown, of(TellsItsSecret), "a secret is shown"),
]

EXAMPLES = (
    LookupExample(method="pod", arguments=(ADDRESS, 5.0), answer=WEB),
    LookupExample(method="colour", arguments=("sky",), answer="sky is blue"),
)


def subject_of(lookup_type: LookupType) -> LookupSubject:
    config = Config()
    return LookupSubject(lookup_type=lookup_type, config=config, examples=EXAMPLES, source_down=config.down)


class TestTheKit(KitContract):
    checks = lookup_checks
    kit = LookupConformance
    broken = BROKEN
    sound = of(Sound)

    def subject_of(self, plugin_type: LookupType) -> LookupSubject:
        return subject_of(plugin_type)


async def test_a_protocol_without_an_example_is_caught() -> None:
    whole = subject_of(of(Sound))
    subject = LookupSubject(lookup_type=whole.lookup_type, config=whole.config, examples=EXAMPLES[1:])
    with pytest.raises(AssertionError, match="no example asks PodLookup"):
        await checks.check_the_examples_are_answered(subject)


async def test_without_a_way_to_take_the_source_away_that_check_is_skipped() -> None:
    whole = subject_of(of(Sound))
    subject = LookupSubject(lookup_type=whole.lookup_type, config=whole.config, examples=EXAMPLES)
    with pytest.raises(CheckSkipped, match="supply source_down"):
        await checks.check_without_its_source_it_goes_on(subject)


class TestFileLookup(LookupConformance):
    """The core's own."""

    @pytest.fixture
    def lookup_type(self) -> LookupType:
        return flowjoin_lookup_types()[0]

    @pytest.fixture
    def config(self, tmp_path: Path) -> FileLookupConfig:
        path = tmp_path / "cluster.yaml"
        path.write_text(
            "pods: [{namespace: shop, name: web-1, addresses: [10.0.0.1]}]\n"
            "nodes: [{name: node-1, addresses: [192.0.2.1]}]\n"
            "services: [{namespace: shop, name: web, clusterAddresses: [10.96.0.9], ports: [{port: 80}]}]\n"
            "policies: [{rule: 7, policyName: allow-web}]\n"
            "egresses: [{name: out, namespaces: [shop]}]\n"
        )
        return FileLookupConfig(path=path)

    @pytest.fixture
    def examples(self) -> Sequence[LookupExample]:
        port = ServicePort(port=80, protocol_identifier=6)
        web = Service(namespace="shop", name="web", cluster_addresses=("10.96.0.9",), ports=(port,))
        answers: list[tuple[str, tuple[Any, ...], object]] = [
            ("pod", ("10.0.0.1",), Pod(namespace="shop", name="web-1", addresses=("10.0.0.1",))),
            ("node_by_name", ("node-1", 5.0), Node(name="node-1", addresses=("192.0.2.1",))),
            ("service_by_address", ("10.96.0.9", 80, 6), (web, port)),
            ("rule", (7,), PolicyRule(policy_name="allow-web", policy_type=1)),
            ("egress", (Pod(namespace="shop", name="web-1"),), Egress(name="out")),
        ]
        return [LookupExample(method=method, arguments=asked, answer=answer) for method, asked, answer in answers]
