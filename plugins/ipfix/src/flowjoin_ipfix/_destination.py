"""Where the collector is now: its address, the name it must prove, and TLS, asked for again at each connection.

A Service of a cluster is known by its namespace and name; its address comes from a look-up, and so may the
certificates. Both change while we run.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import partial

import trio

from flowjoin.api import (
    ClientCredentials,
    ClientCredentialsLookup,
    ConfigError,
    PluginContext,
    PluginError,
    ServiceLookup,
)
from flowjoin_ipfix._client import ConnectionLost
from flowjoin_ipfix._config import Address, IpfixConfig, TlsConfig, parse_address
from flowjoin_ipfix._tls import client_context

__all__ = ["Destination", "Target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one connection is made to.

    Attributes:
        context: None without TLS.
        server_name: what the collector's certificate must be for.
    """

    address: Address
    context: ssl.SSLContext | None
    server_name: str


class Destination:
    """The collector of one exporter."""

    def __init__(self, config: IpfixConfig, context: PluginContext) -> None:
        """Find the look-ups; nothing is asked yet.

        Raises:
            ConfigError: certificates are to be looked up and nothing provides them.
        """
        self._address = parse_address(config.address)
        self._tls = (config.tls or TlsConfig()) if config.protocol == "tls" else None
        self._credentials: ClientCredentialsLookup | None = None
        if self._tls is not None and self._tls.from_lookup:
            try:
                self._credentials = context.lookup(ClientCredentialsLookup)
            except ConfigError as exc:
                problem = "nothing under lookups provides certificates; write lookups: [{type: kubernetes}], or files"
                raise ConfigError(problem, path="tls.fromLookup") from exc
        self._services: ServiceLookup | None = None
        if self._address.is_service:
            try:
                self._services = context.lookup(ServiceLookup)
            except ConfigError:
                context.log.info("service_by_dns", name=self._address.dns_name)

    def __str__(self) -> str:
        return str(self._address)

    async def check(self) -> None:
        """Read the files of TLS; what a look-up gives may come later.

        Raises:
            ConfigError: one cannot be used.
        """
        if self._tls is not None and self._credentials is None:
            await trio.to_thread.run_sync(client_context, self._tls)

    async def target(self) -> Target:
        """Where to connect to now.

        Raises:
            ConnectionLost: it cannot be told, now.
        """
        address = self._resolved()
        context = None
        if self._tls is not None:
            credentials = None if self._credentials is None else await self._asked(self._credentials)
            try:
                context = await trio.to_thread.run_sync(partial(client_context, self._tls, credentials))
            except ConfigError as exc:
                raise ConnectionLost(str(exc)) from exc
        name = (self._tls.server_name if self._tls else "") or self._address.dns_name
        return Target(address=address, context=context, server_name=name)

    def _resolved(self) -> Address:
        if not self._address.is_service:
            return self._address
        if self._services is None:
            return Address(host=self._address.dns_name, port=self._address.port)
        namespace, _, name = self._address.host.partition("/")
        try:
            service = self._services.service_by_name(namespace, name)
        except PluginError as exc:
            raise ConnectionLost(f"failed to resolve Service: {self._address.host}: {exc}") from exc
        if service is None:
            raise ConnectionLost(f"failed to resolve Service: {self._address.host}")
        if not service.cluster_addresses:
            raise ConnectionLost(f"ClusterIP is not available for Service: {self._address.host}")
        return Address(host=service.cluster_addresses[0], port=self._address.port)

    async def _asked(self, lookup: ClientCredentialsLookup) -> ClientCredentials:
        try:
            return await lookup.client_credentials()
        except PluginError as exc:
            raise ConnectionLost(str(exc)) from exc
