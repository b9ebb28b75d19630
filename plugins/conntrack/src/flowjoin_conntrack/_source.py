"""The source: polls, hears of ends, and gives what is due."""

from __future__ import annotations

import errno
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

import trio

from flowjoin.api import FlowBatch, PluginContext
from flowjoin_conntrack._classifier import Classifier
from flowjoin_conntrack._columns import BatchMaker
from flowjoin_conntrack._config import ConntrackConfig, node_name
from flowjoin_conntrack._denials import Denials
from flowjoin_conntrack._dumper import Dumper, Portion
from flowjoin_conntrack._entry import ROW
from flowjoin_conntrack._events import EventSource
from flowjoin_conntrack._exports import Export
from flowjoin_conntrack._figures import Figures
from flowjoin_conntrack._gateway import addresses_of
from flowjoin_conntrack._impairments import Impairments
from flowjoin_conntrack._metadata import Metadata
from flowjoin_conntrack._netlink import MessageKind
from flowjoin_conntrack._store import ConnectionStore

__all__ = ["Batches", "Source"]

_ROWS: Final = 256  # of one batch: some milliseconds
_EVENTS: Final = 64  # taken in one go
_SILENCE_SECONDS: Final = 90.0  # in the middle of a table; longer than any tool takes
_LAST_LOOK_SECONDS: Final = 5.0  # when the program ends
_SOONEST_POLL: Final = 1.0  # after the one before
_NEARLY_FULL: Final = 0.95
_TICK: Final = 0.1  # exports that fall due together go together


