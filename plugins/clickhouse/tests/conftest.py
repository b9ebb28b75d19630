"""One server for all tests, with a database for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_process import ClickHouseProcess, require_engine, require_engine_inside

from flowjoin.api import Secret
from flowjoin_clickhouse import ClickHouseConfig, SchemaConfig

_NUMBERS = itertools.count(1)
PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseProcess]:
    """The stand-in over the real engine, on a directory."""
    require_engine()
    process = ClickHouseProcess(tmp_path_factory.mktemp("clickhouse") / "data", password=PASSWORD)
    with process.running():
        yield process


@pytest.fixture
def database(server: ClickHouseProcess) -> str:
    """A database of the test's own; it does not exist yet."""
    server.arm(times=0)
    return f"flows_{next(_NUMBERS)}"


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's password, in CH_PASSWORD."""
    monkeypatch.setenv("CH_PASSWORD", PASSWORD)
    return PASSWORD


@pytest.fixture
def config(server: ClickHouseProcess, database: str, password: str) -> ClickHouseConfig:
    """A table of the test's own, made by the exporter."""
    return ClickHouseConfig(
        database_url=server.url,
        database=database,
        password=Secret("env", "CH_PASSWORD"),
        create_schema=True,
        timeout=60.0,
        schema=SchemaConfig(ttl=0.0),
    )


@pytest.fixture(scope="session")
def embedded() -> Iterator[Client]:
    """The engine in this process, in memory; it lives until the last test that asks for it."""
    require_engine_inside()
    client = clickhouse_connect.get_client(interface="chdb")
    yield client
    client.close()
