"""What every source must do: one async function per requirement, with no test framework in it.

Each check takes a ``SourceSubject`` and raises AssertionError with the requirement that is broken. Each opens the
source anew and asks for batches until the rows of the example have come.
"""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import trio

from flowjoin.api import AddressFamily, ConfigError, FlowBatch, FlowOrigin, FlowSchema, SourceType, Value
from flowjoin.testing.context import RecordingContext
from flowjoin.testing.requirements import (
    CLOSE_SECONDS,
    cancelled_everywhere,
    handed_over,
    no_long_step,
    opened_and_closed,
    secrets_hidden,
)
from flowjoin.testing.subject import CheckSkipped, MakeDown, entered
from flowjoin.testing.watching import Held

__all__ = [
    "SUPPLY_READ_DOWN",
    "SUPPLY_UNUSABLE_CONFIG",
    "SourceExample",
    "SourceSubject",
    "check_after_a_failure_it_works_again",
    "check_cancellation_leaves_nothing_behind",
    "check_entry_point",
    "check_every_batch_keeps_the_laws",
    "check_no_task_step_is_long",
    "check_opens_and_closes",
    "check_secrets_are_not_shown",
    "check_the_example_is_given",
    "check_two_instances_do_not_meet",
    "check_what_cannot_work_is_refused",
]

