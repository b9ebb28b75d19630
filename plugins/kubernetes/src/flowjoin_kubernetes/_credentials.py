"""The certificates that the flow aggregator publishes for agents: a ConfigMap and a Secret of its namespace."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from flowjoin.api import ClientCredentials, PluginError
from flowjoin_kubernetes._client import Api, ApiError
from flowjoin_kubernetes._http import HttpTrouble

__all__ = ["read_credentials"]

_CA: Final = "flow-aggregator-ca"
_CLIENT: Final = "flow-aggregator-client-tls"


async def read_credentials(api: Api, namespace: str) -> ClientCredentials:
    """As they are now; nothing is kept, for they are rotated.

    Raises:
        PluginError: they cannot be had.
    """
    try:
        config_map = await _get(api, f"/api/v1/namespaces/{namespace}/configmaps/{_CA}", f"ConfigMap {_CA}")
        ca = (config_map.get("data") or {}).get("ca.crt")
        if not ca:
            raise ValueError(f"no data in {_CA} ConfigMap")
    except ValueError as exc:
        raise PluginError(f"cannot retrieve CA cert: {exc}", plugin="kubernetes") from exc
    try:
        secret = await _get(api, f"/api/v1/namespaces/{namespace}/secrets/{_CLIENT}", f"Secret {_CLIENT}")
        certificate, key = (_decoded(secret, name) for name in ("tls.crt", "tls.key"))
    except ValueError as exc:
        raise PluginError(f"cannot retrieve client cert and key: {exc}", plugin="kubernetes") from None
    return ClientCredentials(ca=ca, certificate=certificate, key=key)


async def _get(api: Api, path: str, what: str) -> dict[str, Any]:
    try:
        return await api.get_object(path)
    except (ApiError, HttpTrouble) as exc:
        raise ValueError(f"error getting {what}: {exc}") from exc


def _decoded(secret: dict[str, Any], name: str) -> str:
    """A value of a Secret; its octets go into no error."""
    value = (secret.get("data") or {}).get(name)
    if not value:
        raise ValueError(f"{name} is missing in {_CLIENT} Secret")
    try:
        return base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError, TypeError):
        raise ValueError(f"{name} in {_CLIENT} Secret is no PEM text in base64") from None
