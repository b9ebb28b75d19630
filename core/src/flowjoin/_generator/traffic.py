"""Plans flows as the agents of a cluster see them; the same configuration gives the same flows.

Strategy: kinds and families are dealt out by their shares, then shuffled; a source address never uses
a port twice, so that flow keys are distinct by construction.

Invariants: both halves of a flow end at the same instant in each round, so that their order does not
matter to a collector; totals never shrink; a half's end moves on with each round.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from random import Random
from typing import Final

from flowjoin._generator.cluster import KUBERNETES_POLICY, Cluster, Pod, Policy, make_cluster
from flowjoin._generator.config import TrafficConfig
from flowjoin._generator.flow import Flow, FlowKind, Half, Update
from flowjoin._generator.shares import flows_of_kinds
from flowjoin._model.flow_key import FlowKey
from flowjoin._model.flow_schema import AddressFamily
from flowjoin._model.information_element import Value

__all__ = ["Traffic"]

_ICMP, _TCP, _UDP, _ICMPV6 = 1, 6, 17, 58
_INTRA_NODE, _INTER_NODE, _TO_EXTERNAL, _FROM_EXTERNAL = 1, 2, 3, 4
_ALLOW, _DROP, _REJECT = 1, 2, 3
_IDLE, _ACTIVE, _END_OF_FLOW = 1, 2, 3  # flowEndReason
_EPHEMERAL_PORTS: Final = range(32768, 61000)  # Linux
_SNAT_PORTS: Final = range(1024, 65536)
_DNS_PORT: Final = 53
_DNS_OVER_TCP_SHARE: Final = 0.03  # answers that are too long for UDP
_STEP_SECONDS: Final = 5  # the agent's active timeout


class _Ports:
    """Deals out ports so that no source address uses one twice."""

    def __init__(self, ports: range) -> None:
        self._ports = ports
        self._used: dict[str, int] = {}

    def take(self, address: str) -> int | None:
        used = self._used.get(address, 0)
        if used == len(self._ports):
            return None
        self._used[address] = used + 1
        # A stride without a common divisor visits every port once; each address begins somewhere else.
        return self._ports[(used * 10_007 + zlib.crc32(address.encode())) % len(self._ports)]


class Traffic:
    """Iterable once: the flows, in an order without pattern."""

    def __init__(self, config: TrafficConfig, *, ends_at: int) -> None:
        """Make the cluster.

        Args:
            config: what to make.
            ends_at: seconds since the Unix epoch when the last records of all flows end.
        """
        self._config = config
        self._random = Random(config.seed)  # noqa: S311 - traffic, no secrets
        self._ends_at = ends_at
        self._ephemeral = _Ports(_EPHEMERAL_PORTS)
        self._snat = _Ports(_SNAT_PORTS)
        self._pinged: set[tuple[str, str]] = set()
        self.cluster: Final[Cluster] = make_cluster(self._random, config.nodes)
        self._clients = [[pod for pod in node.pods if pod.calls] for node in self.cluster.nodes]
        self._exposed = [[pod for pod in node.pods if pod.is_exposed] for node in self.cluster.nodes]
        self._by_application: list[dict[str, list[Pod]]] = []
        for node in self.cluster.nodes:
            pods: dict[str, list[Pod]] = {}
            for pod in node.pods:
                pods.setdefault(pod.application, []).append(pod)
            self._by_application.append(pods)

    def __iter__(self) -> Iterator[Flow]:
        makers = {
            FlowKind.INTRA_NODE: self._between_pods,
            FlowKind.INTER_NODE: self._between_pods,
            FlowKind.TO_EXTERNAL: self._to_external,
            FlowKind.FROM_EXTERNAL: self._from_external,
            FlowKind.FROM_EXTERNAL_FORWARDED: self._from_external,
            FlowKind.EGRESS_DENIED: self._denied,
            FlowKind.INGRESS_REJECTED: self._denied,
            FlowKind.INGRESS_DROPPED: self._denied,
        }
        for kind, family in self._dealt():
            yield makers[kind](kind, family)

    def _dealt(self) -> list[tuple[FlowKind, AddressFamily]]:
        dealt: list[tuple[FlowKind, AddressFamily]] = []
        for kind, count in flows_of_kinds(self._config).items():
            in_ipv6 = round(count * self._config.ipv6_share)
            dealt.extend((kind, AddressFamily.IPV6) for _ in range(in_ipv6))
            dealt.extend((kind, AddressFamily.IPV4) for _ in range(count - in_ipv6))
        self._random.shuffle(dealt)
        return dealt

    # Each maker gives the halves their elements; _updates gives them their counts.

    def _between_pods(self, kind: FlowKind, family: AddressFamily) -> Flow:
        source, destination = self._two_pods(same_node=kind is FlowKind.INTRA_NODE)
        protocol = self._protocol(source, destination, family)
        common = self._transport(source.addresses[family], destination, family, protocol)
        common["flowType"] = _INTRA_NODE if kind is FlowKind.INTRA_NODE else _INTER_NODE
        source_side = self._pod("source", source) | self._egress_policy(source, _ALLOW)
        if protocol in (_TCP, _UDP) and self._random.random() < 0.6:
            source_side |= self._service(destination, family)  # only the source node translates its address
        destination_side = self._pod("destination", destination) | self._ingress_policy(destination, _ALLOW)
        if kind is FlowKind.INTRA_NODE:
            sides = [(source.node, common | source_side | destination_side)]
        else:
            sides = [(source.node, common | source_side), (destination.node, common | destination_side)]
        return self._flow(kind, family, common, sides)

    def _to_external(self, kind: FlowKind, family: AddressFamily) -> Flow:
        source = self._random.choice(self._random.choice(self._clients))
        common = self._endpoints(
            source.addresses[family],
            self._random.choice(self.cluster.clients[family]),
            _TCP,
            self._random.choice((443, 80)),
        )
        common["flowType"] = _TO_EXTERNAL
        elements = common | self._pod("source", source) | self._egress_policy(source, _ALLOW)
        if self._random.random() < 0.5:
            gateway = self._random.choice(self.cluster.nodes)
            elements |= {
                "egressName": f"egress-{source.namespace}",
                "egressIP": "192.0.2.77" if family is AddressFamily.IPV4 else "2001:db8:77::77",
                "egressNodeName": gateway.name,
            }
        return self._flow(kind, family, common, [(source.node, elements)])

    def _from_external(self, kind: FlowKind, family: AddressFamily) -> Flow:
        destination = self._random.choice(self._random.choice(self._exposed))
        client = self._random.choice(self.cluster.clients[family])
        common = self._transport(client, destination, family, _TCP)
        common["flowType"] = _FROM_EXTERNAL
        inside = self._pod("destination", destination) | self._ingress_policy(destination, _ALLOW)
        service = self._service(destination, family)
        if kind is FlowKind.FROM_EXTERNAL:
            return self._flow(kind, family, common, [(destination.node, common | inside | service)])
        entry, port = self._snat_port(destination.node, family)
        gateway = self.cluster.nodes[entry].gateways[family]
        outer = common | service | {"proxySnatIPv4": gateway, "proxySnatPort": port}
        inner = common | inside
        inner |= {"sourceIPv4Address": gateway, "sourceTransportPort": port, "flowType": _INTER_NODE}
        # Both halves meet under the address and port that the destination node sees.
        return self._flow(kind, family, inner, [(entry, outer), (destination.node, inner)])

    def _denied(self, kind: FlowKind, family: AddressFamily) -> Flow:
        source, destination = self._two_pods(same_node=False, may_be_dns=False)
        common = self._transport(source.addresses[family], destination, family, _TCP)
        common["flowType"] = _INTER_NODE
        source_side = common | self._pod("source", source)
        destination_side = common | self._pod("destination", destination)
        match kind:
            case FlowKind.EGRESS_DENIED:
                action = self._random.choice((_DROP, _REJECT))
                sides = [(source.node, source_side | self._egress_policy(source, action))]
            case FlowKind.INGRESS_REJECTED:
                sides = [(destination.node, destination_side | self._ingress_policy(destination, _REJECT))]
            case _:
                sides = [
                    (source.node, source_side),
                    (destination.node, destination_side | self._ingress_policy(destination, _DROP)),
                ]
        return self._flow(kind, family, common, sides)

    def _flow(
        self, kind: FlowKind, family: AddressFamily, keyed: dict[str, Value], sides: list[tuple[int, dict[str, Value]]]
    ) -> Flow:
        protocol = int(keyed["protocolIdentifier"])
        is_denied = kind in (FlowKind.EGRESS_DENIED, FlowKind.INGRESS_REJECTED, FlowKind.INGRESS_DROPPED)
        records = 1 + self._config.updates
        flow_start = self._ends_at - _STEP_SECONDS * records - self._random.randrange(3)
        most = 4 if keyed["destinationTransportPort"] == _DNS_PORT else 2000  # a question and its answer are short
        updates = self._updates(flow_start, protocol, is_denied=is_denied, most_packets=most)
        halves = []
        for node, elements in sides:
            # The deny records of an agent know no TCP state; the source node of a dropped flow saw its SYN.
            sees_state = not is_denied or (kind is FlowKind.INGRESS_DROPPED and "sourcePodName" in elements)
            halves.append(Half(node=node, elements=elements, updates=tuple(self._seen(updates, sees_state, is_denied))))
        key = FlowKey(
            source=str(keyed["sourceIPv4Address"]),
            destination=str(keyed["destinationIPv4Address"]),
            protocol_identifier=protocol,
            source_port=int(keyed["sourceTransportPort"]),
            destination_port=int(keyed["destinationTransportPort"]),
        )
        return Flow(kind=kind, family=family, key=key, flow_start=flow_start, halves=tuple(halves))

    def _updates(self, flow_start: int, protocol: int, *, is_denied: bool, most_packets: int) -> list[Update]:
        random = self._random
        records = 1 + self._config.updates
        size, reverse_size = random.randrange(60, 1400), random.randrange(60, 1400)
        packets = octets = reverse_packets = reverse_octets = 0
        last_reason = random.choice((_END_OF_FLOW, _END_OF_FLOW, _IDLE, _ACTIVE))
        updates = []
        for number in range(records):
            if is_denied:  # the SYN again and again
                packets, octets = packets + 1, octets + 60
            else:
                more, reverse_more = random.randrange(1, most_packets), random.randrange(1, most_packets)
                packets, octets = packets + more, octets + more * size
                reverse_packets, reverse_octets = (
                    reverse_packets + reverse_more,
                    reverse_octets + reverse_more * reverse_size,
                )
            is_last = number == records - 1
            reason = _END_OF_FLOW if is_denied else last_reason if is_last else _ACTIVE
            updates.append(
                Update(
                    flow_end=flow_start + _STEP_SECONDS * (number + 1),
                    flow_end_reason=reason,
                    tcp_state="" if protocol != _TCP else _tcp_state(reason, is_denied=is_denied),
                    packets=packets,
                    octets=octets,
                    reverse_packets=reverse_packets,
                    reverse_octets=reverse_octets,
                )
            )
        return updates

    def _seen(self, updates: list[Update], sees_state: bool, is_denied: bool) -> Iterator[Update]:
        """What one node sees of it: the two sides read their counters at slightly different moments."""
        missed = 0 if is_denied else self._random.randrange(2)
        for update in updates:
            size = update.octets // update.packets
            yield Update(
                flow_end=update.flow_end,
                flow_end_reason=update.flow_end_reason,
                tcp_state=update.tcp_state if sees_state else "",
                packets=max(1, update.packets - missed),
                octets=update.octets - size * missed if update.packets > missed else update.octets,
                reverse_packets=update.reverse_packets,
                reverse_octets=update.reverse_octets,
            )

    def _transport(self, source: str, destination: Pod, family: AddressFamily, protocol: int) -> dict[str, Value]:
        return self._endpoints(source, destination.addresses[family], protocol, destination.service.target_port)

    def _endpoints(self, source: str, destination: str, protocol: int, port: int) -> dict[str, Value]:
        elements: dict[str, Value] = {
            "sourceIPv4Address": source,
            "destinationIPv4Address": destination,
            "protocolIdentifier": protocol,
            "sourceTransportPort": 0,
            "destinationTransportPort": 0,
        }
        if protocol in (_TCP, _UDP):
            source_port = self._ephemeral.take(source)
            assert source_port is not None, "MAX_FLOWS_PER_NODE leaves ports free"
            elements["sourceTransportPort"] = source_port
            elements["destinationTransportPort"] = port
        return elements

    def _protocol(self, source: Pod, destination: Pod, family: AddressFamily) -> int:
        if destination.service.port == _DNS_PORT:
            return _TCP if self._random.random() < _DNS_OVER_TCP_SHARE else _UDP
        pair = (source.addresses[family], destination.addresses[family])
        if self._random.random() < 0.05 and pair not in self._pinged:  # without ports a pair can ping once
            self._pinged.add(pair)
            return _ICMP if family is AddressFamily.IPV4 else _ICMPV6
        return _TCP

    def _snat_port(self, elsewhere_than: int, family: AddressFamily) -> tuple[int, int]:
        first = self._random.randrange(self._config.nodes)
        for step in range(self._config.nodes):
            node = (first + step) % self._config.nodes
            if node != elsewhere_than:
                port = self._snat.take(self.cluster.nodes[node].gateways[family])
                if port is not None:
                    return node, port
        raise AssertionError("MAX_FLOWS_PER_NODE leaves ports free")

    def _two_pods(self, *, same_node: bool, may_be_dns: bool = True) -> tuple[Pod, Pod]:
        """One that asks and one that answers."""
        nodes = range(len(self.cluster.nodes))
        here, there = (self._random.choice(nodes),) * 2 if same_node else self._random.sample(nodes, 2)
        source = self._random.choice(self._clients[here])
        application = self._random.choice(source.calls)
        destination = self._random.choice(self._by_application[there][application])
        if destination is source or (destination.service.port == _DNS_PORT and not may_be_dns):
            return self._two_pods(same_node=same_node, may_be_dns=may_be_dns)
        return source, destination

    def _pod(self, side: str, pod: Pod) -> dict[str, Value]:
        return {
            f"{side}PodName": pod.name,
            f"{side}PodNamespace": pod.namespace,
            f"{side}NodeName": self.cluster.nodes[pod.node].name,
        }

    def _service(self, destination: Pod, family: AddressFamily) -> dict[str, Value]:
        service = destination.service
        return {
            "destinationServicePort": service.port,
            "destinationServicePortName": service.port_name,
            "destinationClusterIPv4": service.addresses[family],
            "destinationServiceIPv4": service.addresses[family],
        }

    def _ingress_policy(self, pod: Pod, action: int) -> dict[str, Value]:
        return self._policy("ingress", self.cluster.ingress_policies, pod, action)

    def _egress_policy(self, pod: Pod, action: int) -> dict[str, Value]:
        return self._policy("egress", self.cluster.egress_policies, pod, action)

    def _policy(self, direction: str, policies: tuple[Policy, ...], pod: Pod, action: int) -> dict[str, Value]:
        if action == _ALLOW and self._random.random() < 0.6:
            return {}  # no policy selects the Pod
        # Of the Pod's own namespace, or of the whole cluster. Kubernetes' own policies can only allow.
        policy = self._random.choice(
            [
                each
                for each in policies
                if each.namespace in (pod.namespace, "") and (action == _ALLOW or each.type != KUBERNETES_POLICY)
            ]
        )
        return {
            f"{direction}NetworkPolicyName": policy.name,
            f"{direction}NetworkPolicyNamespace": policy.namespace,
            f"{direction}NetworkPolicyType": policy.type,
            f"{direction}NetworkPolicyRuleName": policy.rule_name,
            f"{direction}NetworkPolicyRuleAction": action,
        }


def _tcp_state(reason: int, *, is_denied: bool) -> str:
    if is_denied:
        return "SYN_SENT"
    return "TIME_WAIT" if reason == _END_OF_FLOW else "ESTABLISHED"
