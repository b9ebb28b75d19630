"""Each check of the kit catches an exporter that is broken on purpose, and no requirement is waived in silence."""

from __future__ import annotations

import importlib.metadata
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from broken_plugins import Config, KitContract, opening

from flowjoin import testing
from flowjoin.api import (
    ConfigError,
    Exporter,
    ExporterType,
    FlowBatch,
    PermanentExportError,
    PluginContext,
    RetryableExportError,
    hookimpl,
)
from flowjoin.testing import MEMORY_EXPORTER, ExporterConformance, MemoryConfig, checks
from flowjoin.testing.checks import CheckSkipped, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPassword(Config):
    password: str = "hunter2"


class Sound:
    """Keeps the contract; each broken one changes one thing of it."""

    def __init__(self, config: Config, context: PluginContext) -> None:
        self.config = config
        self.context = context
        self.counter = context.counter("rows_delivered", "rows")

    async def export(self, batch: FlowBatch) -> None:
        await trio.lowlevel.checkpoint()
        if self.config.is_down[0]:
            raise RetryableExportError("down")
        self.config.rows.extend(list(batch.column("flowEndSeconds")))
        self.counter.inc(len(batch))


class Late(Sound):
    waiting: tuple[FlowBatch, ...] = ()

    async def export(self, batch: FlowBatch) -> None:
        for earlier in self.waiting:
            await super().export(earlier)
        self.waiting = (batch,)


class OneForEmpty(Sound):
    async def export(self, batch: FlowBatch) -> None:
        await super().export(batch)
        if not len(batch):
            self.config.rows.append({})


class RefusesTypes(Sound):
    async def export(self, batch: FlowBatch) -> None:
        if "exampleFloat64" in batch.schema:
            raise ValueError("no floats here")
        await super().export(batch)


class DropsTypes(Sound):
    async def export(self, batch: FlowBatch) -> None:
        if "exampleFloat64" in batch.schema:
            return
        await super().export(batch)


class RetriesBadData(Sound):
    async def export(self, batch: FlowBatch) -> None:
        if "\0" in "".join(map(str, batch.column("sourcePodName"))):
            raise RetryableExportError("cannot encode")
        await super().export(batch)


class RefusesTheWrongRows(Sound):
    async def export(self, batch: FlowBatch) -> None:
        await super().export(batch)
        if "\0" in "".join(map(str, batch.column("sourcePodName"))):
            raise PermanentExportError("cannot encode", rows=[0])


class Changes(Sound):
    async def export(self, batch: FlowBatch) -> None:
        await super().export(batch)
        batch._id = "mine"


class Keeps(Sound):
    async def export(self, batch: FlowBatch) -> None:
        await super().export(batch)
        self.config.kept.append(batch)


class SwallowsCancellation(Sound):
    async def export(self, batch: FlowBatch) -> None:
        try:
            await super().export(batch)
        except trio.Cancelled:
            return


class LeavesSocket(Sound):
    async def export(self, batch: FlowBatch) -> None:
        connection = socket.socket()
        self.config.kept.append(connection)
        await super().export(batch)
        connection.close()


class FailsOtherwise(Sound):
    async def export(self, batch: FlowBatch) -> None:
        try:
            await super().export(batch)
        except RetryableExportError as exc:
            raise ConnectionResetError("down") from exc


class GivesUp(Sound):
    failed: bool = False

    async def export(self, batch: FlowBatch) -> None:
        if self.failed:
            return
        try:
            await super().export(batch)
        except RetryableExportError:
            self.failed = True
            raise


class Blocks(Sound):
    async def export(self, batch: FlowBatch) -> None:
        await super().export(batch)
        time.sleep(0.06)  # noqa: ASYNC251 - the fault


class Computes(Sound):
    async def export(self, batch: FlowBatch) -> None:
        await super().export(batch)
        end = time.thread_time() + 0.06
        while time.thread_time() < end:
            pass


class TellsItsSecret(Sound):
    async def export(self, batch: FlowBatch) -> None:
        self.context.log.info("connected", password=self.config.secret.reveal())
        await super().export(batch)


class TellsItsSecretWhenDown(Sound):
    async def export(self, batch: FlowBatch) -> None:
        try:
            await super().export(batch)
        except RetryableExportError as exc:
            raise RetryableExportError(f"http://user:{self.config.secret.reveal()}@host is down") from exc


class CountsTooSoon(Sound):
    async def export(self, batch: FlowBatch) -> None:
        if self.config.is_down[0]:
            self.counter.inc(len(batch))
        await super().export(batch)


def of(cls: type[Sound]) -> ExporterType:
    return ExporterType("broken", Config, opening(cls), api_version=1)


