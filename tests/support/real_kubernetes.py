"""A real kube-apiserver over a real etcd, as ``.ci/kubernetes`` leaves them; no controllers and no kubelet."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from held_port import HeldPort

__all__ = ["ADMIN", "READER", "RealKubernetes", "require_kubernetes"]

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


class RealKubernetes:
    """Both programs on ports of their own, with two users: an admin, and one without rights."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._held = [HeldPort() for _ in range(3)]
        self._etcd_port, self._peer_port, self.port = (each.number for each in self._held)
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        key = ["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"]
        subprocess.run(key, check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n{READER},reader,2\n')

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

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
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
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
        }
        self._server = self._process("kube-apiserver", [f"--{name}={value}" for name, value in flags.items()])
        self._wait(lambda: self.request("GET", "/readyz", raw=True) == b"ok")

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
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": kind},
        )
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # its certificate is self-made, on loopback
        with urllib.request.urlopen(request, context=context, timeout=30) as response:
            octets = response.read()
        return octets if raw else json.loads(octets)

    def put_pod(self, name: str, address: str, **labels: str) -> None:
        """A running Pod with an address, as a kubelet would make it one."""
        pods = "/api/v1/namespaces/default/pods"
        spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}
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
        self._wait(lambda: "header" in self._etcd_request("/v3/kv/range", {"key": "AA=="}))

    def _etcd_request(self, path: str, body: Any) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._etcd_port}{path}", data=data)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)

    def _process(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([self._programs / name, *arguments], stdout=log, stderr=log)

    def _wait(self, is_so: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if is_so():
                    return
            except (OSError, urllib.error.URLError):
                pass
            assert time.monotonic() < deadline, f"it did not come up: {self._folder}"
            time.sleep(0.1)
