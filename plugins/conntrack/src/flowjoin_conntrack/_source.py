"""The source: polls, hears of ends, and gives what is due."""

from __future__ import annotations

import errno
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import Final, TypeVar

import trio

from flowjoin.api import (
    ConfigError,
    EgressLookup,
    FlowBatch,
    PluginContext,
    PodLookup,
    PodNetworkLookup,
    PolicyLookup,
    ServiceLookup,
)
from flowjoin_conntrack._columns import BatchMaker
from flowjoin_conntrack._config import ConntrackConfig, node_name
from flowjoin_conntrack._denials import Denials, LogSource, open_log
from flowjoin_conntrack._dumper import DefaultZoneFirst, Dumper, NetlinkDumper, Portion, unset_sysctls
from flowjoin_conntrack._entry import ROW
from flowjoin_conntrack._events import EventSource, open_events
from flowjoin_conntrack._external import ExternalCorrelator
from flowjoin_conntrack._figures import Figures
from flowjoin_conntrack._gateway import addresses_of
from flowjoin_conntrack._impairments import Impairments
from flowjoin_conntrack._metadata import PROTOCOLS, Classifier, Metadata
from flowjoin_conntrack._netlink import MessageKind
from flowjoin_conntrack._store import ConnectionStore, Export, Timeouts
from flowjoin_conntrack._text_dumpers import ProcDumper, open_ovs

__all__ = ["open_conntrack", "open_source"]

ProtocolT = TypeVar("ProtocolT")

_ROWS: Final = 256  # of one batch: some milliseconds
_EVENTS: Final = 64  # taken in one go
_OVS_SECONDS: Final = 60  # after which ovs-appctl gives up
_SILENCE_SECONDS: Final = 90.0  # in the middle of a table; longer than any tool takes
_SOONEST_POLL: Final = 1.0  # after the one before
# Without ctnetlink the kernel knows no such request, without netfilter no such socket, and there is no such file.
_NOT_THERE: Final = (errno.EINVAL, errno.EPROTONOSUPPORT, errno.ENOENT)
_UNSET: Final = "Kernel parameters that connections' counters and times need, and that could not be switched on."
_NEARLY_FULL: Final = 0.95
_TICK: Final = 0.1  # exports that fall due together go together


@asynccontextmanager
async def open_conntrack(config: ConntrackConfig, context: PluginContext) -> AsyncIterator[AsyncIterator[FlowBatch]]:
    """Open the table and begin.

    Raises:
        ConfigError: the table cannot be read here.
    """
    impairments = Impairments(context)
    if config.dumper != "ovs-appctl":
        _set_parameters(context, impairments)
    dumper = await _open_dumper(config, context, config.zones)
    if config.from_external:
        dumper = DefaultZoneFirst(await _open_dumper(config, context, (0,)), dumper)
    async with AsyncExitStack() as stack:
        events = None
        if config.events:
            # Before the first poll, so that what begins while the table is read is not missed.
            with _refusal(config, context):
                events = stack.enter_context(open_events((0, *config.zones) if config.from_external else config.zones))
        log = None
        if config.denied is not None:
            log = await stack.enter_async_context(open_log(config.denied, context))
        async with open_source(config, context, dumper, events, log, impairments) as batches:
            yield batches


def _set_parameters(context: PluginContext, impairments: Impairments) -> None:
    missing = unset_sysctls()
    if not missing:
        return
    context.log.warning("kernel_parameters_not_set", parameters=missing, effect="no counters or no start times")
    context.counter("kernel_parameters_not_set", _UNSET).inc(len(missing))
    names = " and ".join(missing)
    impairments.tell("parameters", f"{names} could not be set to 1: connections have no counters or no start times")


async def _open_dumper(config: ConntrackConfig, context: PluginContext, zones: tuple[int, ...]) -> Dumper:
    if config.dumper == "ovs-appctl":
        command = ("ovs-appctl", f"--timeout={_OVS_SECONDS}", *(("-t", config.ovs_target) if config.ovs_target else ()))
        try:
            dumper = await open_ovs(zones, command)
        except OSError as exc:
            raise ConfigError(f"Open vSwitch cannot be asked: {exc}", path=context.name) from exc
        if not dumper.has_counters:
            context.log.warning("no_counters", cause="Open vSwitch's data path in user space counts nothing")
        return dumper
    return ProcDumper(zones) if config.dumper == "proc" else NetlinkDumper(zones)


