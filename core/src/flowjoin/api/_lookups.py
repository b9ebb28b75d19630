"""Look-up protocols: questions that several plugins ask and one provider answers.

A provider hands over a ``LookupType`` that names the protocols it implements; a plugin asks for one with
``context.lookup(PodLookup)`` and never imports the provider. Every answer is a frozen value. ``at`` is a
wall-clock time in seconds since 1970-01-01T00:00:00Z (a flow's own time, so that an address that was used
again gives the Pod that had it then); None asks for the present.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

__all__ = [
    "ClientCredentials",
    "ClientCredentialsLookup",
    "Egress",
    "EgressLookup",
    "Node",
    "NodeLookup",
    "Pod",
    "PodLookup",
    "PodNetworkLookup",
    "PolicyLookup",
    "PolicyRule",
    "Service",
    "ServiceLookup",
    "ServicePort",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A Pod, as it was while it had the address asked for.

    Attributes:
        uid: canonical UUID text; empty when unknown.
        node_name: the Node it ran on.
        addresses: canonical address texts, one per family.
        is_host_network: its addresses are its Node's, so they do not tell it apart from others.
    """

    namespace: str
    name: str
    uid: str = ""
    node_name: str = ""
    addresses: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_host_network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A Node and its addresses, canonical text."""

    name: str
    uid: str = ""
    addresses: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePort:
    """One port of a Service.

    Attributes:
        name: empty for a Service's only port.
        protocol_identifier: IANA protocol number (element 4): 6 TCP, 17 UDP, 132 SCTP.
        node_port: 0 without one.
    """

    port: int
    protocol_identifier: int
    name: str = ""
    node_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A Service and its cluster addresses, canonical text."""

    namespace: str
    name: str
    uid: str = ""
    cluster_addresses: tuple[str, ...] = ()
    ports: tuple[ServicePort, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """The rule of a network policy that a flow met.

    Attributes:
        policy_type: the value of ``ingressNetworkPolicyType`` (1 Kubernetes, 2 Antrea, 3 Antrea cluster-wide).
        rule_action: the value of ``ingressNetworkPolicyRuleAction`` (0 none, 1 allow, 2 drop, 3 reject).
        policy_namespace: empty for a cluster-wide policy.
    """

    policy_name: str
    policy_type: int
    policy_namespace: str = ""
    policy_uid: str = ""
    rule_name: str = ""
    rule_action: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """By which address, on which Node, a Pod's connections leave the cluster."""

    name: str
    uid: str = ""
    address: str = ""
    node_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """What a client of the flow aggregator shows, and whom it trusts: PEM texts.

    Attributes:
        ca: certificates of the authorities that the aggregator's certificate is verified with.
        certificate: the client's, with its chain.
        key: the client's private key; never shown.
    """

    ca: str
    certificate: str
    key: str = field(repr=False)


@runtime_checkable
class ClientCredentialsLookup(Protocol):
    """The certificates that the flow aggregator publishes for its clients."""

    async def client_credentials(self) -> ClientCredentials:
        """As they are published now: ask at each connection, for they are rotated.

        Raises:
            PluginError: they cannot be had now; the sentence says which.
        """
        ...


@runtime_checkable
class PodLookup(Protocol):
    """Address to Pod."""

    def pod(self, address: str, at: float | None = None) -> Pod | None:
        """The Pod that had the address then; None when there was none, or several (host network)."""
        ...


@runtime_checkable
class PodNetworkLookup(Protocol):
    """Whether an address is a Pod's, whichever: of a Pod on another Node that is all an agent has to know."""

    def pod_network(self, address: str, at: float | None = None) -> str | None:
        """The network of Pods' addresses that the address was in then, ``address/length``; None outside of all."""
        ...


@runtime_checkable
class NodeLookup(Protocol):
    """Address or name to Node."""

    def node_by_address(self, address: str, at: float | None = None) -> Node | None:
        """The Node that had the address then."""
        ...

    def node_by_name(self, name: str, at: float | None = None) -> Node | None:
        """The Node of that name then."""
        ...


@runtime_checkable
class ServiceLookup(Protocol):
    """Cluster address and port, or name, to Service."""

    def service_by_address(
        self, address: str, port: int, protocol_identifier: int, at: float | None = None
    ) -> tuple[Service, ServicePort] | None:
        """The Service behind a cluster address and port, with that port."""
        ...

    def service_by_name(self, namespace: str, name: str, at: float | None = None) -> Service | None:
        """The Service of that name then."""
        ...


@runtime_checkable
class PolicyLookup(Protocol):
    """Rule number to network policy."""

    def rule(self, rule_id: int, generation: int = 0, at: float | None = None) -> PolicyRule | None:
        """The rule that a data path's number stands for.

        Numbers are given out again when a rule goes. ``generation`` says which giving-out is meant; with 0 it is the
        one that was in force at ``at``, and None where that cannot be said: nothing is better than another rule's
        name. Without both it is the latest.
        """
        ...


@runtime_checkable
class EgressLookup(Protocol):
    """Pod to Egress."""

    def egress(self, pod: Pod, at: float | None = None) -> Egress | None:
        """The Egress that the Pod's connections to hosts outside left through then; None without one."""
        ...
