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
from kubernetes_stand_in import KubernetesStandIn, pod

from flowjoin.api import ConfigError
from flowjoin_kubernetes import KubernetesConfig
from flowjoin_kubernetes._client import load_api
from flowjoin_kubernetes._http import HttpTrouble


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster around the test, and no kubeconfig of whoever runs it."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)


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
