"""The manifests applied to a real API server, and the Pod that they describe, which tests start."""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from deployment import MANIFESTS, manifest, objects
from pod import Pod
from real_kubernetes import RealKubernetes
from running_flowjoin import Program

__all__ = ["NAMESPACE", "Deployed"]

NAMESPACE = "flow-aggregator"
_CLUSTER = "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"
_PATIENCE = 120.0
_FORWARDER = """
import socket, sys, threading
def carry(one, other):
    try:
        while octets := one.recv(65536):
            other.sendall(octets)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass
listener = socket.socket(fileno=int(sys.argv[1]))
while True:
    near, _ = listener.accept()
    far = socket.create_connection(("127.0.0.1", 10348))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=carry, args=pair, daemon=True).start()
"""


class Deployed:
    """A cluster with what the manifests ask for, flows' Pods in it, and the Pod of flowjoin, which does not run yet."""

    def __init__(self, cluster: RealKubernetes, pod: Pod, folder: Path) -> None:
        self.cluster = cluster
        self.pod = pod
        self.folder = folder
        self.configuration = manifest("ConfigMap", "flow-aggregator-configmap")["data"]
        self._programs: list[Program] = []

    def prepare(self) -> None:
        """What an administrator, Antrea's controller and kubelets do."""
        ask = self.cluster.request
        for one in objects(MANIFESTS.read_text()):
            self.cluster.apply(one)
        for namespace, account in (("kube-system", "antrea-agent"), (NAMESPACE, "reader"), (NAMESPACE, "operator")):
            accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            ask("POST", accounts, {"metadata": {"name": account}})
        for role in ("reader", "operator"):
            binding = {
                "metadata": {"name": role},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"flow-aggregator-{role}",
                },
                "subjects": [{"kind": "ServiceAccount", "name": role, "namespace": NAMESPACE}],
            }  # fmt: skip
            ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        identity = {"metadata": {"name": "antrea-cluster-identity"}, "data": {"uuid": _CLUSTER}}
        ask("POST", "/api/v1/namespaces/kube-system/configmaps", identity)
        ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        self.cluster.put_pod("client", "10.10.0.79", app="client")
        self.cluster.put_pod("server", "10.10.0.80", namespace="shop", node="node-2")
        self.pod.config.write(self.configuration)
        token = self.cluster.make_token(NAMESPACE, "flow-aggregator")
        ca = self.cluster.certificate.read_text()
        self.pod.account.write({"token": token, "ca.crt": ca, "namespace": NAMESPACE})

    def start(self) -> Program:
        template = manifest("Deployment")["spec"]["template"]
        self._programs.append(self.pod.start(template, (self.pod.host, self.cluster.port)))
        return self._programs[-1]

    def start_edge(self, folder: Path) -> Program:
        """A flowjoin that sends on, as an agent does over TLS, with what agents read."""
        token = self.cluster.make_token("kube-system", "antrea-agent")
        place = f"/api/v1/namespaces/{NAMESPACE}"
        ca = self.cluster.request("GET", f"{place}/configmaps/flow-aggregator-ca", token=token)["data"]["ca.crt"]
        shown = self.cluster.request("GET", f"{place}/secrets/flow-aggregator-client-tls", token=token)["data"]
        return self._start_edge(
            folder, {"ca.crt": ca, **{name: base64.b64decode(text).decode() for name, text in shown.items()}}
        )

    def _start_edge(self, folder: Path, files: dict[str, str]) -> Program:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        path = folder / "edge.yaml"
        path.write_text(
            f"""
stateDirectory: {folder}/state
mode: Proxy
collectors: [{{protocol: tcp, address: "127.0.0.1:0"}}]
apiServer: {{address: none}}
exporters:
  - type: ipfix
    address: "{self.pod.address}:4739"
    protocol: tls
    template: agent
    tls:
      ca: {folder}/ca.crt
      certificate: {folder}/tls.crt
      key: {folder}/tls.key
      serverName: flow-aggregator.{NAMESPACE}.svc
"""
        )
        self._programs.append(Program("-c", str(path)))
        return self._programs[-1]

    def end(self) -> None:
        for program in self._programs:
            if program.process.poll() is None:
                program.process.kill()
            program.process.communicate()

    def ask(self, token: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """flowjoin on somebody's own machine, with the token of a service account."""
        file = self.folder / "token"
        file.write_text(self.cluster.make_token(NAMESPACE, token) if token != "nobody" else "nobody's")
        with self._forwarded() as port:
            shown = ("--server", f"https://127.0.0.1:{port}", "--insecure", "--token-file", str(file))
            return subprocess.run(
                [sys.executable, "-m", "flowjoin", *arguments, *shown],
                capture_output=True, text=True, timeout=_PATIENCE, check=False,
            )  # fmt: skip

    @contextlib.contextmanager
    def _forwarded(self) -> Iterator[int]:
        """A port of this machine that leads to the Pod's loopback, as ``kubectl port-forward`` makes one."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            command = self.pod.command(sys.executable, "-c", _FORWARDER, str(listener.fileno()))
            process = subprocess.Popen(command, pass_fds=[listener.fileno()])
            try:
                yield listener.getsockname()[1]
            finally:
                process.kill()
                process.wait()
