"""The observation domain id that stands for a cluster, or for a Node."""

from __future__ import annotations

import os
import uuid
from typing import Final

__all__ = ["fnv1", "observation_domain_of", "observation_domain_of_node"]

_OFFSET_BASIS: Final = 2166136261
_PRIME: Final = 16777619


def fnv1(octets: bytes) -> int:
    """The FNV-1 hash of 32 bits: multiply, then exclusive or."""
    value = _OFFSET_BASIS
    for octet in octets:
        value = (value * _PRIME & 0xFFFF_FFFF) ^ octet
    return value


def observation_domain_of(cluster_uuid: str) -> int:
    """What Antrea's flow aggregator makes of its cluster's UUID: the hash of its sixteen octets."""
    return fnv1(uuid.UUID(cluster_uuid).bytes)


def observation_domain_of_node() -> int:
    """What Antrea's agent makes of its Node's name, which is ``$NODE_NAME`` or this host's."""
    return fnv1((os.environ.get("NODE_NAME") or os.uname().nodename).encode())
