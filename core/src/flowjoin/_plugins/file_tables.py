"""What stands in the file of the look-up ``file``, as frozen values; pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from flowjoin._config.binder import bind
from flowjoin._config.nodes import read_document
from flowjoin.api._lookups import Pod
from flowjoin.api._settings import Bounds, Key

__all__ = [
    "Address",
    "EgressEntry",
    "FileLookupConfig",
    "Instant",
    "NodeEntry",
    "PodEntry",
    "PolicyEntry",
    "ServiceEntry",
    "Tables",
    "canonical",
    "read_tables",
]


@dataclass(frozen=True, slots=True)
class Instant:
    """Seconds since 1970-01-01T00:00:00Z, written as RFC 3339 writes them."""

    EXAMPLE: ClassVar = "2026-01-02T03:04:05Z"
    seconds: float

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read it.

        Raises:
            ValueError: with the sentence for the operator.
        """
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ValueError(f'"{text[:60]}" is no time with its zone; write it as {cls.EXAMPLE}')
        return cls(moment.timestamp())


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address in canonical text."""

    EXAMPLE: ClassVar = '"10.10.0.5" or "2001:db8::5"'
    text: str

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read it.

        Raises:
            ValueError: with the sentence for the operator.
        """
        try:
            return cls(canonical(text))
        except ValueError:
            raise ValueError(f'"{text[:60]}" is no address; write {cls.EXAMPLE}') from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEntry:
    """A Pod while it had its addresses."""

    namespace: str
    name: str
    uid: str = ""
    node: str = ""
    addresses: tuple[Address, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    host_network: Annotated[bool, "its addresses are its Node's, and tell nothing"] = False
    since: Annotated[Instant | None, Key("from"), "default: always"] = None
    until: Annotated[Instant | None, "default: for ever"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEntry:
    """A Node."""

    name: str
    uid: str = ""
    addresses: tuple[Address, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    since: Annotated[Instant | None, Key("from"), "default: always"] = None
    until: Annotated[Instant | None, "default: for ever"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortEntry:
    """A port of a Service."""

    port: Annotated[int, Bounds(1, 65535)]
    protocol: Literal["tcp", "udp", "sctp"] = "tcp"
    name: str = ""
    node_port: Annotated[int, Bounds(0, 65535)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEntry:
    """A Service."""

    namespace: str
    name: str
    uid: str = ""
    cluster_addresses: tuple[Address, ...] = ()
    ports: tuple[PortEntry, ...] = ()
    since: Annotated[Instant | None, Key("from"), "default: always"] = None
    until: Annotated[Instant | None, "default: for ever"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A rule of a network policy."""

    rule: Annotated[int, Bounds(1)]
    generation: Annotated[int, Bounds(1), "which giving-out of the number"] = 1
    policy_name: str
    policy_namespace: str = ""
    policy_uid: str = ""
    policy_type: Literal["kubernetes", "antrea", "antreaCluster"] = "kubernetes"
    rule_name: str = ""
    rule_action: Literal["none", "allow", "drop", "reject"] = "none"
    since: Annotated[Instant | None, Key("from"), "default: always"] = None
    until: Annotated[Instant | None, "default: for ever"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressEntry:
    """An Egress, and whose connections leave through it."""

    name: str
    uid: str = ""
    address: Address | None = None
    node: str = ""
    namespaces: Annotated[tuple[str, ...], "of the Pods; none means all"] = ()
    pod_labels: Annotated[dict[str, str], "that the Pods have, all of them"] = field(default_factory=dict)
    since: Annotated[Instant | None, Key("from"), "default: always"] = None
    until: Annotated[Instant | None, "default: for ever"] = None

    def is_for(self, pod: Pod, at: float | None) -> bool:
        """Whether the Pod's connections left through it then."""
        moment = inf if at is None else at
        is_then = (self.since is None or self.since.seconds <= moment) and (
            self.until is None or moment < self.until.seconds
        )
        is_there = not self.namespaces or pod.namespace in self.namespaces
        return is_then and is_there and self.pod_labels.items() <= pod.labels.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The file as a whole."""

    pods: tuple[PodEntry, ...] = ()
    nodes: tuple[NodeEntry, ...] = ()
    services: tuple[ServiceEntry, ...] = ()
    policies: tuple[PolicyEntry, ...] = ()
    egresses: tuple[EgressEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLookupConfig:
    """The keys under ``lookups: [{type: file, …}]``."""

    path: Annotated[Path, "the file of pods, nodes, services, policies and egresses, YAML or JSON"]


def read_tables(text: str, source: str) -> Tables:
    """Read the file's text.

    Raises:
        ConfigError: naming file, line and key.
    """
    return bind(read_document(text, source), Tables, source=source)


def canonical(text: str) -> str:
    """RFC 5952 text; an IPv4 address inside an IPv6 one is the IPv4 address.

    Raises:
        ValueError: it is no address.
    """
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address if mapped is None else mapped)
