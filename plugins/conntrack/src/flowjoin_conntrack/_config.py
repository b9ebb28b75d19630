"""What the operator writes under ``sources: [{type: conntrack, …}]``."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from flowjoin.api import Bounds, ConfigError, Duration, Key
from flowjoin_conntrack._verdict import DROP, REJECT, Verdict, VerdictRule

__all__ = ["ConntrackConfig", "DeniedConfig", "DeniedRule", "node_name"]

_SMALLEST_STALE: Final = 300.0
_POLL: Final = 5.0
_POLL_WITH_EVENTS: Final = 60.0
_LONGEST_INTERFACE: Final = 15  # octets: IFNAMSIZ, less its end


def _check_addresses(key: str, texts: tuple[str, ...]) -> None:
    for index, text in enumerate(texts):
        try:
            ipaddress.ip_address(text)
        except ValueError:
            problem = f'"{text[:60]}" is no address; write one such as 10.10.0.1'
            raise ConfigError(problem, path=f"{key}[{index}]") from None


def _check_networks(key: str, texts: tuple[str, ...]) -> None:
    for index, text in enumerate(texts):
        try:
            ipaddress.ip_network(text)
        except ValueError:
            problem = f'"{text[:60]}" is no network; write one such as {_network_of(text)}'
            raise ConfigError(problem, path=f"{key}[{index}]") from None


def _network_of(text: str) -> str:
    """The network that was meant where an address in it was written, else an example."""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return "10.10.0.0/24"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedRule:
    """What packets with a prefix or a mark say."""

    prefix: Annotated[str, "the logging rule's prefix begins so"] = ""
    mark: Annotated[int | None, Bounds(0, 0xFFFFFFFF), "the packet's mark, under mask"] = None
    mask: Annotated[int, Bounds(0, 0xFFFFFFFF)] = 0xFFFFFFFF
    direction: Annotated[
        Literal["ingress", "egress"] | None, "of the policy; default: by where the packet was, and whose Pods there are"
    ] = None
    action: Literal["drop", "reject"] = "drop"
    rule: Annotated[int, Bounds(0, 0xFFFFFFFF), "the number to ask the policy look-up for"] = 0
    implicit: Annotated[bool, "no rule let it pass, and a Kubernetes policy isolates the Pod"] = False

    def __post_init__(self) -> None:
        if not self.prefix and self.mark is None:
            raise ValueError('a rule of denied packets needs "prefix" or "mark"')


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedConfig:
    """The keys under ``denied``."""

    group: Annotated[int, Bounds(0, 65535), "of the rules that log what they deny: log group N"]
    rules: Annotated[tuple[DeniedRule, ...], "what prefixes and marks mean; the first that fits counts"] = ()
    max_connections: Annotated[int, Bounds(1), "held; packets of more are counted, and not kept"] = 65536
    copy_range: Annotated[int, Bounds(48, 2048), "octets that the kernel gives of each packet"] = 128
    batch: Annotated[int, Bounds(1, 1000), "packets that the kernel gathers before it gives them"] = 64
    flush_interval: Annotated[Duration, Bounds(0.01, 60), "and how long it waits for as many"] = Duration(0.2)

    @property
    def verdict_rules(self) -> tuple[VerdictRule, ...]:
        """The rules, as packets are compared with them."""
        return tuple(
            VerdictRule(
                prefix=rule.prefix,
                mark=rule.mark,
                mask=rule.mask,
                verdict=Verdict(
                    action=REJECT if rule.action == "reject" else DROP,
                    direction=rule.direction,
                    rule_id=rule.rule,
                    is_implicit=rule.implicit,
                ),
            )
            for rule in self.rules
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConntrackConfig:
    """The keys of the source."""

    zones: Annotated[
        tuple[Annotated[int, Bounds(0, 65535)], ...],
        "conntrack zones; none means all. Antrea's Pods are in 65520 (IPv4) and 65510 (IPv6)",
    ] = ()
    dumper: Annotated[
        Literal["netlink", "ovs-appctl", "proc"],
        "how the table is read: the kernel's by netlink or as /proc/net/nf_conntrack, or Open vSwitch's",
    ] = "netlink"
    ovs_target: Annotated[str, "ovs-appctl asks this control socket or daemon; default: ovs-vswitchd"] = ""
    poll_interval: Annotated[
        Duration | None, Bounds(1), "how often the table is read; default: 5s, with events 60s"
    ] = None
    active_timeout: Annotated[
        Duration, Bounds(0), "a connection that changes is exported so often; never below pollInterval"
    ] = Duration(5.0)
    idle_timeout: Annotated[
        Duration, Bounds(0), "one that is still for so long is exported and left alone; never below pollInterval"
    ] = Duration(15.0)
    events: Annotated[bool, "hear of ends at once, so that connections shorter than a poll are not missed"] = False
    protocols: Annotated[
        tuple[Literal["tcp", "udp", "sctp", "icmp"], ...] | None, "keep these alone; absent means all"
    ] = None
    pods_only: Annotated[bool, "leave out connections without a Pod at either end"] = False
    node: Annotated[str, "this Node's name; default: $NODE_NAME, else the host's name"] = ""
    gateway_addresses: Annotated[tuple[str, ...], "of this Node's Antrea gateway; what goes there is left out"] = ()
    gateway_interface: Annotated[str, "the same, by the interface that has them, such as antrea-gw0"] = ""
    service_networks: Annotated[
        tuple[str, ...], Key("serviceCIDRs"), "left out as destinations; give it where Antrea proxy is off"
    ] = ()
    pod_networks: Annotated[tuple[str, ...], Key("podCIDRs"), "whose addresses are Pods, for flowType"] = ()
    denied: Annotated[DeniedConfig | None, "connections that rules deny and log"] = None
    from_external: Annotated[
        bool, "find in zone 0 who began what came from outside the cluster, and what was asked for; needs zones"
    ] = False
    network_policy_only: Annotated[
        bool, "Antrea only enforces policies here: flowType says within or between Nodes, and nothing else"
    ] = False

    def __post_init__(self) -> None:
        if self.events and self.dumper != "netlink":
            raise ConfigError('needs "dumper: netlink"; leave one of them out', path="events")
        if self.from_external and (not self.zones or 0 in self.zones):
            raise ConfigError('needs "zones", those of the Pods; zone 0 is read besides', path="fromExternal")
        if len(self.gateway_interface.encode()) > _LONGEST_INTERFACE:
            problem = f"no interface's name is longer than {_LONGEST_INTERFACE} letters; write one such as antrea-gw0"
            raise ConfigError(f'"{self.gateway_interface[:60]}": {problem}', path="gatewayInterface")
        _check_addresses("gatewayAddresses", self.gateway_addresses)
        _check_networks("serviceCIDRs", self.service_networks)
        _check_networks("podCIDRs", self.pod_networks)

    @property
    def gateways(self) -> frozenset[str]:
        """The gateway's addresses as connections have theirs: canonical."""
        return frozenset(str(ipaddress.ip_address(text)) for text in self.gateway_addresses)

    @property
    def poll(self) -> float:
        """Seconds between two polls."""
        if self.poll_interval is not None:
            return float(self.poll_interval)
        return _POLL_WITH_EVENTS if self.events else _POLL

    @property
    def active(self) -> float:
        """Seconds; a poll cannot see more often."""
        return max(float(self.active_timeout), self.poll)

    @property
    def idle(self) -> float:
        """Seconds; a poll cannot see more often."""
        return max(float(self.idle_timeout), self.poll)

    @property
    def stale(self) -> float:
        """Seconds after which a connection that is gone and not exported is forgotten."""
        longest = max(self.active, self.idle)
        return 2 * longest if longest > _SMALLEST_STALE else _SMALLEST_STALE


def node_name(config: ConntrackConfig) -> str:
    """This Node's name."""
    return config.node or os.environ.get("NODE_NAME") or os.uname().nodename