def opened_with(
    around: Callable[[Config, PluginContext], AbstractContextManager[object]], cls: type[Sound] = Sound
) -> ExporterType:
    @asynccontextmanager
    async def opened(config: Config, context: PluginContext) -> AsyncIterator[Exporter]:
        await trio.lowlevel.checkpoint()
        with around(config, context):
            yield cls(config, context)

    return ExporterType("broken", Config, opened, api_version=1)


@contextmanager
def _header(config: Config, _context: PluginContext) -> Iterator[None]:
    config.rows.append("a header")
    yield


@contextmanager
def _forgotten_socket(config: Config, _context: PluginContext) -> Iterator[None]:
    config.kept.append(socket.socket())
    yield


@contextmanager
def _task_of_the_system(_config: Config, _context: PluginContext) -> Iterator[None]:
    trio.lowlevel.spawn_system_task(trio.sleep_forever)
    yield


_OPEN: list[Sound] = []


class SharesState(Sound):
    async def export(self, batch: FlowBatch) -> None:
        await _OPEN[0].__class__.__mro__[1].export(_OPEN[0], batch)  # type: ignore[attr-defined]  # Sound.export


@asynccontextmanager
async def _shared(config: Config, context: PluginContext) -> AsyncIterator[Exporter]:
    await trio.lowlevel.checkpoint()
    exporter = SharesState(config, context)
    _OPEN.append(exporter)
    try:
        yield exporter
    finally:
        _OPEN.remove(exporter)


@asynccontextmanager
async def _closes_all(config: Config, context: PluginContext) -> AsyncIterator[Exporter]:
    await trio.lowlevel.checkpoint()
    try:
        yield ClosedByAny(config, context)
    finally:
        config.kept.append("closed")


class ClosedByAny(Sound):
    async def export(self, batch: FlowBatch) -> None:
        if self.config.kept:
            raise RetryableExportError("somebody closed my connection")
        await super().export(batch)


SHARED = ExporterType("broken", Config, _shared, api_version=1)
CLOSES_ALL = ExporterType("broken", Config, _closes_all, api_version=1)

BROKEN = [
    (checks.check_entry_point, of(Sound), "no installed distribution"),
    (checks.check_opens_and_closes_without_a_batch, opened_with(_header), "without any batch"),
    (checks.check_opens_and_closes_without_a_batch, opened_with(_forgotten_socket), "sockets or files are open"),
    (checks.check_opens_and_closes_without_a_batch, opened_with(_task_of_the_system), "tasks are left"),
    (checks.check_delivered_when_export_returns, of(Late), "when export returned"),
    (checks.check_an_empty_batch_delivers_nothing, of(OneForEmpty), "empty batch"),
    (checks.check_every_data_type_survives_or_is_permanent, of(RefusesTypes), "not PermanentExportError"),
    (checks.check_every_data_type_survives_or_is_permanent, of(DropsTypes), "none was refused"),
    (checks.check_bad_data_is_accepted_or_permanent, of(RetriesBadData), "not PermanentExportError"),
    (checks.check_bad_data_is_accepted_or_permanent, of(RefusesTheWrongRows), "were refused, and"),
    (checks.check_a_batch_is_not_changed, of(Changes), "changed the batch's id"),
    (checks.check_a_batch_is_not_kept, of(Keeps), "keeps a batch"),
    (checks.check_cancellation_leaves_nothing_behind, of(LeavesSocket), "sockets or files are open"),
    (checks.check_cancellation_leaves_nothing_behind, of(SwallowsCancellation), "export returned with 0 of 3"),
    (checks.check_a_destination_that_is_down_is_retryable, of(FailsOtherwise), "not RetryableExportError"),
    (checks.check_a_destination_that_is_down_is_retryable, of(GivesUp), "not RetryableExportError"),
    (checks.check_two_instances_do_not_meet, SHARED, "with two instances"),
    (checks.check_no_task_step_is_long, of(Blocks), "held trio's thread for"),
    (checks.check_no_task_step_is_long, of(Computes), "held trio's thread for"),
    (checks.check_secrets_are_not_shown, of(TellsItsSecret), "a secret is shown"),
    (checks.check_secrets_are_not_shown, of(TellsItsSecretWhenDown), "a secret is shown"),
    (checks.check_counters_agree_with_what_was_delivered, of(CountsTooSoon), "rows_delivered says"),
]


def subject_of(exporter_type: ExporterType, **changes: Any) -> Subject:
    config, other = Config(), Config()
    return Subject(
        exporter_type=exporter_type,
        config=config,
        delivered=lambda: config.rows,
        other_config=other,
        other_delivered=lambda: other.rows,
        destination_down=config.down,
        **changes,
    )


class TestTheKit(KitContract):
    checks = checks
    kit = ExporterConformance
    broken = BROKEN
    sound = of(Sound)

    def subject_of(self, plugin_type: ExporterType) -> Subject:
        return subject_of(plugin_type)


async def test_what_is_installed_passes_the_check_of_entry_points() -> None:
    await checks.check_entry_point(subject_of(ExporterType("log", Config, of(Sound).open, api_version=1)))


