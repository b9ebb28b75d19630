"""The source: polls, hears of ends, and gives what is due."""

from __future__ import annotations

import errno
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Final, TypeVar

import trio

from flowjoin.api import ConfigError, FlowBatch, PluginContext, PodLookup, PolicyLookup, ServiceLookup
from flowjoin_conntrack._columns import BatchMaker
from flowjoin_conntrack._config import ConntrackConfig, node_name
from flowjoin_conntrack._denials import Denials, open_log
from flowjoin_conntrack._dumper import Dumper, NetlinkDumper, open_events, unset_sysctls
from flowjoin_conntrack._gateway import addresses_of
from flowjoin_conntrack._metadata import PROTOCOLS, Classifier, Metadata
from flowjoin_conntrack._netlink import MessageKind
from flowjoin_conntrack._store import ConnectionStore, Timeouts

__all__ = ["open_conntrack", "open_source"]

ProtocolT = TypeVar("ProtocolT")

_ROWS: Final = 4096  # of one batch
_TICK: Final = 0.1  # exports that fall due together go together


@asynccontextmanager
async def open_conntrack(config: ConntrackConfig, context: PluginContext) -> AsyncIterator[AsyncIterator[FlowBatch]]:
    """Open the kernel's table and begin.

    Raises:
        ConfigError: the table cannot be read here.
    """
    missing = unset_sysctls()
    if missing:
        context.log.warning("kernel_parameters_not_set", parameters=missing, effect="no counters or no start times")
    async with open_source(config, context, NetlinkDumper(config.zones)) as batches:
        yield batches


@asynccontextmanager
async def open_source(
    config: ConntrackConfig, context: PluginContext, dumper: Dumper
) -> AsyncIterator[AsyncIterator[FlowBatch]]:
    """Read the table once, then for ever.

    Raises:
        ConfigError: this process may not read it.
    """
    classifier = _classifier(config, context)
    timeouts = Timeouts(active=config.active, idle=config.idle, stale=config.stale)
    source = _Source(config, context, ConnectionStore(timeouts, classifier), dumper, classifier)
    try:
        await source.poll()  # what cannot be read is said at once
    except PermissionError as exc:
        problem = f"the connection tracking table cannot be read: {exc}; run with CAP_NET_ADMIN"
        raise ConfigError(problem, path=context.name) from exc
    async with AsyncExitStack() as stack:
        if config.denied is not None:
            source.denials = Denials(config.denied, context, timeouts, classifier)
            log = await stack.enter_async_context(open_log(config.denied, context))
        nursery = await stack.enter_async_context(trio.open_nursery())
        if source.denials is not None:
            nursery.start_soon(source.hear_denials, source.denials, log)
        nursery.start_soon(source.poll_for_ever)
        if config.events:
            nursery.start_soon(source.listen_for_ever)
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
        services=optional(ServiceLookup),
        policies=optional(PolicyLookup),
        network_policy_only=config.network_policy_only,
    )


class _Source:
    """One table, its store, and what comes of them."""

    def __init__(
        self,
        config: ConntrackConfig,
        context: PluginContext,
        store: ConnectionStore[Metadata],
        dumper: Dumper,
        classifier: Classifier,
    ) -> None:
        self._config = config
        self._context = context
        self._store = store
        self._dumper = dumper
        self._classifier = classifier
        self._maker = BatchMaker(context.registry, node=node_name(config), has_counters=dumper.has_counters)
        self._changed = trio.Event()
        self.denials: Denials | None = None
        self._polls = context.counter("polls", "Times the connection tracking table was read.")
        self._failures = context.counter("failed_polls", "Times it could not be read, or not whole.")
        self._entries = context.counter("entries", "Entries read of the table.")
        self._events = context.counter("events", "Beginnings and ends that the kernel told.")
        self._lost_events = context.counter("lost_events", "Times the kernel had more to tell than was read.")

    async def poll(self) -> None:
        """Read the table once; a portion at a time, so that the loop is not held.

        Raises:
            OSError: it cannot be read; what is known stays as it is.
        """
        self._look_at_gateway()
        portions = [rows async for rows in self._dumper.dump()]
        for _ in self._store.begin_poll(trio.current_time(), time.time_ns()):
            await trio.lowlevel.checkpoint()
        for rows in portions:
            self._store.see(rows)
            self._entries.inc(len(rows))
            await trio.lowlevel.checkpoint()
        self._polls.inc()
        self._wake()

    def _look_at_gateway(self) -> None:
        """Its addresses may come after the first connections, and change."""
        interface = self._config.gateway_interface
        if not interface:
            return
        found = addresses_of(interface)
        if not found:
            self._context.log.warning("gateway_without_address", interface=interface)
        self._classifier.gateways = found | frozenset(self._config.gateway_addresses)

    async def poll_for_ever(self) -> None:
        """Every pollInterval."""
        interval = float(self._config.poll_interval)
        at = trio.current_time()
        while True:
            at = max(at + interval, trio.current_time())
            await trio.sleep_until(at)
            try:
                await self.poll()
            except OSError as exc:
                self._failures.inc()
                self._context.log.warning("poll_failed", cause=str(exc), next_in=interval)

    async def listen_for_ever(self) -> None:
        """Take beginnings and ends as they come."""
        while True:
            try:
                async with open_events() as events:
                    async for portion in events:
                        now, wall = trio.current_time(), time.time_ns()
                        for kind, row in portion:
                            self._store.saw_event(row, now, wall, is_over=kind is MessageKind.DESTROYED)
                        self._events.inc(len(portion))
                        self._wake()
            except OSError as exc:
                if exc.errno != errno.ENOBUFS:
                    raise
                self._lost_events.inc()
                self._context.log.warning("events_lost", cause=str(exc), effect="seen at the next poll")

    async def hear_denials(self, denials: Denials, log: trio.socket.SocketType) -> None:
        """Take denied packets as they come."""
        async with aclosing(denials.readings(log)) as readings:
            async for _ in readings:
                self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def batches(self) -> AsyncIterator[FlowBatch]:
        """What is due, for ever."""
        while True:
            now = trio.current_time()
            exports = [] if self.denials is None else self.denials.store.expire(now, _ROWS)
            exports += self._store.expire(now, _ROWS - len(exports))
            for batch in self._maker.batches(exports):
                yield batch
            if len(exports) == _ROWS:
                continue
            changed = self._changed
            due = self._next_expiry()
            with trio.move_on_at(float("inf") if due is None else max(due, trio.current_time() + _TICK)):
                await changed.wait()

    def _next_expiry(self) -> float | None:
        stores = (self._store, None if self.denials is None else self.denials.store)
        deadlines = [store.next_expiry() for store in stores if store is not None]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)
