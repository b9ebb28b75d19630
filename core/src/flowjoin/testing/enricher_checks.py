"""What every enricher must do: one async function per requirement, with no test framework in it.

Each check takes an ``EnricherSubject`` and raises AssertionError with the requirement that is broken.
"""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import trio

from flowjoin.api import AddressFamily, Enricher, EnricherType, FlowBatch, Value
from flowjoin.testing.batches import every_data_type, hostile_flows, numbered_flows, plain_flows, standard_flow
from flowjoin.testing.context import RecordingContext
from flowjoin.testing.requirements import (
    cancelled_everywhere,
    handed_over,
    no_long_step,
    opened_and_closed,
    secrets_hidden,
)
from flowjoin.testing.subject import CheckSkipped, MakeDown, entered
from flowjoin.wire.registry import default_registry

__all__ = [
    "SUPPLY_SOURCE_DOWN",
    "EnricherExample",
    "EnricherSubject",
    "check_a_batch_is_neither_changed_nor_kept",
    "check_any_batch_gets_columns_that_fit",
    "check_cancellation_leaves_nothing_behind",
    "check_declared_elements_are_known",
    "check_entry_point",
    "check_no_task_step_is_long",
    "check_opens_and_closes",
    "check_secrets_are_not_shown",
    "check_the_example_is_enriched",
    "check_two_instances_do_not_meet",
    "check_without_its_source_it_goes_on",
]

SUPPLY_SOURCE_DOWN: Final = "supply source_down: a context manager inside which what the tables come from is away"
_HOOK: Final = "flowjoin_enricher_types"
_SLICE: Final = 1024  # rows: about what the flow table gives at once


