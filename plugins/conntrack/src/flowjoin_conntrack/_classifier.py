"""Asks the look-ups what a connection's ends are, and says which connections are not to be kept."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from typing import Final, ParamSpec, TypeVar

from flowjoin.api import (
    Egress,
    EgressLookup,
    PluginError,
    Pod,
    PodLookup,
    PodNetworkLookup,
    PolicyLookup,
    PolicyRule,
    Service,
    ServiceLookup,
    ServicePort,
)
from flowjoin_conntrack._entry import Connection
from flowjoin_conntrack._external import External, ExternalCorrelator
from flowjoin_conntrack._metadata import FlowType, Metadata, MissingRule, address_text, flow_type, rule_ids
from flowjoin_conntrack._verdict import Direction, Verdict

__all__ = ["PROTOCOLS", "Classifier"]

P = ParamSpec("P")
AnswerT = TypeVar("AnswerT")

PROTOCOLS: Final = {"tcp": 6, "udp": 17, "sctp": 132}
_WITH_SERVICES: Final = frozenset(PROTOCOLS.values())
_DEFAULT_ZONE: Final = 0
_ALLOW: Final = 1  # of ingressNetworkPolicyRuleAction
_KUBERNETES: Final = 1  # of ingressNetworkPolicyType
_SERVICE_MARK: Final = 0x10  # Antrea: destination NAT for a Service was done
_SOURCE_MARKS: Final = 0xF  # Antrea: where the first packet came from; 0 means denied after it was committed
_PLAIN: Final = {kind: Metadata(flow_type=kind) for kind in FlowType}


class Classifier:
    """Row to metadata, or None for a connection that is not to be kept.

    Attributes:
        gateways: addresses of this Node's gateway; they may come later than the first connections.
        external: finds who began what came from outside; None where that is not asked for.
        unanswered: questions that a look-up could not be asked, for it was not open.
        seen_at: seconds since 1970, of what is being looked at: when a connection began that does not say so.
    """

    def __init__(
        self,
        *,
        node: str,
        zones: frozenset[int],
        protocols: frozenset[int] | None,
        gateways: frozenset[str],
        service_networks: tuple[str, ...],
        pod_networks: tuple[str, ...],
        pods_only: bool,
        pods: PodLookup | None,
        services: ServiceLookup | None,
        policies: PolicyLookup | None,
        egresses: EgressLookup | None = None,
        networks: PodNetworkLookup | None = None,
        network_policy_only: bool = False,
        external: ExternalCorrelator | None = None,
    ) -> None:
        self._node = node
        self._zones = zones
        self._protocols = protocols
        self.gateways = gateways
        self._service_networks = tuple(map(ipaddress.ip_network, service_networks))
        self._pod_networks = tuple(map(ipaddress.ip_network, pod_networks))
        self._pods_only = pods_only
        self._pods = pods
        self._services = services
        self._policies = policies
        self._egresses = egresses
        self._networks = networks
        self._network_policy_only = network_policy_only
        self.external = external
        self.seen_at: float | None = None
        self.unanswered = 0

    def __call__(self, row: bytes) -> Metadata | None:
        connection = Connection.unpack(row)
        source = address_text(connection.source, connection.family)
        destination = address_text(connection.destination, connection.family)
        external = None
        if self.external is not None:
            if connection.zone == _DEFAULT_ZONE:
                self._remember(connection)
                return None
            external = self.external.match(connection)
        if not self._is_wanted(connection, destination):
            return None
        if external is None:
            return self._of(connection, source, destination)
        connection = external.applied(connection)
        return self._of(connection, address_text(external.source, connection.family), destination, external)

    def _remember(self, connection: Connection) -> None:
        """Keep what may have come from outside: a Service's, or translated in any way."""
        assert self.external is not None, "asked for"
        is_kept = (
            self._services is None
            or (connection.original_destination, connection.original_destination_port)
            != (connection.destination, connection.destination_port)
            or (connection.source, connection.source_port)
            != (connection.reply_destination, connection.reply_destination_port)
            or self._service(connection, None, is_external=True) is not None
        )
        if connection.protocol in _WITH_SERVICES and is_kept:
            self.external.remember(connection)

    def of_denied(self, connection: Connection, verdict: Verdict) -> Metadata | None:
        """Of a connection that was denied; None where it is not to be kept.

        Its zone and mark say nothing: it was denied before connection tracking kept it.
        """
        if self._protocols is not None and connection.protocol not in self._protocols:
            return None
        source = address_text(connection.source, connection.family)
        destination = address_text(connection.destination, connection.family)
        found = self._of(connection, source, destination)
        if found is None:
            return None
        is_egress = verdict.direction == "egress" or (
            verdict.direction is None and found.destination_pod is None and found.source_pod is not None
        )
        direction: Direction = "egress" if is_egress else "ingress"
        # What was done is known even where the rule is not.
        kind = _KUBERNETES if verdict.is_implicit else 0
        rule = PolicyRule(policy_name="", policy_type=kind, rule_action=verdict.action)
        # What denied it counts for its direction, whatever rule once let the connection pass.
        missing = tuple(one for one in found.missing if one.direction != direction)
        found = replace(found, missing=missing)
        found = replace(found, egress=rule) if is_egress else replace(found, ingress=rule)
        if not verdict.rule_id:
            return found
        wanted = (*missing, MissingRule(direction, verdict.rule_id, verdict.action))
        return self._with_rules(found, wanted, connection.start / 1e9)

    def _of(
        self, connection: Connection, source: str, destination: str, external: External | None = None
    ) -> Metadata | None:
        at = connection.start / 1e9 if connection.start else None
        source_pod = self._own_pod(source, at)
        destination_pod = self._own_pod(destination, at)
        if self._pods_only and source_pod is None and destination_pod is None and external is None:
            return None
        kind = self._flow_type(source, destination, source_pod, destination_pod)
        if self._pods_only and (kind is FlowType.UNSUPPORTED or (kind is FlowType.TO_EXTERNAL and source_pod is None)):
            return None  # the Node of the Egress sees it too, and knows less
        ingress, egress = rule_ids(connection.labels)
        found = Metadata(
            source_pod=source_pod,
            destination_pod=destination_pod,
            service=self._service(connection, at, is_external=external is not None),
            flow_type=FlowType.UNSPECIFIED if kind is FlowType.UNSUPPORTED else kind,
            external=external,
            out_through=self._egress(kind, source_pod, at),
        )
        # A rule id in a connection's label is that of the rule that let it pass.
        labels: tuple[tuple[Direction, int], ...] = (("ingress", ingress), ("egress", egress))
        wanted = tuple(MissingRule(direction, number, _ALLOW) for direction, number in labels if number)
        found = self._with_rules(found, wanted, self.seen_at if at is None else at)
        plain = _PLAIN[found.flow_type]
        return plain if found == plain else found  # a million connections without Pods need one

    def with_late_rules(self, known: Metadata, row: bytes, first_seen: float) -> Metadata:
        """What was known of a connection, with rules that are known by now: lists of them may be behind.

        Args:
            known: when it was first seen.
            row: of the connection.
            first_seen: seconds since 1970, where the row has no start.
        """
        start = Connection.unpack(row).start
        return self._with_rules(known, known.missing, start / 1e9 if start else first_seen)

    def _with_rules(self, found: Metadata, wanted: tuple[MissingRule, ...], at: float | None) -> Metadata:
        if self._policies is None or not wanted:
            return found
        rules: dict[str, PolicyRule] = {}
        missing = []
        for one in wanted:
            rule = self._answer(self._policies.rule, one.rule_id, at=at)
            if rule is None:
                missing.append(one)
            else:
                rules[one.direction] = replace(rule, rule_action=one.action)
        return replace(
            found,
            ingress=rules.get("ingress", found.ingress),
            egress=rules.get("egress", found.egress),
            missing=tuple(missing),
        )

    def _is_wanted(self, connection: Connection, destination: str) -> bool:
        if self._zones and connection.zone not in self._zones:
            return False
        if self._protocols is not None and connection.protocol not in self._protocols:
            return False
        if destination in self.gateways:
            return False
        if connection.zone and self._pods_only and not connection.mark & _SOURCE_MARKS:
            return False
        address = ipaddress.ip_address(destination)
        return not any(address in network for network in self._service_networks)

    def _own_pod(self, address: str, at: float | None) -> Pod | None:
        """The Pod at an address, if it is of this Node."""
        pod = None if self._pods is None else self._answer(self._pods.pod, address, at)
        return pod if pod is not None and pod.node_name in ("", self._node) else None

    def _is_pod(self, address: str, pod: Pod | None) -> bool:
        if pod is not None:
            return True
        parsed = ipaddress.ip_address(address)
        return (
            any(parsed in network for network in self._pod_networks)
            or (self._networks is not None and self._answer(self._networks.pod_network, address) is not None)
            or (self._pods is not None and self._answer(self._pods.pod, address) is not None)
        )

    def _flow_type(
        self, source: str, destination: str, source_pod: Pod | None, destination_pod: Pod | None
    ) -> FlowType:
        if self._network_policy_only:
            return FlowType.INTRA_NODE if source_pod and destination_pod else FlowType.INTER_NODE
        if self._pods is None and not self._pod_networks:
            return FlowType.UNSPECIFIED  # nothing here tells a Pod from another host
        return flow_type(
            source_is_pod=self._is_pod(source, source_pod),
            source_is_gateway=source in self.gateways,
            destination_is_pod=self._is_pod(destination, destination_pod),
            destination_is_gateway=destination in self.gateways,
            has_source_pod=source_pod is not None,
            has_destination_pod=destination_pod is not None,
        )

    def _egress(self, kind: FlowType, source_pod: Pod | None, at: float | None) -> Egress | None:
        if self._egresses is None or kind is not FlowType.TO_EXTERNAL or source_pod is None:
            return None
        return self._answer(self._egresses.egress, source_pod, at)

    def _service(
        self, connection: Connection, at: float | None, *, is_external: bool
    ) -> tuple[Service, ServicePort] | None:
        """The Service that was asked for, where destination NAT led to an endpoint of it."""
        if self._services is None or connection.protocol not in _WITH_SERVICES:
            return None
        is_translated = (connection.original_destination, connection.original_destination_port) != (
            connection.destination,
            connection.destination_port,
        )
        if not (is_external or (connection.mark & _SERVICE_MARK if self._pods_only else is_translated)):
            return None
        address = address_text(connection.original_destination, connection.family)
        port = connection.original_destination_port
        return self._answer(self._services.service_by_address, address, port, connection.protocol, at)

    def _answer(self, ask: Callable[P, AnswerT | None], *arguments: P.args, **named: P.kwargs) -> AnswerT | None:
        """What a look-up says; nothing while it is not open, for then it knows as much as one that has no answer."""
        try:
            return ask(*arguments, **named)
        except PluginError:
            self.unanswered += 1
            return None
