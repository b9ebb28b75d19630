"""The HTTP API beside a pipeline: flows are collected whether or not it can listen.

Where the operator chose its address, it must: the run ends if the address cannot be had. The default address may be
taken, by a second flowjoin on the machine for one; then the API is degraded, and tried again.
"""

from __future__ import annotations

import trio

from flowjoin._api_server.access import AccessConfig
from flowjoin._api_server.config import ApiServerConfig
from flowjoin._api_server.figures import Figures
from flowjoin._api_server.process import open_api_server
from flowjoin._config.model import ApiServer, ApiServerTls
from flowjoin._model.errors import BindError
from flowjoin._pipeline.certificates import open_api_tls
from flowjoin._pipeline.health import Component, HealthTable
from flowjoin._pipeline.lookups import Lookups
from flowjoin.api._cluster import AccessReview
from flowjoin.api._types import Logger

__all__ = ["serve_api"]


async def serve_api(
    settings: ApiServer,
    figures: Figures,
    health: HealthTable,
    log: Logger,
    *,
    lookups: Lookups | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer until cancelled; has started when it listens, or has failed to for the first time.

    Raises:
        BindError: an address that was asked for cannot be had.
        ConfigError: it is one that others reach, or TLS or reviews of tokens cannot be had.
    """
    if settings.endpoint is None:
        task_status.started()
        return
    access = AccessConfig(
        token=settings.token,
        certificates=isinstance(settings.tls, ApiServerTls) and settings.tls.client_ca is not None,
        review=(lookups or Lookups(())).get(AccessReview) if settings.review_tokens else None,  # type: ignore[type-abstract]  # a protocol's class
        is_metrics_open=settings.open_metrics,
    )
    component = health.add("core", "api")
    async with open_api_tls(settings, health, log) as tls:
        config = ApiServerConfig(endpoint=settings.endpoint, access=access, tls=tls)
        await _keep_serving(settings, config, figures, component, log, task_status)


async def _keep_serving(
    settings: ApiServer,
    config: ApiServerConfig,
    figures: Figures,
    component: Component,
    log: Logger,
    task_status: trio.TaskStatus[None],
) -> None:
    try:
        await _serve(config, figures, component, log, task_status)
    except BindError as exc:
        if settings.is_asked_for:
            raise
        _tell(exc, component, log)
    task_status.started()
    while True:
        await trio.sleep(component.backoff.next())
        try:
            await _serve(config, figures, component, log, trio.TASK_STATUS_IGNORED)
        except BindError as exc:
            _tell(exc, component, log)


async def _serve(
    config: ApiServerConfig, figures: Figures, component: Component, log: Logger, task_status: trio.TaskStatus[None]
) -> None:
    async with open_api_server(config, figures, log=log) as server:
        component.recovered()
        log.info("api_ready", addresses=[str(address) for address in server.addresses])
        task_status.started()
        await server.run()


def _tell(exc: BindError, component: Component, log: Logger) -> None:
    component.failed(exc)
    log.error("api_unavailable", problem=str(exc), hint="flows are collected all the same; it is tried again")
