"""The statements that make Antrea's table and what we add to it; pure.

Columns, their types and order, the sorting key and the three views are Antrea's. Added are codecs, partitions, a view
with a row a minute, and deduplication windows. A partition is a function of the row alone, never of the time of
insertion: a repeated insert must fall into the partitions of the first, else it is not recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from flowjoin.api import ElementRegistry
from flowjoin_clickhouse._columns import ANTREA_TYPES, table_columns, type_of
from flowjoin_clickhouse._config import SchemaConfig

__all__ = ["add_columns", "create_database", "create_table", "create_views", "quoted", "set_window"]

_LONGEST_TTL_MERGE: Final = 14400
_PARTITIONS: Final = {"day": "toYYYYMMDD(flowEndSeconds)", "month": "toYYYYMM(flowEndSeconds)"}
_CODECS: Final = {
    "DateTime": "CODEC(Delta(4), ZSTD(1))",
    "UInt64": "CODEC(T64, ZSTD(1))",
    "String": "CODEC(ZSTD(1))",
}

_TIMES: Final = ("timeInserted", "flowEndSeconds", "flowEndSecondsFromSourceNode", "flowEndSecondsFromDestinationNode")
_POD_SUMS: Final = (
    "octetDeltaCount",
    "reverseOctetDeltaCount",
    "throughput",
    "reverseThroughput",
    "throughputFromSourceNode",
    "throughputFromDestinationNode",
)
_NODE_SUMS: Final = (
    "octetDeltaCount",
    "reverseOctetDeltaCount",
    "throughput",
    "reverseThroughput",
    "throughputFromSourceNode",
    "reverseThroughputFromSourceNode",
    "throughputFromDestinationNode",
    "reverseThroughputFromDestinationNode",
)
# Suffix of the view's name, key columns, summed columns.
_VIEWS: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
    (
        "pod_view",
        (
            *_TIMES,
            "sourcePodName",
            "destinationPodName",
            "destinationIP",
            "destinationServicePort",
            "destinationServicePortName",
            "flowType",
            "sourcePodNamespace",
            "destinationPodNamespace",
            "sourceTransportPort",
            "destinationTransportPort",
        ),
        _POD_SUMS,
    ),
    (
        "node_view",
        (*_TIMES, "sourceNodeName", "destinationNodeName", "sourcePodNamespace", "destinationPodNamespace"),
        _NODE_SUMS,
    ),
    (
        "policy_view",
        (
            *_TIMES,
            "egressNetworkPolicyName",
            "egressNetworkPolicyNamespace",
            "egressNetworkPolicyRuleAction",
            "ingressNetworkPolicyName",
            "ingressNetworkPolicyNamespace",
            "ingressNetworkPolicyRuleAction",
            "sourcePodName",
            "sourceTransportPort",
            "sourcePodNamespace",
            "destinationPodName",
            "destinationTransportPort",
            "destinationPodNamespace",
            "destinationServicePort",
            "destinationServicePortName",
            "destinationIP",
        ),
        _NODE_SUMS,
    ),
)
_MINUTE_KEYS: Final = (
    "clusterUUID",
    "sourcePodNamespace",
    "sourcePodName",
    "destinationPodNamespace",
    "destinationPodName",
    "destinationServicePortName",
    "protocolIdentifier",
    "flowType",
    "ingressNetworkPolicyRuleAction",
    "egressNetworkPolicyRuleAction",
)
_MINUTE_SUMS: Final = ("octetDeltaCount", "packetDeltaCount", "reverseOctetDeltaCount", "reversePacketDeltaCount")


def quoted(*names: str) -> str:
    """An identifier, dotted where it has several parts."""
    return ".".join("`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`" for name in names)


def create_database(database: str) -> str:
    """The statement that makes the database."""
    return f"CREATE DATABASE IF NOT EXISTS {quoted(database)}"


def create_table(
    database: str,
    table: str,
    config: SchemaConfig,
    *,
    compatibility: str,
    elements: Sequence[str],
    registry: ElementRegistry,
) -> str:
    """The statement that makes the table.

    Args:
        elements: columns after Antrea's.
    """
    columns = list(table_columns(compatibility))
    known = {name for name, _ in columns}
    columns += [(name, _type(name, registry)) for name in dict.fromkeys(elements) if name not in known]
    lines = ",\n    ".join(_with_codec(name, definition) for name, definition in columns)
    partition = f"PARTITION BY {_PARTITIONS[config.partition_by]}\n" if config.partition_by != "none" else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {quoted(database, table)} (\n    {lines}\n)\nENGINE = MergeTree\n{partition}"
        f"ORDER BY (timeInserted, flowEndSeconds)\n{_ttl('timeInserted', config)}{_settings(config)}"
    )


def create_views(database: str, table: str, config: SchemaConfig) -> Iterator[tuple[str, str]]:
    """The views over the table, each with the statement that makes it."""
    source = quoted(database, table)
    for suffix, keys, sums in _VIEWS:
        view = f"{table}_{suffix}"
        yield view, _create_view(quoted(database, view), source, keys, sums, config, ttl=_ttl("timeInserted", config))
    # By the day of insertion, as the table: flows of an old capture are not too old the moment they come.
    minute = ("toStartOfMinute(flowEndSeconds) AS minute", *_MINUTE_KEYS, "toDate(timeInserted) AS dateInserted")
    view, ttl = f"{table}_minute_view", _ttl("dateInserted + INTERVAL 1 DAY", config)
    yield view, _create_view(quoted(database, view), source, minute, _MINUTE_SUMS, config, ttl=ttl, count="flows")


def add_columns(database: str, table: str, names: Iterable[str], registry: ElementRegistry) -> str:
    """The statement that adds columns to a table that has not all of them."""
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {_with_codec(name, _type(name, registry))}" for name in names)
    return f"ALTER TABLE {quoted(database, table)} {added}"


def set_window(database: str, table: str, window: int) -> str:
    """The statement that gives a table its deduplication window."""
    return f"ALTER TABLE {quoted(database, table)} MODIFY SETTING non_replicated_deduplication_window = {window}"


def _create_view(
    view: str,
    source: str,
    keys: Sequence[str],
    sums: Sequence[str],
    config: SchemaConfig,
    *,
    ttl: str,
    count: str = "",
) -> str:
    names = ", ".join(key.rpartition(" AS ")[2] for key in keys)
    selected = [*keys, *(f"sum({name}) AS {name}" for name in sums), *([f"count() AS {count}"] if count else [])]
    return (
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view}\nENGINE = SummingMergeTree\nORDER BY ({names})\n"
        f"{ttl}{_settings(config)}\nPOPULATE AS SELECT {', '.join(selected)}\nFROM {source}\nGROUP BY {names}"
    )


def _with_codec(name: str, definition: str) -> str:
    codec = _CODECS.get(definition.partition(" ")[0], "")
    return f"{quoted(name)} {definition} {codec}".rstrip()


def _type(name: str, registry: ElementRegistry) -> str:
    return ANTREA_TYPES.get(name) or type_of(registry.by_name(name))


def _ttl(column: str, config: SchemaConfig) -> str:
    return f"TTL {column} + INTERVAL {int(config.ttl)} SECOND\n" if config.ttl >= 1 else ""


def _settings(config: SchemaConfig) -> str:
    settings = [f"non_replicated_deduplication_window = {config.deduplication_window}"]
    if config.ttl >= 1:
        settings.append(f"merge_with_ttl_timeout = {min(_LONGEST_TTL_MERGE, int(config.ttl))}")
    return "SETTINGS " + ", ".join(settings)