@dataclass(frozen=True, slots=True, kw_only=True)
class EnricherExample:
    """A batch of which the author knows what becomes.

    Attributes:
        columns: what ``enrich`` must give for it, element by element; it may give more.
    """

    batch: FlowBatch
    columns: Mapping[str, Sequence[Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnricherSubject:
    """The enricher under test.

    Attributes:
        config: with which it opens and has its tables.
        example: what it must be able to do.
        source_down: gives a context manager inside which what its tables come from is away; None if there is no
            such thing, or it cannot be arranged.
    """

    enricher_type: EnricherType
    config: Any  # the enricher's own dataclass
    example: EnricherExample
    source_down: MakeDown | None = None

    def open(self, context: RecordingContext | None = None) -> AbstractAsyncContextManager[Enricher]:
        """The enricher's own context manager."""
        return self.enricher_type.open(self.config, self.context() if context is None else context)

    def context(self) -> RecordingContext:
        """A fresh context, named as the enricher is, in which everything is wanted."""
        return RecordingContext(name=self.enricher_type.name, wants_pod_labels=True)


async def check_entry_point(subject: EnricherSubject) -> None:
    """Installed metadata names a module that hands over this type, and the module is typed."""
    await trio.lowlevel.checkpoint()
    handed_over(subject.enricher_type.name, _HOOK, EnricherType)


async def check_declared_elements_are_known(subject: EnricherSubject) -> None:
    """It declares at least one element, each once, and those of no registry bring their definition."""
    await trio.lowlevel.checkpoint()
    declared = [*subject.enricher_type.adds, *subject.enricher_type.fills]
    assert declared, "it declares no element that it adds or fills"
    assert len(set(declared)) == len(declared), "it declares an element twice"
    unknown = set(declared) - {element.name for element in default_registry()}
    missing = unknown - set(subject.example.columns)
    assert not missing, f"elements that nobody knows, and that the example does not show: {', '.join(sorted(missing))}"


async def check_opens_and_closes(subject: EnricherSubject) -> None:
    """Opened and closed twice it leaves no task or socket, and what it yields has a sync ``enrich``."""
    async with subject.open() as enricher:
        assert callable(getattr(enricher, "enrich", None)), f"it yields a {type(enricher).__name__} without enrich"
        assert not inspect.iscoroutinefunction(enricher.enrich), "enrich is async; it must give columns at once"
    await opened_and_closed(subject.open)


async def check_the_example_is_enriched(subject: EnricherSubject) -> None:
    """It gives the example's columns."""
    assert subject.example.columns, "the example expects nothing"
    async with subject.open() as enricher:
        _check_example(subject, enricher)


async def check_any_batch_gets_columns_that_fit(subject: EnricherSubject) -> None:
    """Flows of any kind, family and content get only declared elements, a value a row, of the elements' types."""
    async with subject.open() as enricher:
        for batch in (
            standard_flow(),
            standard_flow(AddressFamily.IPV6),
            numbered_flows(300),
            numbered_flows(0),
            plain_flows(5),
            plain_flows(5, AddressFamily.IPV6),
            hostile_flows(),
            every_data_type(),
            subject.example.batch,
        ):
            _check_columns(subject, batch, enricher.enrich(batch))
            await trio.lowlevel.checkpoint()


async def check_a_batch_is_neither_changed_nor_kept(subject: EnricherSubject) -> None:
    """The batch has the same rows and schema after ``enrich``, and nothing refers to it."""
    async with subject.open() as enricher:
        batch = subject.example.batch.with_id("an-id")
        schema, rows = batch.schema, list(batch.rows())
        columns: Any = enricher.enrich(batch)
        assert batch.schema == schema, "enrich changed the batch's schema"
        assert list(batch.rows()) == rows, "enrich changed the batch's rows"
        assert batch.id == "an-id", "enrich changed the batch's id"
        reference = weakref.ref(batch)
        del batch, columns
        await trio.lowlevel.checkpoint()
        gc.collect()
        assert reference() is None, "the enricher keeps a batch after enrich returned"


async def check_cancellation_leaves_nothing_behind(subject: EnricherSubject) -> None:
    """Cancelled at any checkpoint of open or close, it closes at once and leaves no task or socket."""

    async def whole_life() -> None:
        async with subject.open() as enricher:
            _check_example(subject, enricher)
            await trio.lowlevel.checkpoint()

    await cancelled_everywhere(whole_life)


async def check_two_instances_do_not_meet(subject: EnricherSubject) -> None:
    """Two instances work beside each other, and one goes on when the other has closed."""
    async with subject.open() as first:
        async with subject.open() as second:
            _check_example(subject, first)
            _check_example(subject, second)
        _check_example(subject, first)


async def check_without_its_source_it_goes_on(subject: EnricherSubject) -> None:
    """While what its tables come from is away, it answers from them and raises nothing."""
    if subject.source_down is None:
        raise CheckSkipped(SUPPLY_SOURCE_DOWN)
    async with subject.open() as enricher:
        _check_example(subject, enricher)
        async with entered(subject.source_down()):
            for _ in range(3):
                _check_example(subject, enricher)
                await trio.lowlevel.checkpoint()
        _check_example(subject, enricher)


async def check_no_task_step_is_long(subject: EnricherSubject) -> None:
    """No task holds trio's thread for more than 50 ms, with a batch as large as the flow table gives."""
    batch = numbered_flows(_SLICE)

    async def whole_life() -> None:
        async with subject.open() as enricher:
            await trio.lowlevel.checkpoint()
            enricher.enrich(batch)
            await trio.lowlevel.checkpoint()

    await no_long_step(whole_life, remedy="enrich by distinct values (map_distinct), and refresh tables in slices")


async def check_secrets_are_not_shown(subject: EnricherSubject) -> None:
    """Secrets are ``Secret``, and their values are in no repr or log line."""
    context = subject.context()
    shown = [repr(subject.config), str(subject.config)]
    async with subject.open(context) as enricher:
        shown += [repr(enricher), str(enricher)]
        enricher.enrich(subject.example.batch)
    shown += [repr(line) for line in context.log.lines] + context.impairments
    secrets_hidden(subject.config, shown)


def _check_example(subject: EnricherSubject, enricher: Enricher) -> None:
    columns = enricher.enrich(subject.example.batch)
    _check_columns(subject, subject.example.batch, columns)
    for name, wanted in subject.example.columns.items():
        assert name in columns, f"the example gets no {name}"
        given = list(columns[name])
        assert given == list(wanted), f"the example's {name} is {given}, not {list(wanted)}"


def _check_columns(subject: EnricherSubject, batch: FlowBatch, columns: object) -> None:
    declared = {*subject.enricher_type.adds, *subject.enricher_type.fills}
    assert isinstance(columns, Mapping), f"enrich gives a {type(columns).__name__}, not a mapping of columns"
    for name, column in columns.items():
        assert name in declared, f"enrich gives the element {name!r}, which its type does not declare"
        assert len(column) == len(batch), f"enrich gives {len(column)} values of {name} for {len(batch)} rows"
    known = {element.name for element in batch.schema.registry}
    try:
        batch.with_columns({name: column for name, column in columns.items() if name in known})
    except (ValueError, TypeError) as exc:
        raise AssertionError(f"enrich gives a column that does not fit: {exc}") from exc
