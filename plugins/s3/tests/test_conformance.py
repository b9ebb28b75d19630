"""flowjoin-s3 keeps the exporter contract, in each of its formats, on servers that speak S3."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import trio
from s3_exporting import MakeConfig
from s3_forwarder import Forwarder
from s3_servers import BUCKET, Server
from s3_stand_in import Answer, StandIn

from flowjoin.api import Exporter, ExporterType, PluginContext, Secret
from flowjoin.testing import ExporterConformance
from flowjoin_s3 import S3Config, _threads, flowjoin_exporter_types

OTHER_BUCKET = "other-flows"


@pytest.fixture(autouse=True)
def _threads_have_time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit counts what is open the moment after, and on a busy machine a call that nobody wants ends late."""
    monkeypatch.setattr(_threads, "STOP_SECONDS", 8.0)


def rows_in(server: Server, bucket: str) -> list[object]:
    client = server.client()
    rows: list[object] = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for each in page.get("Contents", ()):
            rows += rows_of(each["Key"], client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read())
    client.close()
    return rows


def rows_of(key: str, octets: bytes) -> list[object]:
    if key.endswith(".parquet"):
        import pyarrow.parquet

        # a time may be later than Python knows: rows are only counted here
        return list(range(pyarrow.parquet.read_table(io.BytesIO(octets)).num_rows))
    text = (gzip.decompress(octets) if key.endswith(".gz") else octets).decode()
    if ".jsonl" in key:
        return [json.loads(line) for line in text.split("\n")[:-1]]
    return list(csv.reader(io.StringIO(text, newline="")))


class TestCsvOnAStandIn(ExporterConformance):
    """Needs no server but Python."""

    @pytest.fixture
    def exporter_type(self, stand_in: StandIn) -> ExporterType:
        """The kit counts this process's sockets: the stand-in's have to be gone when the exporter's are."""
        (exporter_type,) = flowjoin_exporter_types()

        @asynccontextmanager
        async def open_and_wait(config: S3Config, context: PluginContext) -> AsyncIterator[Exporter]:
            before = stand_in.connections  # of another instance, which stays open
            try:
                async with exporter_type.open(config, context) as exporter:
                    yield exporter
            finally:
                with trio.move_on_after(30, shield=True):  # a busy machine
                    await trio.to_thread.run_sync(gc.collect)  # what an exception still refers to is closed only now
                    while stand_in.connections > before:  # noqa: ASYNC110 - they are counted in other threads
                        await trio.sleep(0.001)

        return replace(exporter_type, open=open_and_wait)

    @pytest.fixture
    def other_stand_in(self) -> Iterator[StandIn]:
        with StandIn() as server:
            yield server

    @pytest.fixture
    def config(self, stand_in: StandIn, config_of: MakeConfig, secret_files: tuple[Secret, Secret]) -> S3Config:
        return config_of(stand_in, access_key_id=secret_files[0], secret_access_key=secret_files[1])

    @pytest.fixture
    def delivered(self, stand_in: StandIn) -> Callable[[], list[object]]:
        return lambda: [row for key, octets in stand_in.objects.items() for row in rows_of(key, octets)]

    @pytest.fixture
    def other_config(self, other_stand_in: StandIn, config_of: MakeConfig) -> S3Config:
        return config_of(other_stand_in)

    @pytest.fixture
    def other_delivered(self, other_stand_in: StandIn) -> Callable[[], list[object]]:
        return lambda: [row for key, octets in other_stand_in.objects.items() for row in rows_of(key, octets)]

    @pytest.fixture
    def destination_down(self, stand_in: StandIn) -> Callable[[], AbstractContextManager[None]]:
        @contextmanager
        def down() -> Iterator[None]:
            stand_in.fault = lambda _request: Answer(drop=True)
            try:
                yield
            finally:
                stand_in.fault = lambda _request: None

        return down


class _OnMoto(ExporterConformance):
    """Buckets are emptied before each test, so that counting is quick."""

    keys: ClassVar[dict[str, Any]] = {}
    server_fixture = "moto_server"

    @pytest.fixture
    def server(self, request: pytest.FixtureRequest) -> Server:
        server: Server = request.getfixturevalue(self.server_fixture)
        client = server.client()
        existing = {each["Name"] for each in client.list_buckets()["Buckets"]}
        for bucket in (BUCKET, OTHER_BUCKET):
            if bucket not in existing:
                client.create_bucket(Bucket=bucket)
            for each in client.list_objects_v2(Bucket=bucket).get("Contents", ()):
                client.delete_object(Bucket=bucket, Key=each["Key"])
        client.close()
        return server

    @pytest.fixture
    def forwarder(self, server: Server) -> Iterator[Forwarder]:
        forwarder = Forwarder(server.port)
        yield forwarder
        forwarder.close()

    @pytest.fixture
    def exporter_type(self) -> ExporterType:
        return flowjoin_exporter_types()[0]

    @pytest.fixture
    def config(self, server: Server, config_of: MakeConfig, secret_files: tuple[Secret, Secret]) -> S3Config:
        return config_of(server, access_key_id=secret_files[0], secret_access_key=secret_files[1], **self.keys)

    @pytest.fixture
    def delivered(self, server: Server) -> Callable[[], list[object]]:
        return lambda: rows_in(server, BUCKET)

    @pytest.fixture
    def other_config(self, server: Server, config_of: MakeConfig) -> S3Config:
        return config_of(server, bucket_name=OTHER_BUCKET, **self.keys)

    @pytest.fixture
    def other_delivered(self, server: Server) -> Callable[[], list[object]]:
        return lambda: rows_in(server, OTHER_BUCKET)


class _ThroughForwarder(_OnMoto):
    """The destination can be taken down."""

    @pytest.fixture
    def config(self, forwarder: Forwarder, config_of: MakeConfig, secret_files: tuple[Secret, Secret]) -> S3Config:
        return config_of(forwarder, access_key_id=secret_files[0], secret_access_key=secret_files[1], **self.keys)

    @pytest.fixture
    def destination_down(self, forwarder: Forwarder) -> Callable[[], AbstractContextManager[None]]:
        return forwarder.down


@pytest.mark.slow
class TestAntreasCsvOnSeaweed(_OnMoto):
    server_fixture = "weed_server"
    keys: ClassVar[dict[str, Any]] = {"layout": "antrea", "csv_quoting": "rfc4180"}


@pytest.mark.slow
class TestCsvByTheHour(_ThroughForwarder):
    keys: ClassVar[dict[str, Any]] = {"compress": False}


@pytest.mark.slow
class TestJsonLines(_ThroughForwarder):
    keys: ClassVar[dict[str, Any]] = {"format": "jsonLines", "layout": "antrea"}


@pytest.mark.slow
class TestParquet(_ThroughForwarder):
    keys: ClassVar[dict[str, Any]] = {"format": "parquet"}
