"""Where the API server is and who we are: service account, kubeconfig, TLS, tokens that are renewed."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trustme
from kubernetes.config import incluster_config
from kubernetes_objects import pod
from kubernetes_stand_in import KubernetesStandIn

from flowjoin.api import ConfigError
from flowjoin.wire import default_registry
from flowjoin_kubernetes import KubernetesConfig, KubernetesLookupConfig
from flowjoin_kubernetes._client import check, load_api
from flowjoin_kubernetes._http import HttpTrouble


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster around the test, and no kubeconfig of whoever runs it."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def name_of_the_pod(config: KubernetesConfig) -> str:
    with trio.fail_after(60):
        found = await load_api(config).get_object("/api/v1/namespaces/default/pods/one")
    return str(found["metadata"]["name"])


async def test_a_kubeconfig_gives_address_path_and_token(
    server: KubernetesStandIn, kubeconfig_of: Callable[..., Path]
) -> None:
    server.put("pods", pod("one", "10.0.0.1"))
    assert await name_of_the_pod(KubernetesConfig(kubeconfig=kubeconfig_of(f"{server.url}/"))) == "one"
    api = load_api(KubernetesConfig(kubeconfig=kubeconfig_of("https://rancher.example/k8s/clusters/c-1")))
    assert (api.endpoint.authority, api.base_path) == ("rancher.example:443", "/k8s/clusters/c-1")
    ipv6 = load_api(KubernetesConfig(kubeconfig=kubeconfig_of("https://[2001:db8::1]:6443")))
    assert ipv6.endpoint.authority == "[2001:db8::1]:6443"


@pytest.mark.parametrize(
    "content", [None, "", "[]", "{", "{}", '{"current-context": "here"}', '{"apiVersion": "v1", "contexts": 3}']
)
def test_a_kubeconfig_that_cannot_be_used_is_the_operators_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "broken"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=f"the kubeconfig {path} cannot be used") as caught:
        load_api(KubernetesConfig(kubeconfig=path))
    assert caught.value.path == "kubeconfig"


def test_a_context_that_is_not_there_is_the_operators_error(kubeconfig_of: Callable[..., Path]) -> None:
    path = kubeconfig_of("https://api.example")
    with pytest.raises(ConfigError, match="elsewhere"):
        load_api(KubernetesConfig(kubeconfig=path, context="elsewhere"))


def test_without_a_cluster_around_and_without_a_kubeconfig_it_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="give kubeconfig, or run where there is a service account"):
        load_api(KubernetesConfig())


def test_a_server_that_is_no_url_is_the_operators_error(kubeconfig_of: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="no http or https URL"):
        load_api(KubernetesConfig(kubeconfig=kubeconfig_of("unix:///run/api.sock")))


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def secure(authority: trustme.CA):
    """Verifies its clients where they show a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "api.example").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = KubernetesStandIn(context)
    server.put("pods", pod("one", "10.0.0.1"))
    async with server.serving():
        yield server


def encoded(authority: trustme.CA) -> str:
    return base64.b64encode(authority.cert_pem.bytes()).decode()


async def test_the_servers_certificate_is_verified_with_the_kubeconfigs_authority(
    secure: KubernetesStandIn, authority: trustme.CA, kubeconfig_of: Callable[..., Path]
) -> None:
    good = {"certificate-authority-data": encoded(authority)}
    assert await name_of_the_pod(KubernetesConfig(kubeconfig=kubeconfig_of(secure.url, **good))) == "one"
    named = {**good, "tls-server-name": "api.example"}
    assert await name_of_the_pod(KubernetesConfig(kubeconfig=kubeconfig_of(secure.url, **named))) == "one"
    bad = {"certificate-authority-data": encoded(trustme.CA())}
    with pytest.raises(HttpTrouble, match="its certificate is not accepted"):
        await name_of_the_pod(KubernetesConfig(kubeconfig=kubeconfig_of(secure.url, **bad)))
    other = {**good, "tls-server-name": "other.example"}
    with pytest.raises(HttpTrouble, match="its certificate is not accepted"):
        await name_of_the_pod(KubernetesConfig(kubeconfig=kubeconfig_of(secure.url, **other)))