def test_the_reference_names_every_public_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")
    for name in testing.__all__:
        assert f"`{name}" in page, name


async def test_a_second_instance_on_the_same_destination_may_be_refused() -> None:
    opened: list[Config] = []

    @contextmanager
    def alone(config: Config, _context: PluginContext) -> Iterator[None]:
        if config in opened:
            raise ConfigError("in use")
        opened.append(config)
        yield
        opened.remove(config)

    config = Config()
    subject = Subject(exporter_type=opened_with(alone), config=config, delivered=lambda: config.rows)
    await checks.check_two_instances_do_not_meet(subject)


async def test_an_instance_that_closes_another_is_caught() -> None:
    config = Config()
    subject = Subject(exporter_type=CLOSES_ALL, config=config, delivered=lambda: config.rows)
    with pytest.raises(RetryableExportError, match="somebody closed"):
        await checks.check_two_instances_do_not_meet(subject)


async def test_a_plain_text_password_is_caught() -> None:
    config = PlainPassword()
    subject = Subject(exporter_type=of(Sound), config=config, delivered=lambda: config.rows)
    with pytest.raises(AssertionError, match="the setting password is plain text"):
        await checks.check_secrets_are_not_shown(subject)


async def test_without_a_way_to_take_the_destination_down_that_check_is_skipped() -> None:
    config = Config()
    subject = Subject(exporter_type=of(Sound), config=config, delivered=lambda: config.rows)
    with pytest.raises(CheckSkipped, match="supply destination_down"):
        await checks.check_a_destination_that_is_down_is_retryable(subject)


@pytest.mark.parametrize(
    ("mark", "is_allowed"),
    [
        (pytest.mark.xfail(strict=True, reason="the broker keeps no order"), True),
        (pytest.mark.xfail(strict=False, reason="flaky"), False),
        (pytest.mark.xfail(strict=True), False),
        (pytest.mark.xfail(reason="strict by the ini file is not written here"), False),
        (pytest.mark.skip(reason="later"), False),
        (pytest.mark.slow, False),
    ],
    ids=str,
)
def test_a_check_is_overridden_only_with_a_strict_xfail_and_its_reason(mark: Any, is_allowed: bool) -> None:
    @mark  # type: ignore[untyped-decorator]  # any mark
    async def test_entry_point(self: object, subject: Subject) -> None: ...

    if is_allowed:
        type("TestMine", (ExporterConformance,), {"test_entry_point": test_entry_point})
    else:
        with pytest.raises(TypeError, match="may be overridden only"):
            type("TestMine", (ExporterConformance,), {"test_entry_point": test_entry_point})


def test_a_check_is_not_removed_either() -> None:
    with pytest.raises(TypeError, match="may be overridden only"):
        type("TestMine", (ExporterConformance,), {"test_entry_point": None})


class _EntryPoint:
    """An installed plugin whose module is this object."""

    value = module = "flowjoin_log"
    name = "broken"
    dist = None

    def __init__(self, plugin: object) -> None:
        self._plugin = plugin

    def load(self) -> object:
        return self._plugin


def _plugin(hook: object) -> object:
    return type("Plugin", (), {"flowjoin_exporter_types": staticmethod(hook)})  # type: ignore[arg-type]  # a hook


@dataclass(slots=True)
class Thawed:
    pass


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        (object(), "has no flowjoin_exporter_types"),
        (_plugin(lambda: [of(Sound)]), "lacks the decorator"),
        (_plugin(hookimpl(lambda: of(Sound))), "not a list"),
        (_plugin(hookimpl(lambda: list[ExporterType]())), "hands over 0 exporter types"),
        (_plugin(hookimpl(lambda: [ExporterType("broken", Config, of(Sound).open, api_version=99)])), "API 99"),
        (_plugin(hookimpl(lambda: [ExporterType("broken", dict, of(Sound).open, api_version=1)])), "no dataclass"),
        (_plugin(hookimpl(lambda: [ExporterType("broken", Thawed, of(Sound).open, api_version=1)])), "not frozen"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_entry_point_that_is_wrong_is_caught(
    plugin: object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [_EntryPoint(plugin)])
    with pytest.raises(AssertionError, match=words):
        await checks.check_entry_point(subject_of(of(Sound)))


async def test_a_package_without_py_typed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = _EntryPoint(_plugin(hookimpl(lambda: [of(Sound)])))
    entry.value = entry.module = "json"
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    with pytest.raises(AssertionError, match=r"json has no py\.typed"):
        await checks.check_entry_point(subject_of(of(Sound)))


async def test_the_memory_exporter_is_cancelled_without_a_trace() -> None:
    config = MemoryConfig()
    subject = Subject(exporter_type=MEMORY_EXPORTER, config=config, delivered=lambda: config.rows)
    await checks.check_cancellation_leaves_nothing_behind(subject)