@contextmanager
def _refusal(config: ConntrackConfig, context: PluginContext) -> Iterator[None]:
    """Around the first look at the table: what the operator must mend is said in words."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.EPERM, errno.EACCES):
            need = "as root" if config.dumper == "proc" else "with CAP_NET_ADMIN"
            problem = f"the connection tracking table cannot be read: {exc.strerror}; run {need}"
            raise ConfigError(problem, path=context.name) from exc
        if exc.errno in _NOT_THERE:
            problem = (
                "this kernel has no connection tracking to be read; load nf_conntrack_netlink, or nf_conntrack for proc"
            )
            raise OSError(exc.errno, problem) from exc  # once it is loaded, the next attempt succeeds
        raise


@asynccontextmanager
async def open_source(
    config: ConntrackConfig,
    context: PluginContext,
    dumper: Dumper,
    events: EventSource | None = None,
    log: LogSource | None = None,
    impairments: Impairments | None = None,
) -> AsyncIterator[AsyncIterator[FlowBatch]]:
    """Read the table once, then for ever.

    Raises:
        ConfigError: this process may not read it.
    """
    classifier = _classifier(config, context)
    timeouts = Timeouts(active=config.active, idle=config.idle, stale=config.stale)
    denials = None if log is None else Denials(log, context, timeouts, classifier)
    source = _Source(
        config,
        context,
        ConnectionStore(timeouts, classifier),
        dumper,
        classifier,
        denials,
        impairments or Impairments(context),
    )
    with _refusal(config, context):
        await source.poll()  # what cannot be read is said at once
    async with trio.open_nursery() as nursery:
        if denials is not None:
            nursery.start_soon(source.hear_denials, denials)
        nursery.start_soon(source.poll_for_ever)
        if events is not None:
            nursery.start_soon(source.listen_for_ever, events)
        yield source.batches()
        nursery.cancel_scope.cancel()


def _classifier(config: ConntrackConfig, context: PluginContext) -> Classifier:
    def optional(protocol: Callable[..., ProtocolT]) -> ProtocolT | None:
        try:
            return context.lookup(protocol)
        except ConfigError:
            return None

    names = config.protocols
    numbers = None if names is None else {PROTOCOLS[name] for name in names if name != "icmp"}
    if numbers is not None and "icmp" in (names or ()):
        numbers |= {1, 58}
    return Classifier(
        node=node_name(config),
        zones=frozenset(config.zones),
        protocols=None if numbers is None else frozenset(numbers),
        gateways=frozenset(config.gateway_addresses),
        service_networks=config.service_networks,
        pod_networks=config.pod_networks,
        pods_only=config.pods_only,
        pods=optional(PodLookup),
        networks=optional(PodNetworkLookup),
        services=optional(ServiceLookup),
        policies=optional(PolicyLookup),
        egresses=optional(EgressLookup),
        network_policy_only=config.network_policy_only,
        external=ExternalCorrelator() if config.from_external else None,
    )


async def _next_portion(portions: AsyncGenerator[Portion, None]) -> Portion | None:
    """None at the end of the table.

    Raises:
        OSError: it cannot be read, or nothing more comes of it.
    """
    with trio.move_on_after(_SILENCE_SECONDS):
        return await anext(portions, None)
    raise OSError(errno.ETIMEDOUT, f"nothing came of the table for {_SILENCE_SECONDS:g} s")


class _Source:
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
        self._denials = denials
        self._is_behind = trio.Event()
        self._impairments = impairments
        self._polls = context.counter("polls", "Times the connection tracking table was read.")
        self._failures = context.counter("failed_polls", "Times it could not be read, or not whole.")
        self._entries = context.counter("entries", "Entries read of the table.")
        self._events = context.counter("events", "Beginnings and ends that the kernel told.")
        self._unreadable = context.counter("unreadable_lines", "Lines of a dump that made no sense.")
        self._unanswered = context.counter("unanswered_lookups", "Questions while a look-up was not open.")
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
        began, entries = trio.current_time(), 0
        self._look_at_gateway()
        self._tick(trio.current_time(), time.time_ns())
        for _ in self._store.begin_poll(trio.current_time(), time.time_ns()):
            await trio.lowlevel.checkpoint()
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
        held = max(entries, await self._dumper.count())
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
        self._classifier.gateways = found | frozenset(self._config.gateway_addresses)

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
                self._failures.inc()
                self._impairments.tell("poll", f"the connection tracking table cannot be read: {exc}")
                self._context.log.warning("poll_failed", cause=str(exc), next_in=interval)

    async def listen_for_ever(self, events: EventSource) -> None:
        """Take beginnings and ends as they come."""
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
        async with aclosing(denials.readings()) as readings:
            async for _ in readings:
                self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def batches(self) -> AsyncIterator[FlowBatch]:
        """What is due, for ever."""
        while True:
            now = trio.current_time()
            exports = [] if self._denials is None else self._denials.store.expire(now, _ROWS)
            exports += self._store.expire(now, _ROWS - len(exports))
            for batch in self._maker.batches(map(self._with_late_rules, exports)):
                yield batch
            if len(exports) == _ROWS:
                continue
            changed = self._changed
            due = self._next_expiry()
            with trio.move_on_at(float("inf") if due is None else max(due, trio.current_time() + _TICK)):
                await changed.wait()

    def _with_late_rules(self, export: Export[Metadata]) -> Export[Metadata]:
        if not export.meta.missing:
            return export
        first_seen = (export.first_seen or export.last_seen) / 1e9
        return export._replace(meta=self._classifier.with_late_rules(export.meta, export.row, first_seen))

    def _next_expiry(self) -> float | None:
        stores = (self._store, None if self._denials is None else self._denials.store)
        deadlines = [store.next_expiry() for store in stores if store is not None]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)
