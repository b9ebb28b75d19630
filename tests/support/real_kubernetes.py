"""A real kube-apiserver over a real etcd, as ``.ci/kubernetes`` leaves them; no controllers and no kubelet."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from held_port import HeldPort
from waiting import wait_until

__all__ = ["ADMIN", "READER", "RealKubernetes", "real_cluster", "require_kubernetes", "write_kubeconfig"]

_AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
"""
ADMIN = "token-of-the-admin"
READER = "token-of-nobody-much"
PATIENCE = 90.0


def require_kubernetes() -> Path:
    """The folder with the two programs; skips without them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("FLOWJOIN_KUBERNETES") or cache / "flowjoin" / "kubernetes")
    if not all(os.access(folder / name, os.X_OK) for name in ("kube-apiserver", "etcd")):
        pytest.skip(f"no kube-apiserver and etcd in {folder}: .ci/kubernetes builds them")
    return folder


@pytest.fixture(scope="module")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubernetes]:
    """One for the module's tests, which must not mind each other's objects."""
    cluster = RealKubernetes(require_kubernetes(), tmp_path_factory.mktemp("kubernetes"))
    with cluster.running():
        yield cluster


def write_kubeconfig(path: Path, url: str, token: str = ADMIN) -> Path:
    """A kubeconfig, for a server whose certificate is self-made: JSON is YAML."""
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "me", "user": {"token": token}}],
    }
    path.write_text(json.dumps(content))
    return path


class RealKubernetes:
    """Both programs on ports of their own, with two users: an admin, and one without rights.

    Attributes:
        host: the address that the API server has beside loopback; what it shows is made for it.
        certificate: what verifies the API server.
        audit_log: what was asked by whom, a JSON object a line.
    """

    def __init__(self, programs: Path, folder: Path, host: str = "127.0.0.1") -> None:
        self._programs = programs
        self._folder = folder
        self.host = host
        self.certificate = folder / "certificates" / "apiserver.crt"
        self.audit_log = folder / "audit.log"
        self._held = [HeldPort() for _ in range(3)]
        self._etcd_port, self._peer_port, self.port = (each.number for each in self._held)
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        key = ["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"]
        subprocess.run(key, check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n{READER},reader,2\n')
        (folder / "audit.yaml").write_text(_AUDIT)

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Both running; killed at the end."""
        try:
            self._start_etcd()
            self.start()
            yield
        finally:
            for process in (self._server, self._etcd):
                if process is not None:
                    process.kill()
                    process.wait(PATIENCE)
            for each in self._held:
                each.close()

    def start(self) -> None:
        """Start the API server, and wait until it is ready."""
        etcd = f"http://127.0.0.1:{self._etcd_port}"
        flags = {
            "etcd-servers": etcd,
            "bind-address": self.host,
            "advertise-address": self.host,
            "secure-port": str(self.port),
            "insecure-port": "0",
            "cert-dir": str(self._folder / "certificates"),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": str(self._folder / "sa.key"),
            "service-account-key-file": str(self._folder / "sa.key"),
            "service-cluster-ip-range": "10.96.0.0/24",
            "authorization-mode": "RBAC",
            "token-auth-file": str(self._folder / "tokens.csv"),
            "disable-admission-plugins": "ServiceAccount",
            "audit-policy-file": str(self._folder / "audit.yaml"),
            "audit-log-path": str(self.audit_log),
        }
        self._server = self._process("kube-apiserver", [f"--{name}={value}" for name, value in flags.items()])
        self.wait(lambda: self.request("GET", "/readyz", raw=True) == b"ok")

    def kill(self) -> None:
        """SIGKILL the API server; etcd keeps what it knows."""
        assert self._server is not None, "it was started"
        self._server.send_signal(signal.SIGKILL)
        self._server.wait(PATIENCE)

    def request(self, method: str, path: str, body: Any = None, *, token: str = ADMIN, raw: bool = False) -> Any:
        """What the API server answers, parsed unless raw.

        Raises:
            OSError: it does not, or refuses.
        """
        kinds = {"PATCH": "application/merge-patch+json", "APPLY": "application/apply-patch+yaml"}
        kind = kinds.get(method, "application/json")
        request = urllib.request.Request(
            f"{self.url}{path}",
            method="PATCH" if method == "APPLY" else method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": kind},
        )
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # its certificate is self-made, on loopback
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as response:
                octets = response.read()
        except urllib.error.HTTPError as exc:
            exc.add_note(exc.read().decode())
            raise
        return octets if raw else json.loads(octets)

    def apply(self, manifest: dict[str, Any], *, is_dry: bool = False) -> Any:
        """Server-side apply: a field that the server does not know is an error.

        Raises:
            OSError: the server refuses.
        """
        version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        known = self.request("GET", group)["resources"]
        (resource,) = [each for each in known if each["kind"] == kind and "/" not in each["name"]]
        place = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
        query = "fieldManager=tests&force=true" + ("&dryRun=All" if is_dry else "")
        return self.request("APPLY", f"{group}{place}/{resource['name']}/{metadata['name']}?{query}", manifest)

    def make_namespace(self) -> str:
        """A new one; gives its name."""
        made = self.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})
        return str(made["metadata"]["name"])

    def make_token(self, namespace: str, name: str) -> str:
        """The token of a service account, as a Pod gets one."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        made = self.request("POST", path, {"spec": {"expirationSeconds": 3600}})
        return str(made["status"]["token"])

    def put_pod(
        self, name: str, address: str, *, namespace: str = "default", node: str = "node-1", **labels: str
    ) -> None:
        """A running Pod with an address, as a kubelet would make it one."""
        pods = f"/api/v1/namespaces/{namespace}/pods"
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        self.request("POST", pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        self.request("PATCH", f"{pods}/{name}/status", {"status": status})

    def delete_pod(self, name: str) -> None:
        """At once."""
        path = f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0"
        self.request("DELETE", path)

    def compact(self) -> None:
        """Let etcd forget all history."""
        found = self._etcd_request("/v3/kv/range", {"key": "AA=="})
        self._etcd_request("/v3/kv/compaction", {"revision": found["header"]["revision"], "physical": True})

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        flags = {
            "data-dir": str(self._folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        self._etcd = self._process("etcd", [f"--{name}={value}" for name, value in flags.items()])
        self.wait(lambda: "header" in self._etcd_request("/v3/kv/range", {"key": "AA=="}))

    def _etcd_request(self, path: str, body: Any) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._etcd_port}{path}", data=data)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def _process(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([self._programs / name, *arguments], stdout=log, stderr=log)

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so; a request that fails says that it is not."""

        def answers() -> bool:
            with contextlib.suppress(OSError, urllib.error.URLError):
                return is_so()
            return False

        wait_until(answers, f"it comes up: {self._folder}", patience=PATIENCE)
