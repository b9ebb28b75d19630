"""One trio program from the first socket to the last row.

What is opened first closes last: addresses are bound (so that a taken one ends the run at once), then lanes, look-ups
and enrichers open, then messages come in. The end goes the other way: intake stops, every ready flow leaves the
table, the lanes deliver within ``shutdownGracePeriod``. A second signal cancels whatever is still going on.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import trio

from flowjoin._certificates.authority import Authority
from flowjoin._collector.config import CollectorConfig, CollectorLimits
from flowjoin._collector.process import CollectorGroup, open_collector
from flowjoin._config.endpoint import Endpoint
from flowjoin._config.model import Collector, Config
from flowjoin._pipeline.assembly import Pipeline
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.certificates import open_collector_tls, open_own_authority
from flowjoin._pipeline.enrichment import EnricherSlot
from flowjoin._pipeline.lane_keeper import LaneKeeper
from flowjoin._pipeline.lookups import LookupSlot
from flowjoin._pipeline.reload import Reloader
from flowjoin._pipeline.supervisor import watch_hangs
from flowjoin.api._types import Logger

__all__ = ["CLOSING_SECONDS", "Outcome", "Stop", "open_stages", "run_pipeline", "unless_stopped", "watch_signals"]

CLOSING_SECONDS = 3.0  # beyond the grace period, for what is cancelled to close
_WAIT_FOR_TABLES_SECONDS = 30.0  # look-ups and enrichers: after that rows pass them and are counted
_WAIT_FOR_EXPORTERS_SECONDS = 10.0  # before it is said that all is ready
_LAST_MESSAGES_SECONDS = 2.0  # what has arrived when intake stops
_BOOKS_INTERVAL_SECONDS = 60.0
_FINISHING_SHARE = 0.4  # of the grace period: sources that have something left to tell
_PATIENCE_SHARE = 0.5  # of the grace period: working lanes are waited for while the table leaves

Companion = Callable[[Sequence[Endpoint]], Awaitable[None]]


class Stop:
    """The wish to end: the first makes the pipeline drain, the second cancels it."""

    def __init__(self) -> None:
        self._wished = trio.Event()
        self._wished_again = trio.Event()
        self._at_once = trio.CancelScope()

    def wish(self) -> None:
        """Once: drain; twice: stop at once."""
        if self._wished.is_set():
            self._wished_again.set()
            self._at_once.cancel()
        self._wished.set()

    async def wait(self) -> None:
        """Wait for the first wish."""
        await self._wished.wait()

    async def wait_at_once(self) -> None:
        """Wait for the second wish."""
        await self._wished_again.wait()

    @property
    def scope(self) -> trio.CancelScope:
        """Cancelled by the second wish; whoever runs the pipeline enters it."""
        return self._at_once


@asynccontextmanager
async def unless_stopped(stop: Stop) -> AsyncIterator[None]:
    """Around what is given up at a wish to stop."""
    async with trio.open_nursery() as nursery:

        async def give_up() -> None:
            await stop.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(give_up)
        yield
        nursery.cancel_scope.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        books: at the end.
        has_left_the_table: every ready flow did, as far as it went.
        is_complete: and every row its lane, or it is in a spool.
    """

    books: Books
    has_left_the_table: bool
    is_complete: bool

    @property
    def exit_code(self) -> int:
        """0, or 1 when rows were not delivered and nothing keeps them."""
        return 0 if self.is_complete else 1


