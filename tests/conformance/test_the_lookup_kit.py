"""Each check of the look-ups' kit catches a provider that is broken on purpose; the look-up of files passes them."""

from __future__ import annotations

import inspect
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
import trio

from flowjoin._plugins.file_lookup import FileLookupConfig, flowjoin_lookup_types
from flowjoin.api import LookupType, Node, PluginContext, Pod, PodLookup, PolicyRule, Secret, Service, ServicePort
from flowjoin.testing import LookupConformance, LookupExample
from flowjoin.testing import lookup_checks as checks
from flowjoin.testing.lookup_checks import LookupSubject
from flowjoin.testing.subject import CheckSkipped

Check = Callable[[LookupSubject], Awaitable[None]]

ADDRESS = "10.0.0.1"
WEB = Pod(namespace="shop", name="web-1")


class Colours(Protocol):
    """A protocol of the plugin's own, with an async method."""

    async def colour(self, name: str) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    is_down: list[bool] = field(default_factory=lambda: [False])
    kept: list[object] = field(default_factory=list)
    secret: Secret = field(default_factory=lambda: Secret("env", "FLOWJOIN_TEST_SECRET"))

    @contextmanager
    def down(self) -> Iterator[None]:
        self.is_down[0] = True
        yield
        self.is_down[0] = False


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


def of(
    provider: Callable[[Config, PluginContext], Any], *, provides: tuple[type[Any], ...] = (PodLookup, Colours)
) -> LookupType:
    @asynccontextmanager
    async def open_lookup(config: Config, context: PluginContext) -> AsyncIterator[object]:
        await trio.lowlevel.checkpoint()
        yield provider(config, context)
        await trio.lowlevel.checkpoint()

    return LookupType("broken", Config, provides, open_lookup, api_version=1)


@asynccontextmanager
async def _forgets_a_socket(config: Config, context: PluginContext) -> AsyncIterator[object]:
    config.kept.append(socket.socket())
    yield Sound(config, context)


@asynccontextmanager
async def _leaves_its_socket(config: Config, context: PluginContext) -> AsyncIterator[object]:
    connection = socket.socket()
    config.kept.append(connection)
    await trio.lowlevel.checkpoint()
    yield Sound(config, context)
    connection.close()


@asynccontextmanager
async def _one_at_a_time(config: Config, context: PluginContext) -> AsyncIterator[object]:
    config.kept.append(None)

    class First(Sound):
        def pod(self, address: str, at: float | None = None) -> Pod | None:
            return None if len(config.kept) > 1 else super().pod(address, at)

    yield First(config, context)
    config.kept.clear()


def opened_with(open_lookup: Any) -> LookupType:
    return LookupType("broken", Config, (PodLookup, Colours), open_lookup, api_version=1)


BROKEN: list[tuple[Check, LookupType, str]] = [
    (checks.check_entry_point, of(Sound), "no installed distribution"),
    (checks.check_opens_and_closes, opened_with(_forgets_a_socket), "sockets or files are open"),
    (checks.check_each_protocol_is_provided, of(Sound, provides=()), "provides no protocol"),
    (checks.check_each_protocol_is_provided, of(NoColours), "it lacks Colours.colour"),
    (checks.check_each_protocol_is_provided, of(AsyncPods), "PodLookup.pod must not be async"),
    (checks.check_each_protocol_is_provided, of(SyncColours), "Colours.colour must be async"),
    (checks.check_the_examples_are_answered, of(KnowsNobody), "is None, not Pod("),
    (checks.check_what_nobody_has_is_none, of(KnowsEverybody), "not None"),
    (checks.check_without_its_source_it_goes_on, of(AsksWhileItWorks), "is None, not Pod("),
    (checks.check_cancellation_leaves_nothing_behind, opened_with(_leaves_its_socket), "sockets or files are open"),
    (checks.check_two_instances_do_not_meet, opened_with(_one_at_a_time), "is None, not Pod("),
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


@pytest.fixture(autouse=True)
def _a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWJOIN_TEST_SECRET", "correct horse battery staple")


def all_checks() -> list[str]:
    return [name for name in checks.__all__ if name.startswith("check_")]


@pytest.mark.parametrize(
    ("check", "lookup_type", "words"), BROKEN, ids=[f"{check.__name__}-{words}" for check, _, words in BROKEN]
)
async def test_a_check_catches_what_is_broken(check: Check, lookup_type: LookupType, words: str) -> None:
    subject = subject_of(lookup_type)
    with pytest.raises(AssertionError) as caught:
        await check(subject)
    for kept in subject.config.kept:
        if isinstance(kept, socket.socket):
            kept.close()
    assert words in str(caught.value)


@pytest.mark.parametrize("name", [name for name in all_checks() if name != "check_entry_point"])
async def test_a_sound_provider_passes_each_check(name: str) -> None:
    await getattr(checks, name)(subject_of(of(Sound)))


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


def test_each_check_has_a_provider_that_it_catches() -> None:
    assert {check.__name__ for check, _, _ in BROKEN} == set(all_checks())


def test_each_check_is_a_test_of_the_class() -> None:
    tests = {name for name, _ in inspect.getmembers(LookupConformance) if name.startswith("test_")}
    assert tests == {name.replace("check_", "test_") for name in all_checks()}


def test_the_reference_names_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")
    section = page.partition("## `LookupConformance`")[2].partition("\n## ")[0]
    for name in all_checks():
        assert f"`{name}`" in section, name


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
        ]
        return [LookupExample(method=method, arguments=asked, answer=answer) for method, asked, answer in answers]
