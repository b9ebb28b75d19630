"""The UUID that Antrea gave the cluster: the ConfigMap kube-system/antrea-cluster-identity."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any, Final

import trio

from flowjoin.api import Logger, PluginError
from flowjoin_kubernetes._client import Api, ApiError, load_api
from flowjoin_kubernetes._config import KubernetesConfig
from flowjoin_kubernetes._http import HttpTrouble
from flowjoin_kubernetes._threads import in_thread

__all__ = ["cluster_uuid"]

_NAMESPACE: Final = "kube-system"
_NAME: Final = "antrea-cluster-identity"
_KEY: Final = "uuid"
_EVERY_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 10.0  # Antrea's controller may just be about to write it
_HINTS: Final = {
    403: f'; give the service account a Role in {_NAMESPACE} with the rule {{apiGroups: [""], resources: '
    f'["configmaps"], resourceNames: ["{_NAME}"], verbs: ["get"]}}',
    404: "; where the cluster has no Antrea, set clusterUUID: none",
}


async def cluster_uuid(config: KubernetesConfig, log: Logger) -> str | None:
    """The UUID; None where the configuration wants none of the cluster's.

    Raises:
        ConfigError: there is no service account or kubeconfig that can be used.
        PluginError: it could not be had within ten seconds.
    """
    if config.cluster_uuid == "none":
        await trio.lowlevel.checkpoint()
        return None
    api = await in_thread(partial(load_api, config))
    problem = "no answer"
    with trio.move_on_after(_PATIENCE_SECONDS):
        while True:
            try:
                return await _read(api)
            except ApiError as exc:
                problem = f"{exc}{_HINTS.get(exc.code, '')}"
            except (HttpTrouble, ValueError) as exc:
                problem = str(exc)
            log.warning("cluster_uuid_unknown", problem=problem)
            await trio.sleep(_EVERY_SECONDS)
    raise PluginError(
        f"unable to retrieve cluster UUID from ConfigMap '{_NAMESPACE}/{_NAME}': {problem}", plugin="kubernetes"
    )


async def _read(api: Api) -> str:
    found: dict[str, Any] = await api.get_object(f"/api/v1/namespaces/{_NAMESPACE}/configmaps/{_NAME}")
    text = (found.get("data") or {}).get(_KEY)
    if not text:
        raise ValueError(f"its key {_KEY} is empty")
    try:
        return str(uuid.UUID(text))
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"its key {_KEY} holds {str(text)[:80]!r}, which is no UUID") from None
