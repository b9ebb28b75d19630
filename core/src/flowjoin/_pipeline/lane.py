"""A delivery lane: what lies between the pipeline and one exporter.

One lane's trouble is its own: giving it a batch never waits (but in ``replay``), whatever its exporter does. Rows
leave in one of three ways, each counted: delivered, dead-lettered, dropped at the bound. What a failure means is its
type's business:

* ``RetryableExportError``: the same batch again, for ever, after back-off. So it is when ``export`` hangs: it is
  cancelled, and the exporter opened again.
* ``PermanentExportError``: those rows are dead letters, the others delivered.
* anything else is a bug of the plugin: back-off; after five in a row for one batch it is cut into halves, down to the
  row, and a row that fails alone is a dead letter.

Its rows are in a store: in a spool, which outlives the process, or in memory.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from math import inf

import trio

from flowjoin._model.errors import ConfigError, PermanentExportError, PluginContractError, RetryableExportError, said_by
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.health import Component
from flowjoin._pipeline.lane_head import Part
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.lane_lag import LaneLag
from flowjoin._pipeline.lane_queue import LaneBooks, LaneBounds
from flowjoin._pipeline.lane_store import LaneStore, MemoryStore
from flowjoin._pipeline.refusals import dead_letter_facts, refused_rows, wait_asked_for
from flowjoin._pipeline.spool.settings import SpoolBounds
from flowjoin._pipeline.supervisor import HangError, PluginFailure, keep_open, plugin_code, single_cause
from flowjoin.api._types import Batching, Exporter, Logger

__all__ = ["Lane"]

_UNKNOWN_FAILURES_BEFORE_CUT = 5


class Lane:
    """Batches, holds and delivers rows to one exporter."""

    def __init__(
        self,
        open_exporter: Callable[[], AbstractAsyncContextManager[Exporter]],
        batching: Batching,
        *,
        identity: LaneIdentity,
        component: Component,
        log: Logger,
        bounds: LaneBounds | None = None,
        store: LaneStore | None = None,
        clock: Callable[[], float] = trio.current_time,
        is_added: bool = False,
        patience: float = inf,
    ) -> None:
        """Connect the parts; rows are kept in memory, within the bounds, where no store is given.

        A lane that is added to a running program does not end it when its exporter cannot use its configuration. An
        exporter that gets nowhere for ``patience`` seconds is closed and opened again.
        """
        self._open_exporter = open_exporter
        self._identity = identity
        self._component = component
        self._component.patience.seconds = patience
        self._log = log
        self._clock = clock
        self._store = store or MemoryStore(batching, bounds or LaneBounds(), identity.batch_id)
        self._lag = LaneLag()
        self._rows_in = 0
        self._may_refuse = not is_added
        self._next_store: Callable[[], LaneStore] | None = None  # of the other kind
        self._opened = self._store
        self._before: LaneBooks | None = None  # of the stores that were left
        self._successor: Callable[[], AbstractAsyncContextManager[Exporter]] | None = None
        self._next_patience = patience
        self._tenure = trio.CancelScope()  # of the exporter that is open
        self._life = trio.CancelScope()
        self._ended = trio.Event()
        self._tried = trio.Event()
        self._is_open = False
        self._is_closing = False
        self._is_saving = False
        self._failing_batch = ""  # its id; empty when the last export went well
        self._unknown_failures = 0  # of it, in a row
        self._changed = trio.Event()  # there may be something to deliver
        self._hurry = trio.Event()  # a pause has lost its reason
        self._room = trio.lowlevel.ParkingLot()

    @property
    def name(self) -> str:
        return self._identity.lane

    @property
    def last_batch(self) -> str:
        """The id of the last batch that was closed; of none, it ends with 0."""
        return self._store.last_batch

    def books(self) -> LaneBooks:
        """Where the rows are."""
        books, now = self._store.books(), self._clock()
        if self._before is not None:
            books = self._before + books
        left = books.rows_in + books.restored - books.held
        lag = self._lag.seconds(left - books.restored, now)
        if books.held and left < books.restored and self._store.restored_since is not None:
            lag = now - self._store.restored_since  # what an earlier run has left goes first
        return dataclasses.replace(books, lag=lag)

    @property
    def is_full(self) -> bool:
        """Whether another batch would cost the oldest one."""
        return self._store.is_full

    @property
    def is_degraded(self) -> bool:
        return self._component.is_degraded

    def offer(self, batch: FlowBatch, *, may_drop: bool = True) -> None:
        """Take a batch, at once: where there is no room the oldest batch is dropped and counted.

        Args:
            batch: rows of any schema.
            may_drop: False takes it beyond the bound; for those who called ``wait_room`` before.
        """
        assert not self._is_closing, "a closed lane takes nothing"
        if not len(batch):
            return
        now = self._clock()
        dropped = self._store.put(batch, now, may_drop=may_drop)
        self._rows_in += len(batch)
        self._lag.came(self._rows_in, now)
        self._changed.set()
        if dropped:
            self._log.warning("rows_dropped", rows=dropped)

    async def wait_room(self) -> None:
        """Wait until a batch can be taken without dropping one."""
        await trio.lowlevel.checkpoint()
        while self._store.is_full:
            await self._room.park()

    def close(self) -> None:
        """Nothing more comes: ``run`` delivers what is held, without waiting for intervals, and returns."""
        self._is_closing = True
        self._component.backoff.reset()
        self._changed.set()
        self._hurry.set()

    @property
    def is_saving(self) -> bool:
        """Whether its exporter is closed, and its rows are on their way to where they are kept."""
        return self._is_saving

    def replace(
        self,
        open_exporter: Callable[[], AbstractAsyncContextManager[Exporter]],
        batching: Batching,
        bounds: SpoolBounds | None,
        *,
        grace_seconds: float,
        next_store: Callable[[], LaneStore] | None = None,
        patience: float = inf,
    ) -> None:
        """Close the exporter, within the grace time, and deliver through another one: what is held, and what comes.

        A batch whose ``export`` did not end in time may have arrived, and goes to the new exporter.

        Args:
            open_exporter: the other one.
            batching: of batches from now on.
            bounds: of the spool, if there is one.
            grace_seconds: for the exporter to close.
            next_store: makes a store of the other kind, to go on in as soon as that can be: rows in memory go to the
                disk when the exporter is closed; a spool is left when it is empty. May raise ConfigError. None: the
                kind that it has now is the one that it is to have.
            patience: seconds that the other one may get nowhere.
        """
        self._next_patience = patience
        self._next_store = next_store
        self._successor = open_exporter
        self._store.change(batching, bounds)
        self._component.backoff.reset()
        self._tenure.deadline = min(self._tenure.deadline, self._clock() + grace_seconds)
        self._changed.set()
        self._hurry.set()

    async def run(self) -> None:
        """Deliver until closed and empty.

        Cancellation: what is held stays held; a batch whose ``export`` was cancelled may have arrived.
        """
        with self._life:
            opened: LaneStore | None = None
            while opened is not self._store:
                self._opened = opened = self._store
                async with opened.opened(self._wake):
                    try:
                        await self._serve()
                        while self._store is opened and self._successor is not None:
                            self._move()
                            if self._store is opened:
                                await self._serve()
                    finally:
                        self._is_saving = True
                self._is_saving = False
        self._is_saving = False
        self._ended.set()

    @property
    def is_open(self) -> bool:
        """Whether its exporter is."""
        return self._is_open

    async def wait_tried(self) -> None:
        """Wait until its exporter has been opened, or has failed to for the first time."""
        await self._tried.wait()

    def end_within(self, seconds: float) -> None:
        """Cancel ``run`` when it takes longer."""
        self._life.deadline = self._clock() + seconds

    async def wait_ended(self) -> None:
        """Wait until ``run`` has returned."""
        await self._ended.wait()

    @property
    def is_durable(self) -> bool:
        """Whether what it is given now outlives the process."""
        return self._store.is_durable

    @property
    def _is_leaving(self) -> bool:
        """Whether its store is to be another."""
        return self._next_store is not None

    def _move(self) -> None:
        """Go on in the store of the other kind, if it is time; nothing is awaited, so no row can come between."""
        if self._next_store is None or not (self._is_leaving and self._store.can_be_left):
            return
        make, self._next_store = self._next_store, None
        try:
            store = make()
        except ConfigError as exc:
            self._log.error("store_not_changed", problem=str(exc), consequence="rows are kept where they were")
            return
        now, left = self._clock(), self._store
        for batch in left.hand_on():
            store.put(batch, now, may_drop=False)
        books = left.books()
        self._before = books if self._before is None else self._before + books
        self._store = store
        self._log.info("store_changed", to="spool" if store.is_durable else "memory", rows=store.held)

    async def _serve(self) -> None:
        """Deliver through one exporter, until there is another one, or nothing more to deliver."""
        if self._successor is not None:
            self._open_exporter, self._successor, self._may_refuse = self._successor, None, False
            self._component.patience.seconds = self._next_patience
        self._tenure = trio.CancelScope()
        with self._tenure:
            await keep_open(
                self._component,
                self._open_exporter,
                self._deliver,
                log=self._log,
                on_failure=self._interrupted,
                pause=self._pause,
                is_finished=self._is_over,
                may_refuse=self._may_refuse,
            )
        if self._tenure.cancelled_caught:
            self._log.warning("exporter_cut_short", problem="it did not close within shutdownGracePeriod")
        if self._store.current is not None:
            self._store.keep()

    def _is_replaced(self) -> bool:
        return self._successor is not None

    def _is_over(self) -> bool:
        is_left = self._is_replaced() or self._store is not self._opened
        return is_left or (self._is_closing and not self._store.held)

    async def _deliver(self, exporter: Exporter) -> None:
        if not callable(getattr(exporter, "export", None)):
            problem = f"its open yielded a {type(exporter).__name__}, which has no export"
            raise PluginFailure from PluginContractError(problem, plugin=self.name)
        self._log.info("exporter_opened")
        self._is_open = True
        self._tried.set()
        if not self._failing_batch:
            self._component.opened()
        while not self._is_replaced():
            await trio.lowlevel.checkpoint()
            is_last = self._is_closing  # it may be closed while the store looks
            part = await self._store.begin(self._clock(), flush=is_last or self._is_leaving)
            if part is not None:
                try:
                    await trio.lowlevel.checkpoint()  # making the batch took long, and export begins with long work
                except trio.Cancelled:
                    self._store.keep(was_tried=False)  # these rows did not end the exporter
                    raise
                await self._attempt(exporter, part)
            elif is_last:
                return
            elif self._is_leaving:
                self._move()
                if self._store is not self._opened:
                    return
            elif not (self._is_replaced() or self._is_closing):
                await self._wait_for_rows()

    async def _attempt(self, exporter: Exporter, part: Part) -> None:
        try:
            with plugin_code(), self._component.patience.during("export"):
                await exporter.export(part.rows())
        except PluginFailure as exc:
            if (pause := self._failed(part, single_cause(exc))) is not None:
                await self._store.persist()
                await self._pause(pause)
        else:
            self._store.settle()
            self._succeeded()

    def _wake(self) -> None:
        self._changed.set()
        self._room.unpark_all()

    def _succeeded(self) -> None:
        self._failing_batch = ""
        self._unknown_failures = 0
        if self._component.is_degraded:
            self._log.info("exporter_recovered")
        self._component.recovered()
        self._room.unpark_all()

    def _failed(self, part: Part, exc: Exception) -> float | None:
        """Note a failed ``export``; gives the seconds to wait, None to go on at once."""
        refused = refused_rows(part, exc) if isinstance(exc, PermanentExportError) else None
        if refused is not None:
            self._store.settle(refused, said_by(exc))
            self._succeeded()
            if refused:
                self._log.error("rows_dead_lettered", **dead_letter_facts(part, refused, exc))
            return None
        self._component.failed(exc)
        if not isinstance(exc, RetryableExportError):
            self._failed_unknown(part, exc)
            return self._component.backoff.next()
        self._failed_retryable(part)
        pause, wish = self._component.backoff.next(), wait_asked_for(exc.retry_after)
        pause = pause if wish is None else wish
        self._log.warning("export_retried", batch=part.id, seconds=round(pause, 3), problem=said_by(exc))
        return pause

    def _failed_retryable(self, part: Part) -> None:
        self._store.keep()
        self._failing_batch = part.batch.id
        self._unknown_failures = 0

    def _failed_unknown(self, part: Part, exc: Exception) -> None:
        self._store.keep()
        self._unknown_failures = 1 + (self._unknown_failures if self._failing_batch == part.batch.id else 0)
        self._failing_batch = part.batch.id
        if part.is_whole and self._unknown_failures < _UNKNOWN_FAILURES_BEFORE_CUT:
            self._log.error("export_failed", batch=part.id, exc_info=exc)
        elif len(part) > 1:
            self._store.cut()
            self._log.error("export_failed", batch=part.id, is_cut=True, exc_info=exc)
        else:
            self._store.bury("".join(traceback.format_exception(exc)))
            self._log.error("rows_dead_lettered", **dead_letter_facts(part, {0}, exc))
            self._room.unpark_all()

    def _interrupted(self, exc: Exception) -> None:
        """The exporter's context failed; if an ``export`` was under way, that is how it ended."""
        self._is_open = False
        self._tried.set()
        if (part := self._store.current) is None:
            return
        if isinstance(exc, RetryableExportError | HangError):
            self._failed_retryable(part)
        else:
            self._failed_unknown(part, exc)

    async def _wait_for_rows(self) -> None:
        self._changed = trio.Event()
        deadline = self._store.deadline
        with trio.move_on_at(inf if deadline is None else deadline):
            await self._changed.wait()

    async def _pause(self, seconds: float) -> None:
        await trio.lowlevel.checkpoint()
        self._hurry = trio.Event()
        with trio.move_on_after(0 if self._successor is not None else seconds):
            await self._hurry.wait()