SUPPLY_READ_DOWN: Final = "supply source_down: a context manager inside which what it reads is away"
SUPPLY_UNUSABLE_CONFIG: Final = "supply unusable_config: a configuration with which it cannot work here"
_HOOK: Final = "flowjoin_source_types"
_EXAMPLE_SECONDS: Final = 60.0
_DOWN_SECONDS: Final = 5.0
_ORDERED: Final = (
    ("flowStartSeconds", "flowEndSeconds"),
    ("flowStartMilliseconds", "flowEndMilliseconds"),
    *((f"{unit}DeltaCount", f"{unit}TotalCount") for unit in ("packet", "octet", "reversePacket", "reverseOctet")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceExample:
    """Rows of which the author knows that they come.

    Attributes:
        rows: in any order, among others; of each row the elements that are named must be as they are here.
        happen: makes happen what the rows tell, awaited once the source is open; None where it tells them by itself.
    """

    rows: Sequence[Mapping[str, Value]]
    happen: Callable[[], Awaitable[object]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSubject:
    """The source under test.

    Attributes:
        config: with which it opens and gives the example.
        lookups: what ``context.lookup`` gives, by protocol.
        source_down: gives a context manager inside which what it reads is away; None if that cannot be arranged.
        unusable_config: with which it cannot work here; None if there is none.
    """

    source_type: SourceType
    config: Any  # the source's own dataclass
    example: SourceExample
    lookups: Mapping[type[object], object] = field(default_factory=dict)
    source_down: MakeDown | None = None
    unusable_config: Any = None  # as config

    @asynccontextmanager
    async def open(
        self, context: RecordingContext | None = None, config: object = None
    ) -> AsyncIterator[AsyncIterator[FlowBatch]]:
        """Open it and close it as the core does: first what it yielded, then its context."""
        made = self.context() if context is None else context
        async with self.source_type.open(self.config if config is None else config, made) as batches:
            assert callable(getattr(batches, "__anext__", None)), (
                f"it yields a {type(batches).__name__}, which is no async iterator"
            )
            try:
                yield batches
            finally:
                close = getattr(batches, "aclose", None)
                if close is not None:
                    await close()

    def context(self) -> RecordingContext:
        """A fresh context, named as the source is."""
        return RecordingContext(name=self.source_type.name, lookups=self.lookups)


async def check_entry_point(subject: SourceSubject) -> None:
    """Installed metadata names a module that hands over this type, and the module is typed."""
    await trio.lowlevel.checkpoint()
    handed_over(subject.source_type.name, _HOOK, SourceType)


async def check_opens_and_closes(subject: SourceSubject) -> None:
    """Opened and closed twice, without being asked for a batch, it leaves no task or socket."""
    await opened_and_closed(subject.open)


async def check_the_example_is_given(subject: SourceSubject) -> None:
    """The rows of the example come, and its batches do not end before them."""
    assert subject.example.rows, "the example has no rows"
    async with subject.open() as batches:
        await _take_example(subject, batches)


async def check_every_batch_keeps_the_laws(subject: SourceSubject) -> None:
    """Batches have rows that fit one schema per family, of this origin, and stay as they were given."""
    context = subject.context()
    async with subject.open(context) as batches:
        given = await _take_example(subject, batches)
    schemas: dict[AddressFamily, FlowSchema] = {}
    for number, (batch, rows) in enumerate(given):
        _check_schema(batch, context)
        assert schemas.setdefault(batch.schema.family, batch.schema) == batch.schema, (
            f"its batches of IPv{batch.schema.family.value} have several schemas: each change cuts every lane's batch"
        )
        _check_rows(batch)
        assert not any(batch is other for other, _ in given[:number]), "it gave the same batch twice"
        assert _named_rows(batch) == rows, "it changed a batch that it had given"


async def check_cancellation_leaves_nothing_behind(subject: SourceSubject) -> None:
    """Cancelled at any checkpoint of open, waiting for a batch or close, it closes at once and leaves nothing."""

    async def whole_life() -> None:
        async with subject.open() as batches:
            await _take_example(subject, batches)

    await cancelled_everywhere(whole_life)


async def check_two_instances_do_not_meet(subject: SourceSubject) -> None:
    """Two instances give the example each, and one goes on when the other has closed; or the second is refused."""
    async with subject.open() as first:
        try:
            async with subject.open() as second:
                await _take_example(subject, second)
        except* ConfigError:
            pass  # two on one input are refused: they cannot meet
        await _take_example(subject, first)


async def check_after_a_failure_it_works_again(subject: SourceSubject) -> None:
    """While what it reads is away it raises or waits, and does not end; opened anew later, it gives the example."""
    if subject.source_down is None:
        raise CheckSkipped(SUPPLY_READ_DOWN)
    held = Held.now()
    async with entered(subject.source_down()):
        await _error_while_down(subject)
    held.check_nothing_more("after it failed to open")
    async with subject.open() as batches:
        await _take_example(subject, batches)
    down = subject.source_down()
    try:
        async with subject.open() as batches:
            await _take_example(subject, batches)
            async with entered(down):
                await _ask_while_down(batches)
    except AssertionError:
        raise
    except Exception:  # noqa: BLE001 - whatever it raises, the core opens it anew
        pass
    held.check_nothing_more("after what it read had gone away")
    async with subject.open() as batches:
        await _take_example(subject, batches)


async def check_what_cannot_work_is_refused(subject: SourceSubject) -> None:
    """With a configuration that cannot work, opening raises ConfigError with a sentence and leaves nothing."""
    if subject.unusable_config is None:
        raise CheckSkipped(SUPPLY_UNUSABLE_CONFIG)
    held = Held.now()
    error: Exception | None = None
    try:
        with trio.fail_after(CLOSE_SECONDS):
            async with subject.open(config=subject.unusable_config):
                pass
    except Exception as exc:  # noqa: BLE001 - which one it is, is what the check looks at
        error = _alone(exc)
    assert isinstance(error, ConfigError), f"with a configuration that cannot work, opening gave {error!r}"
    assert str(error), "the ConfigError says nothing"
    held.check_nothing_more("after it was refused")


async def check_no_task_step_is_long(subject: SourceSubject) -> None:
    """No task holds trio's thread for more than 50 ms while the example is given."""

    async def whole_life() -> None:
        async with subject.open() as batches:
            await _take_example(subject, batches)

    await no_long_step(whole_life, remedy="make batches in slices, and put blocking calls into trio.to_thread.run_sync")


async def check_secrets_are_not_shown(subject: SourceSubject) -> None:
    """Secrets are ``Secret``, and their values are in no repr, log line or error."""
    context = subject.context()
    shown = [repr(subject.config), str(subject.config)]
    async with subject.open(context) as batches:
        shown += [repr(batches), str(batches)]
        await _take_example(subject, batches)
    if subject.source_down is not None:
        async with entered(subject.source_down()):
            error = await _error_while_down(subject, context)
        if error is not None:
            shown += traceback.format_exception(error)
    shown += [repr(line) for line in context.log.lines] + context.impairments
    secrets_hidden(subject.config, shown)


_Rows: TypeAlias = list[dict[str, Value]]


async def _take_example(subject: SourceSubject, batches: AsyncIterator[FlowBatch]) -> list[tuple[FlowBatch, _Rows]]:
    """Ask until every row of the example has come; all batches that came, with their rows as they were then."""
    wanted = [dict(row) for row in subject.example.rows]
    given: list[tuple[FlowBatch, _Rows]] = []
    with trio.move_on_after(_EXAMPLE_SECONDS):
        if subject.example.happen is not None:
            await subject.example.happen()
        while wanted:
            batch = await _next(batches)
            rows = _named_rows(batch)
            given.append((batch, rows))
            for row in rows:
                found = next((one for one in wanted if one.items() <= row.items()), None)
                if found is not None:
                    wanted.remove(found)
    assert not wanted, f"within {_EXAMPLE_SECONDS:g} s it gave no row with {wanted[0]}"
    return given


async def _next(batches: AsyncIterator[FlowBatch]) -> FlowBatch:
    try:
        batch: object = await anext(batches)
    except StopAsyncIteration:
        raise AssertionError("its batches ended: a source whose iterator ends is over for good") from None
    assert isinstance(batch, FlowBatch), f"its iterator gave a {type(batch).__name__}, not a FlowBatch"
    return batch


def _named_rows(batch: FlowBatch) -> _Rows:
    return [dict(zip(batch.schema.names, row, strict=True)) for row in batch.rows()]


async def _error_while_down(subject: SourceSubject, context: RecordingContext | None = None) -> Exception | None:
    """What it raises when it is opened and asked while what it reads is away."""
    try:
        async with subject.open(context) as batches:
            await _ask_while_down(batches)
    except AssertionError:
        raise
    except Exception as exc:  # noqa: BLE001 - whatever it raises, the core opens it anew
        return exc
    return None


async def _ask_while_down(batches: AsyncIterator[FlowBatch]) -> None:
    with trio.move_on_after(_DOWN_SECONDS):
        while True:
            await _next(batches)


def _alone(exc: Exception) -> Exception:
    """Out of the groups that nurseries put around a single exception."""
    while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def _check_schema(batch: FlowBatch, context: RecordingContext) -> None:
    schema = batch.schema
    assert schema.origin is FlowOrigin.SOURCE, f"a batch's origin is {schema.origin}, not FlowOrigin.SOURCE"
    for family in AddressFamily:
        for name in (f"sourceIPv{family.value}Address", f"destinationIPv{family.value}Address"):
            assert (name in schema) == (family is schema.family), (
                f"a batch of IPv{schema.family.value} {'has' if name in schema else 'lacks'} {name}"
            )
    for element in schema.elements:
        try:
            known = context.registry.by_name(element.name)
        except KeyError:
            known = None
        assert element == known, f"the element {element.name} is not the registry's: take it from context.registry"


def _check_rows(batch: FlowBatch) -> None:
    assert len(batch), "it gave a batch without rows"
    assert not batch.id, "it gave a batch with an id; lanes give them"
    columns = {name: list(batch.column(name)) for name in batch.schema.names}
    try:
        again = FlowBatch.from_columns(batch.schema, columns)
    except (ValueError, TypeError) as exc:
        raise AssertionError(f"a batch has a value that does not fit: {exc}") from exc
    assert len(again) == len(batch)
    for smaller, greater in _ORDERED:
        if smaller in batch.schema and greater in batch.schema:
            for low, high in zip(columns[smaller], columns[greater], strict=True):
                assert low <= high, f"a row's {smaller} {low!r} is greater than its {greater} {high!r}"  # type: ignore[operator]  # numbers
