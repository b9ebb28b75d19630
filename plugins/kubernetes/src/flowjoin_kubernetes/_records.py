"""What is kept of a Pod, a Node and a Service: a few columns each, made from the API server's JSON.

A cluster has hundreds of thousands of these, so texts that many share (namespaces, Nodes, labels of one workload's
Pods) are one object, UIDs are sixteen octets, and everything else in the JSON is left behind.
"""

from __future__ import annotations

import ipaddress
import json
import sys
import uuid
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from math import inf
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

__all__ = [
    "Network",
    "NodeRecord",
    "PodRecord",
    "Record",
    "ServiceRecord",
    "canonical_address",
    "labels_json",
    "uid_octets",
    "uid_of",
    "uid_text",
]

Json: TypeAlias = Mapping[str, Any]  # what json.loads makes of an object of the API

_TERMINATED: Final = ("Succeeded", "Failed")
_PROTOCOLS: Final = {"TCP": 6, "UDP": 17, "SCTP": 132}
_UID_OCTETS: Final = 16


class Network(NamedTuple):
    """A network by its version of IP, the length of its prefix, and the bits of that."""

    version: int
    length: int
    prefix: int

    def __str__(self) -> str:
        """As it is written."""
        address: type[ipaddress.IPv4Address | ipaddress.IPv6Address]
        address, bits = (ipaddress.IPv4Address, 32) if self.version == 4 else (ipaddress.IPv6Address, 128)
        return f"{address(self.prefix << bits - self.length)}/{self.length}"


class Record(Protocol):
    """An object while it exists. Its first three columns are these."""

    @property
    def uid(self) -> bytes | str:
        """Sixteen octets; the text itself where the API server's is no UUID."""
        ...

    @property
    def created(self) -> float:
        """Seconds since 1970."""
        ...

    @property
    def deleted(self) -> float:
        """The same; infinite while it lives."""
        ...

    def found_by(self) -> Iterable[Hashable]:
        """What it is found by."""
        ...


class PodRecord(NamedTuple):
    """A Pod with addresses of its own."""

    uid: bytes | str
    created: float
    deleted: float
    namespace: str
    name: str
    node: str
    addresses: tuple[str, ...]
    labels: str

    @classmethod
    def of(cls, manifest: Json, seen_at: float) -> PodRecord:
        """Of the API server's object.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it lacks what every Pod has.
        """
        metadata, status = manifest["metadata"], _mapping(manifest.get("status"))
        return cls(
            uid=_uid(metadata),
            # A Pod that is seen pending gets its address about now, however long ago it was made.
            created=seen_at if status.get("phase") == "Pending" else _created(metadata, seen_at),
            deleted=inf,
            namespace=sys.intern(metadata["namespace"]),
            name=metadata["name"],
            node=sys.intern(_mapping(manifest.get("spec")).get("nodeName") or ""),
            addresses=_addresses(each.get("ip") for each in status.get("podIPs") or ()),
            labels=sys.intern(labels_json(metadata.get("labels"))),
        )

    def found_by(self) -> Iterable[Hashable]:
        return self.addresses

    @staticmethod
    def is_wanted(manifest: Json) -> bool:
        """Whether its addresses tell it apart from others: not those of a Pod in its Node's network."""
        return not _mapping(manifest.get("spec")).get("hostNetwork")

    @staticmethod
    def is_over(manifest: Json) -> bool:
        """Whether it has ended for good, and its addresses are free for others."""
        return _mapping(manifest.get("status")).get("phase") in _TERMINATED


