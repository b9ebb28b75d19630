"""Who may read what: a bearer token of the configuration, a client's certificate, or a review by the cluster.

Strategy: where none of them is configured the server listens on loopback alone, and everybody there may read; where one
is, everybody must show who they are, but for the paths that probes ask. Tokens are compared in constant time, and
neither kept nor logged: answers of reviews are remembered, for some seconds, by a digest.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from flowjoin._api_server.replies import Reply, status_reply
from flowjoin._model.errors import ConfigError
from flowjoin.api._cluster import AccessReview, User
from flowjoin.api._settings import Secret
from flowjoin.api._types import Logger

__all__ = ["Access", "AccessConfig"]

_OPEN: Final = ("/healthz", "/livez", "/readyz")
_MAX_TOKEN_OCTETS: Final = 16 * 1024
_MAX_REMEMBERED: Final = 256
_REMEMBERED_SECONDS: Final = 10.0
# At once: fewer than connections, so that strangers' tokens keep no probe out while reviews hang.
_MAX_REVIEWS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """How clients may say who they are.

    Attributes:
        token: the bearer token; read at each use, so that a rotated one is seen.
        certificates: whether a certificate that TLS has verified is enough.
        review: asked for every other bearer token.
        is_metrics_open: whether everybody may read ``/metrics``.
    """

    token: Secret | None = None
    certificates: bool = False
    review: AccessReview | None = None
    is_metrics_open: bool = False

    @property
    def is_required(self) -> bool:
        """Whether clients must say who they are at all."""
        return self.token is not None or self.certificates or self.review is not None


class Access:
    """Decides about each request.

    Args:
        config: how clients may say who they are.
        log: for what is refused, and reviews that fail.
        clock: monotonic seconds.
        bound: runs a review, and raises TimeoutError when that takes too long.
    """

    def __init__(
        self,
        config: AccessConfig,
        log: Logger,
        *,
        clock: Callable[[], float],
        bound: Callable[[Awaitable[User | bool | None]], Awaitable[User | bool | None]],
    ) -> None:
        self._config = config
        self._log = log
        self._clock = clock
        self._bound = bound
        self._remembered: dict[bytes, tuple[float, bool | None]] = {}
        self._reviews = 0

    @property
    def is_required(self) -> bool:
        """Whether clients must say who they are at all."""
        return self._config.is_required

    async def refusal(
        self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]], *, peer: str, identity: str | None
    ) -> Reply | None:
        """The reply to who may not; None for who may.

        Args:
            method: GET, HEAD.
            path: of the request.
            headers: of the request.
            peer: address of the client, for the log.
            identity: the name in the certificate that TLS has verified.
        """
        config = self._config
        if not config.is_required or _is_open(path, config):
            return None
        if config.certificates and identity is not None:
            return None
        token = _bearer(headers)
        if token is None:
            return self._refuse(401, "no_credentials", path, peer, "say who you are: send a bearer token" + _or(config))
        if config.token is not None:
            try:
                right = config.token.reveal().strip().encode()
            except ConfigError as exc:
                self._log.error("api_token_unreadable", problem=str(exc))
                return status_reply(503, "the server cannot read its own token; its log says why")
            if not right:
                self._log.error("api_token_unreadable", problem="the token is empty, so nobody has it")
            elif _is_same(token, right):
                return None
        if config.review is None:
            return self._refuse(401, "wrong_token", path, peer, "this bearer token is nobody's")
        return await self._reviewed(config.review, token, method.lower(), path, peer)

    async def _reviewed(self, review: AccessReview, token: bytes, verb: str, path: str, peer: str) -> Reply | None:
        now = self._clock()
        digest = hashlib.sha256(b"\0".join((verb.encode(), path.encode(), token))).digest()
        until, verdict = self._remembered.get(digest, (now, None))
        if until <= now:
            if self._reviews >= _MAX_REVIEWS:
                return status_reply(503, "many are being asked after; come again", (("retry-after", "1"),))
            self._reviews += 1
            try:
                verdict = await self._ask(review, token, verb, path)
            except Exception as exc:  # noqa: BLE001 - a plugin's, which may fail in any way; nobody is let in
                self._log.error("api_review_failed", problem=f"{type(exc).__name__}: {exc}")
                return status_reply(503, "who you are could not be found out; come again", (("retry-after", "5"),))
            finally:
                self._reviews -= 1
            if len(self._remembered) >= _MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[digest] = (now + _REMEMBERED_SECONDS, verdict)
        if verdict is None:
            return self._refuse(401, "unknown_token", path, peer, "this bearer token is nobody's")
        if not verdict:
            return self._refuse(403, "not_allowed", path, peer, f"you may not {verb} {path[:100]}")
        return None

    async def _ask(self, review: AccessReview, token: bytes, verb: str, path: str) -> bool | None:
        """Whether they may; None where the token is nobody's."""
        user = await self._bound(review.authenticate(token.decode("latin-1")))
        if not isinstance(user, User):
            return None
        return bool(await self._bound(review.is_allowed(user, verb, path)))

    def _refuse(self, status: int, reason: str, path: str, peer: str, problem: str) -> Reply:
        self._log.warning("api_refused", original_exporter=peer, reason=reason, path=path[:100])
        challenge = (("www-authenticate", "Bearer"),) if status == 401 else ()
        return status_reply(status, problem, challenge)


def _is_open(path: str, config: AccessConfig) -> bool:
    if path == "/metrics":
        return config.is_metrics_open
    return path in _OPEN or path.startswith("/healthz/")


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """RFC 6750 section 2.1; None for several, which would let two readers see two of them."""
    values = [value for name, value in headers if name.lower() == b"authorization"]
    if len(values) != 1 or len(values[0]) > _MAX_TOKEN_OCTETS:
        return None
    scheme, _, token = values[0].strip().partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def _is_same(one: bytes, other: bytes) -> bool:
    """Digests, so that not even the length shows in how long it takes."""
    return hmac.compare_digest(hashlib.sha256(one).digest(), hashlib.sha256(other).digest())


def _or(config: AccessConfig) -> str:
    return ", or show a certificate" if config.certificates else ""
