"""The API server as the official client's configuration describes it: address, TLS, credentials, and GET requests.

``kubernetes`` reads the service account and kubeconfig files, refreshes tokens and runs the programs that give them;
the requests themselves are ours (``_http``).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlencode, urlsplit

import trio
import yaml
from kubernetes import config as kubernetes_config
from kubernetes.client import Configuration
from kubernetes.client.rest import should_bypass_proxies
from kubernetes.config.config_exception import ConfigException

from flowjoin.api import ConfigError, ElementRegistry
from flowjoin_kubernetes._config import KubernetesConfig
from flowjoin_kubernetes._http import Connection, Endpoint, HttpTrouble, Proxy, Response, open_connection
from flowjoin_kubernetes._threads import in_thread

__all__ = ["Api", "ApiError", "check", "load_api"]

_STATUS_OCTETS: Final = 1024 * 1024
_GONE: Final = 410
_LIMITED: Final = 429
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_READ_SECONDS: Final = 60.0


class ApiError(Exception):
    """The API server refuses.

    Attributes:
        code: HTTP status, or the code of a Status object.
        retry_after: seconds that the server asks to wait; 0 when it does not say.
    """

    def __init__(self, code: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after

    @property
    def is_gone(self) -> bool:
        """What was asked to go on from is no longer known: list anew."""
        return self.code == _GONE


@dataclass(frozen=True, slots=True)
class Api:
    """Requests."""

    endpoint: Endpoint
    base_path: str
    configuration: Configuration

    async def get(self, connection: Connection, path: str, query: Mapping[str, str]) -> Response:
        """Ask for a resource; the answer is a success.

        Raises:
            ApiError: it is none.
            HttpTrouble: no answer came.
        """
        target = f"{self.base_path}{path}" + (f"?{urlencode(query)}" if query else "")
        return await self._succeeded(await connection.get(target, await self._headers()))

    async def send(self, method: str, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create (POST) or replace (PUT) an object, over a connection for it alone; gives what the server made of it.

        Raises:
            ApiError: the server refuses.
            HttpTrouble: no answer came, or none that is an object.
        """
        body = json.dumps(manifest).encode()
        more = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        async with open_connection(self.endpoint) as connection:
            with trio.move_on_after(_READ_SECONDS):
                headers = [*await self._headers(), *more]
                answer = await connection.request(method, f"{self.base_path}{path}", headers, body)
                return _object(await (await self._succeeded(answer)).read(_STATUS_OCTETS * 4))
        raise HttpTrouble("the server did not finish its answer")

    async def _headers(self) -> list[tuple[str, str]]:
        headers = [("Accept", "application/json"), ("User-Agent", "flowjoin-kubernetes")]
        authorization = await self._authorization()
        if authorization:
            headers.append(("Authorization", authorization))
        return headers

    async def _succeeded(self, response: Response) -> Response:
        if response.status not in (200, 201):
            with trio.move_on_after(_READ_SECONDS):
                body = await response.read(_STATUS_OCTETS)
                raise _error(response, body)
            raise HttpTrouble("the server did not finish its answer")
        return response

    async def get_object(self, path: str) -> dict[str, Any]:
        """One object, over a connection for it alone.

        Raises:
            ApiError: the server refuses.
            HttpTrouble: no answer came, or none that is an object.
        """
        async with open_connection(self.endpoint) as connection:
            with trio.move_on_after(_READ_SECONDS):
                body = await (await self.get(connection, path, {})).read(_STATUS_OCTETS * 4)
                return _object(body)
        raise HttpTrouble("the server did not finish its answer")

    async def _authorization(self) -> str:
        """The header's value. In a thread: it may read a file, or run a program that gives a token.

        Raises:
            HttpTrouble: that fails.
        """
        ask = partial(self.configuration.get_api_key_with_prefix, "BearerToken", alias="authorization")
        try:
            return (await in_thread(ask) or "").strip()
        except (ConfigException, OSError, ValueError) as exc:
            raise HttpTrouble(f"no credentials: {exc}") from exc