async def watch_signals(
    stop: Stop,
    log: Logger,
    *,
    reload: Callable[[], None] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Turn SIGTERM and SIGINT into wishes, until cancelled, and SIGHUP into another look at the file."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if number != signal.SIGHUP:
                stop.wish()
            elif reload is not None:
                reload()
            else:
                log.warning("reload_unavailable", problem="there is no configuration file")


async def run_pipeline(
    pipeline: Pipeline,
    config: Config,
    stop: Stop,
    *,
    companions: Sequence[Companion] = (),
    reloader: Reloader | None = None,
    namespace: str = "flow-aggregator",
) -> Outcome:
    """Run until told to stop.

    Args:
        pipeline: assembled from the configuration.
        config: says what to listen on.
        stop: tells when.
        companions: run beside the pipeline from the moment it is ready, with the bound addresses; cancelled
            when intake stops.
        reloader: changes the pipeline while messages come in.
        namespace: of the Pod we run in, for the name in a certificate of our own.

    Raises:
        BindError: an address cannot be had.
    """
    has_left_the_table = False
    with stop.scope:
        async with AsyncExitStack() as stack:
            authority = await stack.enter_async_context(open_own_authority(pipeline, namespace))
            groups = [
                await stack.enter_async_context(_open_collector(pipeline, each, index, authority))
                for index, each in enumerate(config.collectors)
            ]
            pipeline.collector_statistics = lambda: [item for group in groups for item in group.statistics()]
            async with open_stages(pipeline, stop) as keeper:
                async with trio.open_nursery() as reloading:
                    if reloader is not None:
                        reloading.start_soon(reloader.run, keeper, name="reload")
                    await _take_in(pipeline, groups, companions, stop)
                    reloading.cancel_scope.cancel()
                pipeline.allow(None)  # whole tables leave at their own pace
                patience = pipeline.config.shutdown_grace_period * _PATIENCE_SHARE
                pipeline.outlets.be_patient_until(trio.current_time() + patience)
                await (pipeline.aggregation.flush() if pipeline.keeps_flows else pipeline.aggregation.finish())
                has_left_the_table = True
    books = pipeline.books()
    return Outcome(
        books=books, has_left_the_table=has_left_the_table, is_complete=has_left_the_table and not books.unkept
    )


@asynccontextmanager
async def open_stages(pipeline: Pipeline, stop: Stop) -> AsyncIterator[LaneKeeper]:
    """Look-ups, lanes and enrichers, open and running; on leaving, lanes get the grace time to deliver."""
    async with trio.open_nursery() as lookups:
        lookups.start_soon(watch_hangs, pipeline.health)
        for lookup in pipeline.lookups:
            lookups.start_soon(lookup.run, name=f"lookup {lookup.name}")
        await _wait_tried(pipeline.lookups, stop)
        with trio.CancelScope() as draining:
            async with trio.open_nursery() as lanes:
                keeper = LaneKeeper(lanes, pipeline.outlets, pipeline.health, pipeline.log)
                keeper.start()
                async with trio.open_nursery() as enrichers:
                    for enricher in pipeline.enrichers:
                        enrichers.start_soon(enricher.run, name=f"enricher {enricher.name}")
                    await _wait_tried(pipeline.enrichers, stop)
                    try:
                        yield keeper
                    except BaseException:
                        pipeline.allow(CLOSING_SECONDS)
                        raise
                    grace_seconds = pipeline.config.shutdown_grace_period
                    pipeline.allow(grace_seconds + CLOSING_SECONDS)
                    enrichers.cancel_scope.cancel()  # they hold no rows
                pipeline.log.info("draining", rows=pipeline.books().undelivered, seconds=grace_seconds)
                for lane in pipeline.lanes:
                    lane.close()
                draining.deadline = trio.current_time() + grace_seconds
        if draining.cancelled_caught:
            books = pipeline.books()
            write = pipeline.log.error if books.unkept else pipeline.log.warning
            write("grace_period_over", rows_undelivered=books.undelivered, rows_in_no_spool=books.unkept)
        lookups.cancel_scope.cancel()


async def _take_in(
    pipeline: Pipeline, groups: Sequence[CollectorGroup], companions: Sequence[Companion], stop: Stop
) -> None:
    """Collect, take from sources and tick, until told to stop and what had arrived, or was left to tell, is taken."""
    async with trio.open_nursery() as working:
        working.start_soon(pipeline.aggregation.run, name="aggregation")
        working.start_soon(_tell_books, pipeline, name="books")
        async with trio.open_nursery() as sources:
            await _collect(pipeline, groups, companions, stop, sources)
        working.cancel_scope.cancel()


async def _collect(
    pipeline: Pipeline,
    groups: Sequence[CollectorGroup],
    companions: Sequence[Companion],
    stop: Stop,
    sources: trio.Nursery,
) -> None:
    """Collect beside the sources until told to stop, which sources are told too, and what had arrived is taken."""
    with trio.CancelScope() as collecting:
        async with trio.open_nursery() as collectors:
            addresses: list[Endpoint] = []
            for group in groups:
                addresses.extend(await collectors.start(group.run))
            for source in pipeline.sources:
                sources.start_soon(source.run, name=f"source {source.name}")
            async with trio.open_nursery() as beside:
                for companion in companions:
                    beside.start_soon(companion, addresses)
                beside.start_soon(_tell_ready, pipeline, groups)
                await stop.wait()
                pipeline.log.info("stopping")
                pipeline.allow(pipeline.config.shutdown_grace_period + CLOSING_SECONDS)
                beside.cancel_scope.cancel()
            for source in pipeline.sources:
                source.finish(pipeline.config.shutdown_grace_period * _FINISHING_SHARE)
            for group in groups:
                group.stop_intake()
            collecting.deadline = trio.current_time() + _LAST_MESSAGES_SECONDS


async def _tell_ready(pipeline: Pipeline, groups: Sequence[CollectorGroup]) -> None:
    """Once every exporter is open or has failed once; records come in meanwhile, because no lane delays them."""
    lanes = pipeline.outlets.lanes
    with trio.move_on_after(_WAIT_FOR_EXPORTERS_SECONDS):
        for lane in lanes:
            await lane.wait_tried()
    addresses = [f"{item.protocol}://{item.address}" for group in groups for item in group.statistics()]
    waiting = [lane.name for lane in lanes if not lane.is_open]
    pipeline.log.info("ready", addresses=addresses, **({"exporters_not_open": waiting} if waiting else {}))


async def _tell_books(pipeline: Pipeline) -> None:
    while True:
        await trio.sleep(_BOOKS_INTERVAL_SECONDS)
        pipeline.logs.report_suppressed()
        books = pipeline.books()
        pipeline.log.info("books", **books.facts())
        for problem in books.imbalances():
            pipeline.log.error("books_do_not_balance", problem=problem)


async def _wait_tried(slots: Sequence[LookupSlot] | Sequence[EnricherSlot], stop: Stop) -> None:
    """Wait until each is open or has failed once, for a while, and no longer than there is a wish to run."""
    async with unless_stopped(stop):
        with trio.move_on_after(_WAIT_FOR_TABLES_SECONDS):
            for slot in slots:
                await slot.wait_tried()


@asynccontextmanager
async def _open_collector(
    pipeline: Pipeline, collector: Collector, index: int, authority: Authority | None
) -> AsyncIterator[CollectorGroup]:
    log = pipeline.logs.logger(component="collectors", name=f"{collector.protocol} {collector.address}")
    limits = pipeline.config.limits
    config = CollectorConfig(
        protocol=collector.protocol,
        address=collector.address,
        reuse_port=collector.reuse_port,
        limits=CollectorLimits(
            sessions=limits.sessions,
            idle_timeout=limits.session_idle,
            receive_buffer_octets=limits.receive_buffer,
        ),
    )
    async with (
        open_collector_tls(pipeline, collector, index, authority, log) as tls,
        open_collector(
            config,
            ingest=pipeline.ingest,
            close_session=pipeline.kernel.close_session,
            wait_until_ready=pipeline.gate.wait_open,
            log=log,
            tls=tls,
        ) as group,
    ):
        yield group