async def test_a_pods_service_account_is_used_and_its_token_read_again(
    secure: KubernetesStandIn, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "token").write_text("first")
    authority.cert_pem.write_to_path(str(account / "ca.crt"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(account / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(account / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(secure.port))
    secure.tokens = {"first"}
    api = load_api(KubernetesConfig())
    with trio.fail_after(60):
        await api.get_object("/api/v1/namespaces/default/pods/one")
        (account / "token").write_text("second")
        secure.tokens = {"second"}
        hook = api.configuration.refresh_api_key_hook
        loader = next(cell.cell_contents for cell in hook.__closure__ or () if hasattr(cell.cell_contents, "token"))
        loader.token_expires_at = loader.token_expires_at.replace(year=2000)  # a minute has passed
        await api.get_object("/api/v1/namespaces/default/pods/one")
    assert secure.authorizations == ["bearer first", "bearer second"]


def test_a_service_account_that_cannot_be_used_is_the_operators_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(
        ConfigError, match="the Pod's service account cannot be used: Service token file does not exist"
    ):
        load_api(KubernetesConfig())


async def test_a_client_certificate_of_the_kubeconfig_is_shown(
    secure: KubernetesStandIn, authority: trustme.CA, kubeconfig_of: Callable[..., Path], tmp_path: Path
) -> None:
    client = authority.issue_cert("operator@example")
    path = kubeconfig_of(secure.url, **{"certificate-authority-data": encoded(authority)})
    content = json.loads(path.read_text())
    client.cert_chain_pems[0].write_to_path(str(tmp_path / "client.crt"))
    client.private_key_pem.write_to_path(str(tmp_path / "client.key"))
    content["users"][0]["user"] = {
        "client-certificate": str(tmp_path / "client.crt"),
        "client-key": str(tmp_path / "client.key"),
    }
    path.write_text(json.dumps(content))
    assert await name_of_the_pod(KubernetesConfig(kubeconfig=path)) == "one"
    assert secure.client_names == [("operator@example",)]


async def test_a_program_that_gives_tokens_and_fails_is_trouble_not_a_bug(
    server: KubernetesStandIn, kubeconfig: Path
) -> None:
    api = load_api(KubernetesConfig(kubeconfig=kubeconfig))

    def fail(_configuration: object) -> None:
        raise OSError("the token cannot be read")

    api.configuration.refresh_api_key_hook = fail
    with pytest.raises(HttpTrouble, match="no credentials: the token cannot be read"):
        await api.get_object("/api/v1/namespaces/default/pods/one")


async def test_a_token_that_no_header_can_carry_is_not_shown(
    server: KubernetesStandIn, kubeconfig_of: Callable[..., Path]
) -> None:
    with pytest.raises(HttpTrouble) as caught:
        await name_of_the_pod(KubernetesConfig(kubeconfig=kubeconfig_of(server.url, token="sec\nret")))
    assert "ret" not in str(caught.value)
    assert server.requests == []


class Tunnel:
    """An HTTP proxy for one connection after another, which notes what it was asked."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def serve(self, client: trio.SocketStream) -> None:
        async with client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += bytes(await client.receive_some())
            self.asked.append(head.decode())
            await client.send_all(self.answer)
            if b" 200 " not in self.answer:
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            server = await trio.open_tcp_stream(host, int(port))
            async with server, trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, client, server, nursery.cancel_scope)
                nursery.start_soon(self._copy, server, client, nursery.cancel_scope)

    async def _copy(self, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            while octets := await source.receive_some():
                await target.send_all(octets)
        except trio.BrokenResourceError:
            pass  # either end left
        scope.cancel()

    async def listen(self, nursery: trio.Nursery) -> int:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, self.serve, listeners)
        return int(listeners[0].socket.getsockname()[1])


async def test_a_proxy_of_the_kubeconfig_is_gone_through(
    secure: KubernetesStandIn, authority: trustme.CA, kubeconfig_of: Callable[..., Path], nursery: trio.Nursery
) -> None:
    tunnel = Tunnel()
    port = await tunnel.listen(nursery)
    cluster = {"certificate-authority-data": encoded(authority), "proxy-url": f"http://me:p%40ss@127.0.0.1:{port}"}
    config = KubernetesConfig(kubeconfig=kubeconfig_of(secure.url, **cluster))
    assert await name_of_the_pod(config) == "one"
    (asked,) = tunnel.asked
    assert asked.startswith(f"CONNECT 127.0.0.1:{secure.port} HTTP/1.1\r\n")
    shown = base64.b64encode(b"me:p@ss").decode()
    assert f"Proxy-Authorization: Basic {shown}\r\n" in asked
    assert "p@ss" not in repr(load_api(config).endpoint)
    assert shown not in repr(load_api(config).endpoint)
    nursery.cancel_scope.cancel()


async def test_a_proxy_of_the_environment_is_gone_through_unless_the_host_is_exempt(
    server: KubernetesStandIn, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    server.put("pods", pod("one", "10.0.0.1"))
    tunnel = Tunnel()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{await tunnel.listen(nursery)}")
    assert await name_of_the_pod(KubernetesConfig(kubeconfig=kubeconfig)) == "one"
    assert len(tunnel.asked) == 1
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert await name_of_the_pod(KubernetesConfig(kubeconfig=kubeconfig)) == "one"
    assert len(tunnel.asked) == 1
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "answers 407"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not speak HTTP"),
        (b"", "does not speak HTTP"),
    ],
)
async def test_a_proxy_that_refuses_is_named(
    server: KubernetesStandIn,
    kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
    nursery: trio.Nursery,
    answer: bytes,
    sentence: str,
) -> None:
    tunnel = Tunnel(answer)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{await tunnel.listen(nursery)}")
    with pytest.raises(HttpTrouble, match=sentence):
        await name_of_the_pod(KubernetesConfig(kubeconfig=kubeconfig))
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("url", ["https://proxy:3128", "socks5://user:hunter2@proxy:1080", "proxy:3128"])
def test_a_proxy_of_another_kind_is_the_operators_error(kubeconfig_of: Callable[..., Path], url: str) -> None:
    config = KubernetesConfig(kubeconfig=kubeconfig_of("https://api.example", **{"proxy-url": url}))
    with pytest.raises(ConfigError, match="only http proxies can be used") as caught:
        load_api(config)
    assert "hunter2" not in str(caught.value)


def test_check_reads_the_kubeconfig_that_is_named_and_the_files_that_it_names(
    tmp_path: Path, kubeconfig_of: Callable[..., Path], authority: trustme.CA
) -> None:
    registry = default_registry()
    check(KubernetesConfig(), registry)  # the service account is where the Pod is, not where its file is checked
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        check(KubernetesConfig(kubeconfig=tmp_path / "absent"), registry)
    assert caught.value.path == "kubeconfig"
    bundle = tmp_path / "ca.crt"
    path = kubeconfig_of("https://api.example", **{"certificate-authority": str(bundle)})
    bundle.write_text("no certificate")
    with pytest.raises(ConfigError) as caught:
        check(KubernetesLookupConfig(kubeconfig=path), registry)
    assert caught.value.problem == (
        f"a certificate of the kubeconfig {path} cannot be used: it is no certificate with its key"
    )
    authority.cert_pem.write_to_path(str(bundle))
    check(KubernetesConfig(kubeconfig=path), registry)
    check(KubernetesConfig(kubeconfig=kubeconfig_of("http://api.example")), registry)


def test_a_kubeconfig_is_found_as_the_library_finds_it(
    kubeconfig_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubeconfig = kubeconfig_of("http://api.example")
    monkeypatch.setenv("HOME", str(kubeconfig.parent))
    (tmp_path / "more").write_text("{}")
    for named in (f"~/{kubeconfig.name}", f"{tmp_path}/more:{kubeconfig}"):
        assert load_api(KubernetesConfig(kubeconfig=Path(named))).endpoint.host == "api.example"


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "No such file or directory"),
        ("just a text", "it is no kubeconfig, or lacks a part of one"),
        ("[1, 2]", "it is no kubeconfig, or lacks a part of one"),
    ],
)
def test_what_is_no_kubeconfig_is_told_in_an_operators_words(tmp_path: Path, content: str | None, cause: str) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_api(KubernetesConfig(kubeconfig=path))
    assert caught.value.problem.startswith(f"the kubeconfig {path} cannot be used: {cause}")
