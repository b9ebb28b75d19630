"""Servers that speak S3, each in a process of its own: SeaweedFS for truth, moto for speed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config
from held_port import HeldPort

__all__ = [
    "ACCESS_KEY",
    "BUCKET",
    "READER_KEY",
    "READER_SECRET",
    "SECRET_KEY",
    "Server",
    "client_of",
    "moto",
    "program",
    "weed",
]

BUCKET: Final = "flows"
ACCESS_KEY: Final = "AKWRITES"
SECRET_KEY: Final = "the-secret-of-who-writes"
READER_KEY: Final = "AKREADS"
READER_SECRET: Final = "the-secret-of-who-reads"
_PATIENCE: Final = 120.0  # SeaweedFS has been seen to take 45 s on a machine that others used


def client_of(url: str, *, ca: Path | None = None, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY) -> Any:
    """A client of boto3's that may do everything."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        verify=str(ca) if ca else None,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=5),
    )


class Server:
    """A server in a process of its own, killed without a word; it keeps its ports until it is closed."""

    def __init__(
        self, command: Sequence[str], ports: Sequence[HeldPort], *, scheme: str = "http", ca: Path | None = None
    ) -> None:
        """Take the command, and the ports that it names: the one for S3 first."""
        self._command = command
        self._ports = ports
        self._scheme = scheme
        self.ca = ca
        self.port = ports[0].number
        self.patience = _PATIENCE
        self._client: Any = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        host = "localhost" if self._scheme == "https" else "127.0.0.1"
        return f"{self._scheme}://{host}:{self.port}"

    def start(self) -> None:
        """Returns when a bucket can be made."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        client = self.client()
        deadline = time.monotonic() + self.patience
        while True:
            try:
                client.list_buckets()
                break
            except Exception:
                assert self._process.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.05)  # it says nowhere when it is ready
        client.close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Kill it; its ports are anybody's then."""
        self.kill()
        for each in self._ports:
            each.close()

    @contextmanager
    def down(self) -> Iterator[None]:
        self.kill()
        try:
            yield
        finally:
            self.start()

    def client(self) -> Any:
        """Always the same, which takes long to make; closed, it has no connections, and opens new ones when asked."""
        if self._client is None:
            self._client = client_of(self.url, ca=self.ca)
        return self._client


def weed(directory: Path, *, certificate: tuple[Path, Path, Path] | None = None) -> Server:
    """SeaweedFS with its data in the directory; ``certificate``: of the server, its key, its authority."""
    directory.mkdir(parents=True, exist_ok=True)
    identities = [
        (ACCESS_KEY, SECRET_KEY, ["Admin", "Read", "Write", "List", "Tagging"]),
        (READER_KEY, READER_SECRET, ["Read", "List"]),
    ]
    settings = directory / "s3.json"
    settings.write_text(
        json.dumps(
            {
                "identities": [
                    {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
                    for key, secret, actions in identities
                ]
            }
        )
    )
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    ports = [HeldPort() for _ in range(len(names) + 2)]
    s3, s3_grpc, *inner = (each.number for each in ports)
    command = [
        *(program("weed"), "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-{name}={port}" for name, port in zip(names, inner, strict=True)),
        *("-s3", "-s3.ip.bind=127.0.0.1", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-s3.config={settings}", "-s3.iam=false", "-s3.autoCreateBucket=false"),
        # each bucket takes seven volumes at once, empty or not
        *("-master.volumeSizeLimitMB=64", "-volume.max=500", "-volume.preStopSeconds=0"),
    ]
    if certificate:
        command += [f"-s3.cert.file={certificate[0]}", f"-s3.key.file={certificate[1]}"]
    return Server(
        command,
        ports,
        scheme="https" if certificate else "http",
        ca=certificate[2] if certificate else None,
    )


def moto() -> Server:
    """moto's server: everything is in memory and anybody may do anything."""
    port = HeldPort()
    return Server([program("moto_server"), "-H", "127.0.0.1", "-p", str(port.number)], [port])


def program(name: str) -> str:
    """Where the program is: installed beside Python, or by .ci/setup; a name that leads nowhere if it is not."""
    places = (Path(sys.executable).parent, Path(__file__).parents[2] / ".ci" / "servers" / "bin")
    return next((str(place / name) for place in places if (place / name).exists()), name)
