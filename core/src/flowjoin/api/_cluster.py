"""Protocols of what a cluster does for the core itself: keeps certificates, and says who may read the HTTP API.

A provider hands over a ``LookupType`` that names them, as it does for look-ups; the core asks for them, and has forms
of its own where nothing configured under ``lookups:`` provides them. Both are asynchronous, and may fail with any
exception: the core says so in its log, and tries again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

__all__ = ["AccessReview", "CertificateObject", "CertificateStore", "StoredCertificate", "User"]


class CertificateObject(enum.Enum):
    """What is kept and published, by the name that Antrea gives it in the namespace of the Pod."""

    AUTHORITY = "flow-aggregator-ca-tls"  # Secret kubernetes.io/tls: tls.crt, tls.key; nobody else reads it
    CLIENT = "flow-aggregator-client-tls"  # Secret kubernetes.io/tls: tls.crt, tls.key; agents read it
    AUTHORITY_CERTIFICATE = "flow-aggregator-ca"  # ConfigMap, label app=flow-aggregator: ca.crt; agents read it


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCertificate:
    """One object as it is.

    Attributes:
        data: octets by key; a key that is absent is not in it.
        version: differs after each change, whoever made it.
    """

    data: Mapping[str, bytes] = field(repr=False)
    version: str


@runtime_checkable
class CertificateStore(Protocol):
    """Keeps the certificates that all replicas share, where exporting processes find theirs."""

    async def get(self, name: CertificateObject) -> StoredCertificate | None:
        """The object; None when it is not there."""
        ...

    async def put(self, name: CertificateObject, data: Mapping[str, bytes], replaces: str | None) -> bool:
        """Write an object whole, if it still is what was read.

        Args:
            name: which.
            data: octets by key.
            replaces: the version that was read; None, it was not there.

        Returns:
            False when somebody else has written or deleted it meanwhile: nothing was written, read it again.
        """
        ...

    async def wait_change(self) -> None:
        """Return when an object may have changed since the last call; at once is allowed, and so is never."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who makes a request, as a review found.

    Attributes:
        extra: what else the review said, to be handed to the next one.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


@runtime_checkable
class AccessReview(Protocol):
    """Says who holds a token, and what a user may do: TokenReview and SubjectAccessReview in Kubernetes."""

    async def authenticate(self, token: str) -> User | None:
        """The user whose bearer token it is; None when it is nobody's. The token is neither kept nor logged."""
        ...

    async def is_allowed(self, user: User, verb: str, path: str) -> bool:
        """Whether the user may do that (``get``) with a path of the HTTP API (``/flowrecords``)."""
        ...
