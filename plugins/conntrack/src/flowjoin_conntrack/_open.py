"""Opens the source: what is read, how, and what is looked up; what hinders it is said in words."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final, TypeVar

import trio

from flowjoin.api import (
    ConfigError,
    EgressLookup,
    PluginContext,
    PodLookup,
    PodNetworkLookup,
    PolicyLookup,
    ServiceLookup,
)
from flowjoin_conntrack._classifier import PROTOCOLS, Classifier
from flowjoin_conntrack._config import ConntrackConfig, node_name
from flowjoin_conntrack._denials import Denials, LogSource, open_log
from flowjoin_conntrack._dumper import DefaultZoneFirst, Dumper, NetlinkDumper, unset_sysctls
from flowjoin_conntrack._events import EventSource, open_events
from flowjoin_conntrack._exports import Timeouts
from flowjoin_conntrack._external import ExternalCorrelator
from flowjoin_conntrack._impairments import Impairments
from flowjoin_conntrack._memory import Memory
from flowjoin_conntrack._source import Batches, Source
from flowjoin_conntrack._store import ConnectionStore
from flowjoin_conntrack._text_dumpers import ProcDumper, open_ovs

__all__ = ["open_conntrack", "open_source", "set_parameters"]

ProtocolT = TypeVar("ProtocolT")

_OVS_SECONDS: Final = 60  # after which ovs-appctl gives up
# Without ctnetlink the kernel knows no such request, without netfilter no such socket, and there is no such file.
_NOT_THERE: Final = (errno.EINVAL, errno.EPROTONOSUPPORT, errno.ENOENT)
_UNSET: Final = "Kernel parameters that connections' counters and times need, and that could not be switched on."


@asynccontextmanager
async def open_conntrack(config: ConntrackConfig, context: PluginContext) -> AsyncIterator[Batches]:
    """Open the table and begin.

    Raises:
        ConfigError: the table cannot be read here.
        OSError: nor now; later it may be.
    """
    impairments = Impairments(context)
    if config.dumper != "ovs-appctl":
        set_parameters(context, impairments)
    dumper = await _open_dumper(config, context, config.zones)
    if not dumper.has_counters:
        context.log.warning("no_counters", cause="Open vSwitch's data path in user space counts nothing")
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


def set_parameters(context: PluginContext, impairments: Impairments) -> None:
    """Have the kernel keep counters and times; what cannot be had is said, and is no reason not to go on."""
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
            return await open_ovs(zones, command)
        except (FileNotFoundError, PermissionError) as exc:
            # Where the tool is there and Open vSwitch is not, that may begin later: the next attempt succeeds.
            problem = f"ovs-appctl cannot be run: {exc}; install Open vSwitch's tools, or choose another dumper"
            raise ConfigError(problem, path=context.name) from exc
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
) -> AsyncIterator[Batches]:
    """Read the table once, then for ever.

    Raises:
        ConfigError: this process may not read it.
        OSError: it cannot be read now.
    """
    classifier = _classifier(config, context)
    timeouts = Timeouts(active=config.active, idle=config.idle, stale=config.stale)
    denials = None if log is None else Denials(log, context, timeouts, classifier)
    memory = Memory(context, config.dumper)
    store = ConnectionStore(timeouts, classifier, await memory.recall())
    source = Source(config, context, store, dumper, classifier, denials, impairments or Impairments(context))
    with _refusal(config, context):
        await source.poll()  # what cannot be read is said at once
    await memory.forget()
    try:
        async with trio.open_nursery() as nursery:
            if denials is not None:
                nursery.start_soon(source.hear_denials, denials)
            nursery.start_soon(source.poll_for_ever)
            if events is not None:
                nursery.start_soon(source.listen_for_ever, events)
            yield Batches(source)
            nursery.cancel_scope.cancel()
    finally:
        await memory.keep(store.told())


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
        gateways=config.gateways,
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
