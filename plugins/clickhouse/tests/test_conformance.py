"""flowjoin-clickhouse keeps the exporter contract, with a server and with the embedded engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_process import ClickHouseProcess

from flowjoin.api import ExporterType, Secret
from flowjoin.testing import ExporterConformance
from flowjoin_clickhouse import ClickHouseConfig, SchemaConfig, flowjoin_exporter_types


def rows_in(server: ClickHouseProcess, database: str) -> list[object]:
    if not server.query(f"SELECT 1 FROM system.tables WHERE database = '{database}' AND name = 'flows'"):
        return []
    (count,) = server.query(f"SELECT count() FROM {database}.flows")
    return [None] * int(count[0])


class TestServer(ExporterConformance):
    @pytest.fixture
    def exporter_type(self) -> ExporterType:
        return flowjoin_exporter_types()[0]

    @pytest.fixture
    def config(self, server: ClickHouseProcess, database: str, password: str) -> ClickHouseConfig:
        return ClickHouseConfig(
            database_url=server.url,
            database=database,
            password=Secret("env", "CH_PASSWORD"),
            create_schema=True,
            schema=SchemaConfig(views=False),
        )

    @pytest.fixture
    def delivered(self, server: ClickHouseProcess, config: ClickHouseConfig) -> Callable[[], list[object]]:
        return lambda: rows_in(server, config.database)

    @pytest.fixture
    def other_config(self, server: ClickHouseProcess, database: str, config: ClickHouseConfig) -> ClickHouseConfig:
        return ClickHouseConfig(
            database_url=server.url,
            database=f"{database}_other",
            password=config.password,
            create_schema=True,
            schema=config.schema,
        )

    @pytest.fixture
    def other_delivered(self, server: ClickHouseProcess, other_config: ClickHouseConfig) -> Callable[[], list[object]]:
        return lambda: rows_in(server, other_config.database)

    @pytest.fixture
    def destination_down(self, server: ClickHouseProcess) -> Callable[[], AbstractContextManager[None]]:
        @contextmanager
        def down() -> Iterator[None]:
            server.kill()
            try:
                yield
            finally:
                server.start()

        return down


class TestEmbedded(ExporterConformance):
    """One engine for all of them, in this process."""

    @pytest.fixture
    def exporter_type(self) -> ExporterType:
        return flowjoin_exporter_types()[0]

    @pytest.fixture
    def config(self, request: pytest.FixtureRequest) -> ClickHouseConfig:
        return ClickHouseConfig(
            database_url="chdb://memory", database=request.node.name, schema=SchemaConfig(views=False)
        )

    @pytest.fixture
    def delivered(self, embedded: Client, config: ClickHouseConfig) -> Callable[[], list[object]]:
        return lambda: embedded_rows(embedded, config.database)

    @pytest.fixture
    def other_config(self, config: ClickHouseConfig) -> ClickHouseConfig:
        return ClickHouseConfig(database_url="chdb://memory", database=f"{config.database}_other", schema=config.schema)

    @pytest.fixture
    def other_delivered(self, embedded: Client, other_config: ClickHouseConfig) -> Callable[[], list[object]]:
        return lambda: embedded_rows(embedded, other_config.database)


def embedded_rows(embedded: Client, database: str) -> list[object]:
    if not embedded.query(f"SELECT 1 FROM system.tables WHERE database = '{database}' AND name = 'flows'").result_rows:
        return []
    (count,) = embedded.query(f"SELECT count() FROM {database}.flows").result_rows
    return [None] * int(count[0])
