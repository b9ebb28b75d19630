"""Exporter plugin: rows of a ClickHouse table, on a server or in an engine inside this process."""

from flowjoin.api import ExporterType, hookimpl
from flowjoin_clickhouse._check import check
from flowjoin_clickhouse._config import ClickHouseConfig, SchemaConfig, TlsConfig, patience
from flowjoin_clickhouse._exporter import batching, open_clickhouse

__all__ = ["ClickHouseConfig", "SchemaConfig", "TlsConfig", "flowjoin_exporter_types"]


@hookimpl
def flowjoin_exporter_types() -> list[ExporterType]:
    """Hand over the type that ``type: clickhouse`` stands for."""
    return [
        ExporterType(
            "clickhouse",
            ClickHouseConfig,
            open_clickhouse,
            api_version=1,
            batching=batching,
            check=check,
            patience=patience,
        )
    ]
