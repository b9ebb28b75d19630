"""Each check of the enrichers' kit catches an enricher that is broken on purpose."""

from __future__ import annotations

import inspect
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from flowjoin.api import Enricher, EnricherType, FlowBatch, PluginContext, Secret
from flowjoin.testing import EnricherConformance, EnricherExample, enricher_checks, numbered_flows
from flowjoin.testing.enricher_checks import EnricherSubject
from flowjoin.testing.subject import CheckSkipped

Check = Callable[[EnricherSubject], Awaitable[None]]


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

    def enrich(self, batch: FlowBatch) -> Any:
        return {"interfaceName": batch.map_distinct("flowStartSeconds", lambda start: f"eth{start % 2}")}


class Waits(Sound):
    async def enrich(self, batch: FlowBatch) -> Any:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        return super().enrich(batch)


class SaysNothing(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {}


class SaysOther(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {"interfaceName": ["lo"] * len(batch)}


class Undeclared(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {**super().enrich(batch), "egressName": ["e"] * len(batch)}


class NoMapping(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return list(super().enrich(batch)) if len(batch) == 300 else super().enrich(batch)


class TooFew(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {"interfaceName": ["eth0"]} if len(batch) == 300 else super().enrich(batch)


class WrongType(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {"interfaceName": [7] * len(batch)} if len(batch) == 300 else super().enrich(batch)


class Changes(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        batch._id = "mine"
        return super().enrich(batch)


class Keeps(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        self.config.kept.append(batch)
        return super().enrich(batch)


class AsksWhileItWorks(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        if self.config.is_down[0]:
            raise OSError("no server")
        return super().enrich(batch)


class Blocks(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        time.sleep(0.06)
        return super().enrich(batch)


class TellsItsSecret(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        self.context.log.info("asked", how=self.config.secret.reveal())
        return super().enrich(batch)


def of(
    enricher: Callable[[Config, PluginContext], Any], *, fills: tuple[str, ...] = ("interfaceName",)
) -> EnricherType:
    @asynccontextmanager
    async def open_enricher(config: Config, context: PluginContext) -> AsyncIterator[Enricher]:
        await trio.lowlevel.checkpoint()
        yield enricher(config, context)
        await trio.lowlevel.checkpoint()

    return EnricherType("broken", Config, (), fills, open_enricher, api_version=1)


@asynccontextmanager
async def _forgets_a_socket(config: Config, context: PluginContext) -> AsyncIterator[Enricher]:
    config.kept.append(socket.socket())
    yield Sound(config, context)


@asynccontextmanager
async def _leaves_its_socket(config: Config, context: PluginContext) -> AsyncIterator[Enricher]:
    connection = socket.socket()
    config.kept.append(connection)
    await trio.lowlevel.checkpoint()
    yield Sound(config, context)
    connection.close()


@asynccontextmanager
async def _one_at_a_time(config: Config, context: PluginContext) -> AsyncIterator[Enricher]:
    config.kept.append(None)

    class First(Sound):
        def enrich(self, batch: FlowBatch) -> Any:
            return {} if len(config.kept) > 1 else super().enrich(batch)

    yield First(config, context)
    config.kept.clear()


def opened_with(open_enricher: Any) -> EnricherType:
    return EnricherType("broken", Config, (), ("interfaceName",), open_enricher, api_version=1)


checks = enricher_checks
BROKEN: list[tuple[Check, EnricherType, str]] = [
    (checks.check_entry_point, of(Sound), "no installed distribution"),
    (checks.check_declared_elements_are_known, of(Sound, fills=()), "declares no element"),
    (checks.check_declared_elements_are_known, of(Sound, fills=("interfaceName",) * 2), "declares an element twice"),
    (checks.check_declared_elements_are_known, of(Sound, fills=("colour",)), "elements that nobody knows"),
    (checks.check_opens_and_closes, of(lambda *_: object()), "yields a object without enrich"),
    (checks.check_opens_and_closes, of(Waits), "enrich is async"),
    (checks.check_opens_and_closes, opened_with(_forgets_a_socket), "sockets or files are open"),
    (checks.check_the_example_is_enriched, of(SaysNothing), "gets no interfaceName"),
    (checks.check_the_example_is_enriched, of(SaysOther), "the example's interfaceName is ['lo'"),
    (checks.check_any_batch_gets_columns_that_fit, of(Undeclared), "does not declare"),
    (checks.check_any_batch_gets_columns_that_fit, of(NoMapping), "not a mapping"),
    (checks.check_any_batch_gets_columns_that_fit, of(TooFew), "1 values of interfaceName for 300 rows"),
    (checks.check_any_batch_gets_columns_that_fit, of(WrongType), "does not fit"),
    (checks.check_a_batch_is_neither_changed_nor_kept, of(Changes), "changed the batch's id"),
    (checks.check_a_batch_is_neither_changed_nor_kept, of(Keeps), "keeps a batch"),
    (checks.check_cancellation_leaves_nothing_behind, opened_with(_leaves_its_socket), "sockets or files are open"),
    (checks.check_two_instances_do_not_meet, opened_with(_one_at_a_time), "gets no interfaceName"),
    (checks.check_no_task_step_is_long, of(Blocks), "held trio's thread for"),
    (checks.check_secrets_are_not_shown, of(TellsItsSecret), "a secret is shown"),
]


def subject_of(enricher_type: EnricherType) -> EnricherSubject:
    config = Config()
    batch = numbered_flows(3)
    wanted = [f"eth{start % 2}" for start in batch.column("flowStartSeconds")]  # type: ignore[operator]  # numbers
    example = EnricherExample(batch=batch, columns={"interfaceName": wanted})
    return EnricherSubject(enricher_type=enricher_type, config=config, example=example, source_down=config.down)


@pytest.fixture(autouse=True)
def _a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWJOIN_TEST_SECRET", "correct horse battery staple")


def all_checks() -> list[str]:
    return [name for name in checks.__all__ if name.startswith("check_")]


@pytest.mark.parametrize(
    ("check", "enricher_type", "words"), BROKEN, ids=[f"{check.__name__}-{words}" for check, _, words in BROKEN]
)
async def test_a_check_catches_what_is_broken(check: Check, enricher_type: EnricherType, words: str) -> None:
    subject = subject_of(enricher_type)
    with pytest.raises(AssertionError) as caught:
        await check(subject)
    for kept in subject.config.kept:
        if isinstance(kept, socket.socket):
            kept.close()
    assert words in str(caught.value)


async def test_an_enricher_that_asks_while_it_works_is_caught() -> None:
    with pytest.raises(OSError, match="no server"):
        await checks.check_without_its_source_it_goes_on(subject_of(of(AsksWhileItWorks)))


@pytest.mark.parametrize("name", [name for name in all_checks() if name != "check_entry_point"])
async def test_a_sound_enricher_passes_each_check(name: str) -> None:
    await getattr(checks, name)(subject_of(of(Sound)))


async def test_without_a_way_to_take_the_source_away_that_check_is_skipped() -> None:
    whole = subject_of(of(Sound))
    subject = EnricherSubject(enricher_type=whole.enricher_type, config=whole.config, example=whole.example)
    with pytest.raises(CheckSkipped, match="supply source_down"):
        await checks.check_without_its_source_it_goes_on(subject)


def test_each_check_has_an_enricher_that_it_catches() -> None:
    caught = {check.__name__ for check, _, _ in BROKEN} | {"check_without_its_source_it_goes_on"}
    assert caught == set(all_checks())


def test_each_check_is_a_test_of_the_class() -> None:
    tests = {name for name, _ in inspect.getmembers(EnricherConformance) if name.startswith("test_")}
    assert tests == {name.replace("check_", "test_") for name in all_checks()}


def test_the_reference_names_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")
    section = page.partition("## `EnricherConformance`")[2].partition("\n## ")[0]
    for name in all_checks():
        assert f"`{name}`" in section, name


def test_a_check_is_overridden_only_with_a_strict_xfail_and_its_reason() -> None:
    async def test_entry_point(self: object, subject: EnricherSubject) -> None: ...

    with pytest.raises(TypeError, match="may be overridden only with"):
        type("Own", (EnricherConformance,), {"test_entry_point": test_entry_point})
    marked = pytest.mark.xfail(strict=True, reason="not installed")(test_entry_point)
    type("Own", (EnricherConformance,), {"test_entry_point": marked})