def load_api(config: KubernetesConfig) -> Api:
    """Read the service account or the kubeconfig; blocking.

    Raises:
        ConfigError: there is none, or it cannot be used.
    """
    configuration = Configuration()
    in_cluster = config.kubeconfig is None and not config.context and _IN_CLUSTER in os.environ
    _refuse_unreadable(config)
    try:
        if in_cluster:
            kubernetes_config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # not typed there
        else:
            file = None if config.kubeconfig is None else str(config.kubeconfig)
            kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]  # as that
                config_file=file, context=config.context or None, client_configuration=configuration
            )
    except (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        what = "the Pod's service account" if in_cluster else f"the kubeconfig {config.kubeconfig or 'of this user'}"
        cause = _cause(exc)
        problem = f"{what} cannot be used: {cause}; give kubeconfig, or run where there is a service account"
        raise ConfigError(problem, path="" if in_cluster else "kubeconfig") from exc
    url = urlsplit(configuration.host)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"the kubeconfig's server {configuration.host!r} is no http or https URL", path="kubeconfig")
    is_tls = url.scheme == "https"
    proxy = None
    if configuration.proxy and not should_bypass_proxies(configuration.host, configuration.no_proxy or ""):
        proxy = _proxy(configuration.proxy)
    endpoint = Endpoint(
        host=url.hostname,
        port=url.port or (443 if is_tls else 80),
        server_name=configuration.tls_server_name or url.hostname,
        tls=partial(_tls_context, configuration) if is_tls else None,
        proxy=proxy,
    )
    return Api(endpoint, url.path.rstrip("/"), configuration)


def _refuse_unreadable(config: KubernetesConfig) -> None:
    """The library takes a file that is not there for an empty one.

    Raises:
        ConfigError: the kubeconfig that is named cannot be read.
    """
    if config.kubeconfig is None:
        return
    try:
        # As the library reads it: several files, of which each may begin with a tilde.
        for name in filter(None, str(config.kubeconfig).split(os.pathsep)):
            with Path(name).expanduser().open("rb") as file:
                file.read(1)
    except (OSError, ValueError, RuntimeError) as exc:  # ValueError: a NUL in the path; RuntimeError: nobody's home
        problem = f"the kubeconfig {config.kubeconfig} cannot be used: {getattr(exc, 'strerror', None) or exc}"
        raise ConfigError(problem, path="kubeconfig") from exc


def _cause(exc: Exception) -> str:
    """What the library met: of a file of another kind it says what Python says, which helps nobody."""
    if isinstance(exc, KeyError | TypeError | AttributeError):
        return "it is no kubeconfig, or lacks a part of one; kubectl config view --kubeconfig FILE shows it"
    return str(exc).rstrip(".")


def check(config: KubernetesConfig, _registry: ElementRegistry) -> None:
    """See to the kubeconfig that the configuration names: a service account is only where its Pod is.

    Raises:
        ConfigError: it, or a file that it names, cannot be used.
    """
    if config.kubeconfig is None:
        return
    make_context = load_api(config).endpoint.tls
    try:
        if make_context is not None:
            make_context()
    except OSError as exc:
        cause = "it is no certificate with its key" if isinstance(exc, ssl.SSLError) else exc.strerror or str(exc)
        problem = f"a certificate of the kubeconfig {config.kubeconfig} cannot be used: {cause}"
        raise ConfigError(problem, path="kubeconfig") from exc


def _proxy(text: str) -> Proxy:
    """The proxy of a URL.

    Raises:
        ConfigError: it is none that can be used; the URL, which may hold a password, is not shown.
    """
    url = urlsplit(text)
    if url.scheme != "http" or not url.hostname:
        problem = f"the proxy to the API server has a {url.scheme or 'broken'} URL; only http proxies can be used"
        raise ConfigError(problem)
    user, password = unquote(url.username or ""), unquote(url.password or "")
    shown = base64.b64encode(f"{user}:{password}".encode()).decode()
    return Proxy(host=url.hostname, port=url.port or 80, authorization=f"Basic {shown}" if user else "")


def _tls_context(configuration: Configuration) -> ssl.SSLContext:
    """A context made of the files as they are now: certificates are rotated.

    Raises:
        OSError: a file cannot be read or is no certificate.
    """
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data or None)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        # A password is given so that OpenSSL does not ask for one at the terminal.
        context.load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    return context


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise HttpTrouble(f"the server's answer is no JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise HttpTrouble("the server's answer is no object")
    return value


def _error(response: Response, body: bytes) -> ApiError:
    message = ""
    with contextlib.suppress(HttpTrouble):
        message = str(_object(body).get("message") or "")
    retry_after = response.header("Retry-After")
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    return ApiError(response.status, message or f"HTTP status {response.status}", min(seconds, 3600.0))