class NodeRecord(NamedTuple):
    """A Node.

    Attributes:
        pod_networks: whence its Pods get their addresses.
    """

    uid: bytes | str
    created: float
    deleted: float
    name: str
    addresses: tuple[str, ...]
    labels: str
    pod_networks: tuple[Network, ...]

    @classmethod
    def of(cls, manifest: Json, seen_at: float) -> NodeRecord:
        """As of a Pod."""
        metadata, status = manifest["metadata"], _mapping(manifest.get("status"))
        given = (each for each in status.get("addresses") or () if str(each.get("type")).endswith("IP"))
        spec = _mapping(manifest.get("spec"))
        return cls(
            uid=_uid(metadata),
            created=_created(metadata, seen_at),
            deleted=inf,
            name=sys.intern(metadata["name"]),
            addresses=_addresses(each.get("address") for each in given),
            labels=labels_json(metadata.get("labels")),
            pod_networks=_networks(spec.get("podCIDRs") or [spec.get("podCIDR")]),
        )

    def found_by(self) -> Iterable[Hashable]:
        yield ("name", self.name)
        for address in self.addresses:
            yield ("address", address)
        for network in self.pod_networks:
            yield ("network", network)

    @staticmethod
    def is_wanted(_manifest: Json) -> bool:
        return True

    @staticmethod
    def is_over(_manifest: Json) -> bool:
        return False


class ServiceRecord(NamedTuple):
    """A Service.

    Attributes:
        ports: of each its number, protocol number, name and Node port.
    """

    uid: bytes | str
    created: float
    deleted: float
    namespace: str
    name: str
    addresses: tuple[str, ...]
    ports: tuple[tuple[int, int, str, int], ...]

    @classmethod
    def of(cls, manifest: Json, seen_at: float) -> ServiceRecord:
        """As of a Pod."""
        metadata, spec = manifest["metadata"], _mapping(manifest.get("spec"))
        return cls(
            uid=_uid(metadata),
            created=_created(metadata, seen_at),
            deleted=inf,
            namespace=sys.intern(metadata["namespace"]),
            name=metadata["name"],
            # a headless Service's address is the word None
            addresses=_addresses(spec.get("clusterIPs") or [spec.get("clusterIP")]),
            ports=tuple(
                (
                    int(port["port"]),
                    _PROTOCOLS.get(port.get("protocol") or "TCP", 0),
                    port.get("name") or "",
                    int(port.get("nodePort") or 0),
                )
                for port in spec.get("ports") or ()
            ),
        )

    def found_by(self) -> Iterable[Hashable]:
        yield ("name", self.namespace, self.name)
        for address in self.addresses:
            for number, protocol, _, _ in self.ports:
                yield (address, number, protocol)

    @staticmethod
    def is_wanted(_manifest: Json) -> bool:
        return True

    @staticmethod
    def is_over(_manifest: Json) -> bool:
        return False


def labels_json(labels: object) -> str:
    """Labels as flows carry them: a compact JSON object with its keys in order; ``{}`` without any."""
    return json.dumps(labels or {}, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def uid_octets(uid: bytes | str) -> bytes:
    """The sixteen octets of the UUID elements; zeros where a UID is no UUID."""
    return uid if isinstance(uid, bytes) else bytes(_UID_OCTETS)


def uid_of(manifest: Json) -> bytes | str:
    """An object's UID as records have it."""
    return _uid(manifest["metadata"])


def uid_text(uid: bytes | str) -> str:
    """A UID as the API server writes it."""
    return str(uuid.UUID(bytes=uid)) if isinstance(uid, bytes) else uid


def canonical_address(text: str) -> str:
    """RFC 5952 text; an IPv4 address inside an IPv6 one is the IPv4 address.

    Raises:
        ValueError: it is no address.
    """
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address if mapped is None else mapped)


def _addresses(texts: Iterable[object]) -> tuple[str, ...]:
    found = []
    for text in texts:
        try:
            found.append(canonical_address(str(text)))
        except ValueError:
            continue  # the word None, or nothing yet
    return tuple(dict.fromkeys(found))


def _networks(texts: Iterable[object]) -> tuple[Network, ...]:
    found = []
    for text in texts:
        try:
            network = ipaddress.ip_network(str(text), strict=False)
        except ValueError:
            continue  # nothing yet, or never: who gives out addresses may not tell
        prefix = int(network.network_address) >> network.max_prefixlen - network.prefixlen
        found.append(Network(network.version, network.prefixlen, prefix))
    return tuple(dict.fromkeys(found))


def _uid(metadata: Json) -> bytes | str:
    text: str = metadata["uid"]
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return text


def _created(metadata: Json, otherwise: float) -> float:
    text = metadata.get("creationTimestamp")
    return otherwise if not text else datetime.fromisoformat(text).timestamp()


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}
