"""The statements that make Antrea's table and what we add to it; pure.

Columns, their types and order, the sorting key and the three views are Antrea's. Added are codecs, partitions, a view
with a row a minute, and deduplication windows. A partition is a function of the row alone, never of the time of
insertion: a repeated insert must fall into the partitions of the first, else it is not recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from flowjoin.api import ElementRegistry
from flowjoin_clickhouse._columns import ANTREA_TYPES, table_columns, type_of
from flowjoin_clickhouse._config import SchemaConfig

__all__ = [
    "VIEWS",
    "View",
    "add_columns",
    "attach_partition",
    "create_database",
    "create_table",
    "create_table_like",
    "create_views",
    "drop_table",
    "partitions_of",
    "quoted",
    "set_window",
    "tables_named",
]

_LONGEST_TTL_MERGE: Final = 14400
_PARTITIONS: Final = {"day": "toYYYYMMDD(flowEndSeconds)", "month": "toYYYYMM(flowEndSeconds)"}
_CODECS: Final = {
    "DateTime": "CODEC(Delta(4), ZSTD(1))",
    "UInt64": "CODEC(T64, ZSTD(1))",
    "String": "CODEC(ZSTD(1))",
}

_INSERTED: Final = "timeInserted"
_TIMES: Final = (_INSERTED, "flowEndSeconds", "flowEndSecondsFromSourceNode", "flowEndSecondsFromDestinationNode")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A materialised view over the table.

    Attributes:
        suffix: of its name, after the table's.
        keys: expressions that rows are grouped by.
        inserted: the one of them that is the time of insertion.
        sums: columns that are added up.
        count: column that counts rows; empty without one.
        age: what the rows' time to live is counted from.
    """

    suffix: str
    keys: tuple[str, ...]
    inserted: str
    sums: tuple[str, ...]
    count: str = ""
    age: str = _INSERTED


_ANTREA_VIEWS: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
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
_DAY_INSERTED: Final = "toDate(timeInserted) AS dateInserted"

VIEWS: Final = (
    *(View(suffix=suffix, keys=keys, inserted=_INSERTED, sums=sums) for suffix, keys, sums in _ANTREA_VIEWS),
    # By the day of insertion, as the table: flows of an old capture are not too old the moment they come.
    View(
        suffix="minute_view",
        keys=("toStartOfMinute(flowEndSeconds) AS minute", *_MINUTE_KEYS, _DAY_INSERTED),
        inserted=_DAY_INSERTED,
        sums=_MINUTE_SUMS,
        count="flows",
        age="dateInserted + INTERVAL 1 DAY",
    ),
)


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
    for view in VIEWS:
        name = f"{table}_{view.suffix}"
        yield name, _create_view(quoted(database, name), source, view, config)


def add_columns(database: str, table: str, names: Iterable[str], registry: ElementRegistry) -> str:
    """The statement that adds columns to a table that has not all of them."""
    added = ", ".join(f"ADD COLUMN IF NOT EXISTS {_with_codec(name, _type(name, registry))}" for name in names)
    return f"ALTER TABLE {quoted(database, table)} {added}"


def set_window(database: str, table: str, window: int) -> str:
    """The statement that gives a table its deduplication window."""
    return f"ALTER TABLE {quoted(database, table)} MODIFY SETTING non_replicated_deduplication_window = {window}"


def create_table_like(database: str, table: str, other: str) -> str:
    """The statement that makes an empty table of the same shape, engine and settings."""
    return f"CREATE TABLE {quoted(database, table)} AS {quoted(database, other)}"


def drop_table(database: str, table: str) -> str:
    """The statement after which there is no such table, and no trace of it that would be in the way of a new one."""
    return f"DROP TABLE IF EXISTS {quoted(database, table)} SYNC"


def tables_named(database: str, beginning: str) -> str:
    """The question which tables have names that begin so."""
    where = f"database = {_literal(database)} AND startsWith(name, {_literal(beginning)})"
    return f"SELECT name FROM system.tables WHERE {where}"  # noqa: S608 - quoted


def partitions_of(database: str, table: str) -> str:
    """The question which partitions there are."""
    return f"SELECT DISTINCT _partition_id FROM {quoted(database, table)}"  # noqa: S608 - quoted


def attach_partition(database: str, table: str, partition: str, other: str) -> str:
    """The statement that adds another table's partition to a table, which no view sees."""
    return f"ALTER TABLE {quoted(database, table)} ATTACH PARTITION ID '{partition}' FROM {quoted(database, other)}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _create_view(name: str, source: str, view: View, config: SchemaConfig) -> str:
    names = ", ".join(key.rpartition(" AS ")[2] for key in view.keys)
    sums = [f"sum({each}) AS {each}" for each in view.sums]
    selected = [*view.keys, *sums, *([f"count() AS {view.count}"] if view.count else [])]
    return (
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name}\nENGINE = SummingMergeTree\nORDER BY ({names})\n"
        f"{_ttl(view.age, config)}{_settings(config)}\n"
        f"POPULATE AS SELECT {', '.join(selected)}\nFROM {source}\nGROUP BY {names}"
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