class Batches:
    """What a source gives: an iterator that is told when the program ends (``SupportsLastBatches``)."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._given = source.batches()

    def __aiter__(self) -> AsyncIterator[FlowBatch]:
        return self

    async def __anext__(self) -> FlowBatch:
        return await anext(self._given)

    async def aclose(self) -> None:
        await self._given.aclose()

    def finish(self) -> None:
        self._source.finish()


class Source:
    """One table, its store, and what comes of them."""

    def __init__(
        self,
        config: ConntrackConfig,
        context: PluginContext,
        store: ConnectionStore[Metadata],
        dumper: Dumper,
        classifier: Classifier,
        denials: Denials | None,
        impairments: Impairments,
    ) -> None:
        self._config = config
        self._context = context
        self._store = store
        self._dumper = dumper
        self._classifier = classifier
        self._maker = BatchMaker(context.registry, node=node_name(config), has_counters=dumper.has_counters)
        self._changed = trio.Event()
        self._polling = trio.Lock()
        self._is_finishing = False
        self._heard: list[Callable[[], Awaitable[None]]] = []  # each waits until what was told has been taken
        self._denials = denials
        self._is_behind = trio.Event()
        self._impairments = impairments
        self._polls = context.counter("polls", "Times the connection tracking table was read.")
        self._failures = context.counter("failed_polls", "Times it could not be read, or not whole.")
        self._entries = context.counter("entries", "Entries read of the table.")
        self._events = context.counter("events", "Beginnings and ends that the kernel told.")
        self._unreadable = context.counter("unreadable_lines", "Lines of a dump that made no sense.")
        self._unanswered = context.counter("unanswered_lookups", "Questions while a look-up was not open.")
        self._untold = context.counter(
            "untold_connections", "Connections that were forgotten before a row told of them."
        )
        self._nearly_full = context.counter("nearly_full_polls", "Times the table was found nearly full.")
        self._lost_events = context.counter("lost_events", "Times the kernel had more to tell than was read.")
        self._figures = Figures(
            context, held=lambda: len(store), denied=lambda: 0 if denials is None else len(denials.store)
        )

    async def poll(self) -> None:
        """Read the table once; a portion at a time, so that the loop is not held.

        Raises:
            OSError: it cannot be read, or not whole; nothing is gone for that.
        """
        async with self._polling:
            began, entries = trio.current_time(), 0
            self._look_at_gateway()
            self._tick(trio.current_time(), time.time_ns())
            forgotten = self._store.forgotten
            for _ in self._store.begin_poll(trio.current_time(), time.time_ns()):
                await trio.lowlevel.checkpoint()
            self._untold.inc(self._store.forgotten - forgotten)
            async with aclosing(self._dumper.dump()) as portions:
                while (portion := await _next_portion(portions)) is not None:
                    for _ in self._store.see(portion.rows):
                        await trio.lowlevel.checkpoint()
                    self._entries.inc(portion.entries)
                    entries += portion.entries
                    if portion.unreadable:
                        self._unreadable.inc(portion.unreadable)
            for _ in self._store.end_poll():
                await trio.lowlevel.checkpoint()
            self._polls.inc()
            self._impairments.tell("poll", "")
            await self._look_at_size(entries, began)
            self._wake()

    async def _look_at_size(self, entries: int, began: float) -> None:
        """A table that is full drops what is new, and nobody but the kernel's log says so."""
        most = await self._dumper.max_connections()
        held = await self._dumper.count() or entries
        self._figures.polled(held, table_size=most, seconds=trio.current_time() - began)
        problem = ""
        if most and held >= _NEARLY_FULL * most:
            problem = f"the connection tracking table is nearly full ({held} of {most}): what is new is dropped"
            self._nearly_full.inc()
            self._context.log.warning("table_nearly_full", connections=held, most=most)
        self._impairments.tell("size", problem)

    def _look_at_gateway(self) -> None:
        """Its addresses may come after the first connections, and change."""
        interface = self._config.gateway_interface
        if not interface:
            return
        found = addresses_of(interface)
        if not found:
            self._context.log.warning("gateway_without_address", interface=interface)
        self._impairments.tell("gateway", "" if found else f"the gateway {interface} has no address, or is not there")
        self._classifier.gateways = found | self._config.gateways

    def _count_unanswered(self) -> None:
        self._unanswered.inc(self._classifier.unanswered)
        self._classifier.unanswered = 0

    def _tick(self, now: float, wall: int) -> None:
        self._count_unanswered()
        self._classifier.seen_at = wall / 1e9
        if self._classifier.external is not None:
            self._classifier.external.tick(now)

    async def poll_for_ever(self) -> None:
        """Every pollInterval; sooner where events were lost."""
        interval = self._config.poll
        at = trio.current_time()
        while True:
            at = max(at + interval, trio.current_time())
            began = trio.current_time()
            with trio.move_on_at(at):
                await self._is_behind.wait()
                # What is lost again and again must not make the table be read without a pause.
                await trio.sleep_until(min(at, began + _SOONEST_POLL))
            self._is_behind = trio.Event()
            try:
                await self.poll()
            except OSError as exc:
                self._poll_failed(exc, next_in=interval)

    def _poll_failed(self, exc: OSError, **facts: float) -> None:
        self._failures.inc()
        self._impairments.tell("poll", f"the connection tracking table cannot be read: {exc}")
        self._context.log.warning("poll_failed", cause=str(exc), **facts)

    async def listen_for_ever(self, events: EventSource) -> None:
        """Take beginnings and ends as they come."""
        self._heard.append(events.wait_emptied)
        async with aclosing(events.readings()) as readings:
            async for reading in readings:
                if reading is None:
                    self._lost_events.inc()
                    self._context.log.warning("events_lost", effect="the table is read at once")
                    self._is_behind.set()
                    continue
                self._events.inc(len(reading.kinds))  # before rows come of them: the books are never behind
                for start in range(0, len(reading.kinds), _EVENTS):
                    now, wall = trio.current_time(), time.time_ns()
                    self._tick(now, wall)
                    for number in range(start, min(start + _EVENTS, len(reading.kinds))):
                        row = reading.rows[number * ROW.size : (number + 1) * ROW.size]
                        is_over = reading.kinds[number] == MessageKind.DESTROYED
                        self._store.saw_event(row, now, wall, is_over=is_over)
                    await trio.lowlevel.checkpoint()
                self._wake()

    async def hear_denials(self, denials: Denials) -> None:
        """Take denied packets as they come."""
        self._heard.append(denials.wait_emptied)
        async with aclosing(denials.readings()) as readings:
            async for _ in readings:
                self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def finish(self) -> None:
        """The program ends: ``batches`` looks once more, gives what is new by that, and ends."""
        self._is_finishing = True
        self._wake()

    async def batches(self) -> AsyncGenerator[FlowBatch, None]:
        """What is due, until the program ends."""
        is_last = False
        while True:
            now = trio.current_time()
            exports = [] if self._denials is None else self._denials.store.expire(now, _ROWS)
            of_passed = self._store.expire(now, _ROWS - len(exports))
            exports += of_passed
            given = 0  # the greatest family
            try:
                for batch in self._maker.batches(map(self._with_late_rules, exports)):
                    given = int(batch.schema.family)
                    yield batch
            finally:
                self._store.take_back(export for export in of_passed if export.row[0] > given)
            if len(exports) == _ROWS:
                continue
            if is_last:
                if not exports and not self._store.is_overdue:
                    return
                await trio.lowlevel.checkpoint()
                continue
            if self._is_finishing:
                await self._look_for_the_last_time()
                is_last = True
                continue
            changed = self._changed
            due = self._next_expiry()
            with trio.move_on_at(float("inf") if due is None else max(due, trio.current_time() + _TICK)):
                await changed.wait()

    async def _look_for_the_last_time(self) -> None:
        with trio.move_on_after(_LAST_LOOK_SECONDS) as scope:
            try:
                await self.poll()
            except OSError as exc:
                self._poll_failed(exc)
            # What is not there any more may have told its last counters, which nobody has read yet.
            for wait_emptied in self._heard:
                await wait_emptied()
        if scope.cancelled_caught:
            self._poll_failed(TimeoutError(f"the last look took longer than {_LAST_LOOK_SECONDS:g} s"))
        stores = (self._store, None if self._denials is None else self._denials.store)
        for store in stores:
            if store is not None:
                for _ in store.hasten(trio.current_time()):
                    await trio.lowlevel.checkpoint()

    def _with_late_rules(self, export: Export[Metadata]) -> Export[Metadata]:
        if not export.meta.missing:
            return export
        meta = self._classifier.with_late_rules(export.meta, export.row, export.first_seen / 1e9)
        return export._replace(meta=meta)

    def _next_expiry(self) -> float | None:
        stores = (self._store, None if self._denials is None else self._denials.store)
        deadlines = [store.next_expiry() for store in stores if store is not None]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)


async def _next_portion(portions: AsyncGenerator[Portion, None]) -> Portion | None:
    """None at the end of the table.

    Raises:
        OSError: it cannot be read, or nothing more comes of it.
    """
    with trio.move_on_after(_SILENCE_SECONDS):
        return await anext(portions, None)
    raise OSError(errno.ETIMEDOUT, f"nothing came of the table for {_SILENCE_SECONDS:g} s")
