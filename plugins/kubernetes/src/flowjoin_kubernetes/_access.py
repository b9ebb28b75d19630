"""Who holds a token and what they may read, as the cluster says: TokenReview and SubjectAccessReview."""

from __future__ import annotations

from typing import Any, Final

from flowjoin.api import User
from flowjoin_kubernetes._client import Api

__all__ = ["ClusterAccess"]


# What an API server that lets strangers in says of a token that is none: white space alone.
_STRANGERS: Final = "system:unauthenticated"


class ClusterAccess:
    """An ``AccessReview``."""

    def __init__(self, api: Api) -> None:
        """Nothing is asked yet."""
        self._api = api

    async def authenticate(self, token: str) -> User | None:
        """As ``AccessReview``.

        Raises:
            ApiError: the server refuses to say.
            HttpTrouble: no answer came.
        """
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = await self._api.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        status = answer.get("status") or {}
        user: dict[str, Any] = status.get("user") or {}
        groups = tuple(map(str, user.get("groups") or ()))
        if status.get("authenticated") is not True or not user.get("username") or _STRANGERS in groups:
            return None
        return User(
            name=str(user["username"]),
            uid=str(user.get("uid") or ""),
            groups=groups,
            extra={str(key): tuple(map(str, values or ())) for key, values in (user.get("extra") or {}).items()},
        )

    async def is_allowed(self, user: User, verb: str, path: str) -> bool:
        """As ``AccessReview``.

        Raises:
            ApiError: the server refuses to say.
            HttpTrouble: no answer came.
        """
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "nonResourceAttributes": {"path": path, "verb": verb},
                "user": user.name,
                "uid": user.uid,
                "groups": list(user.groups),
                "extra": {key: list(values) for key, values in user.extra.items()},
            },
        }
        answer = await self._api.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        status = answer.get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True
