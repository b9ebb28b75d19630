"""The columns of a log line, and each column's values as texts.

A batch is rendered column by column: one list of texts per column, then the rows are zipped together. Strings,
names and times are looked at once per distinct value of the batch (``map_distinct``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from flowjoin.api import ConfigError, DataType, ElementRegistry, FlowBatch

__all__ = [
    "ADDRESSES",
    "FLOATS",
    "TICKS_PER_SECOND",
    "columns_of",
    "cut_into_chunks",
    "cut_into_slices",
    "iso_time",
    "plain_text",
    "refuse_unknown_elements",
]

_FLOW: Final = (
    "flowStartSeconds",
    "flowEndSeconds",
    "sourceIP",
    "destinationIP",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "sourcePodName",
    "sourcePodNamespace",
    "sourceNodeName",
    "destinationPodName",
    "destinationPodNamespace",
    "destinationNodeName",
    "destinationClusterIP",
)
_POLICIES: Final = (
    "destinationServicePort",
    "destinationServicePortName",
    "ingressNetworkPolicyName",
    "ingressNetworkPolicyNamespace",
    "ingressNetworkPolicyRuleName",
    "ingressNetworkPolicyRuleAction",
    "ingressNetworkPolicyType",
    "egressNetworkPolicyName",
    "egressNetworkPolicyNamespace",
    "egressNetworkPolicyRuleName",
    "egressNetworkPolicyRuleAction",
    "egressNetworkPolicyType",
    "egressName",
    "egressIP",
)
_COLUMNS: Final = {
    "antrea-2.7": (*_FLOW, "destinationServiceIP", *_POLICIES, "egressNodeName"),
    "antrea-2.3": (*_FLOW, *_POLICIES, "appProtocolName", "httpVals", "egressNodeName"),
}

# One column for both address families, and what it is to ``FlowBatch.address_text``.
ADDRESSES: Final = {
    "sourceIP": "source",
    "destinationIP": "destination",
    "destinationClusterIP": "destinationCluster",
    "destinationServiceIP": "destinationService",
}

TICKS_PER_SECOND: Final = {
    DataType.DATE_TIME_SECONDS: 1,
    DataType.DATE_TIME_MILLISECONDS: 10**3,
    DataType.DATE_TIME_MICROSECONDS: 10**6,
    DataType.DATE_TIME_NANOSECONDS: 10**9,
}
FLOATS: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
_LATEST_SECOND: Final = 253_402_300_799  # 9999-12-31T23:59:59Z: a calendar with four digits ends there


def columns_of(compatibility: str, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the columns: Antrea's of that release, then the extra elements that are not among them."""
    usual = _COLUMNS[compatibility]
    return (*usual, *(name for name in dict.fromkeys(extra) if name not in usual))


def refuse_unknown_elements(names: Iterable[str], registry: ElementRegistry) -> None:
    """See to it that every name is an Information Element.

    Raises:
        ConfigError: one is not.
    """
    for index, name in enumerate(names):
        try:
            registry.by_name(name)
        except KeyError:
            raise ConfigError(
                f"there is no Information Element {name!r}; names are IANA's or Antrea's, such as octetDeltaCount",
                path=f"elements[{index}]",
            ) from None


def cut_into_slices(batch: FlowBatch, rows: int) -> Iterable[FlowBatch]:
    """The batch in order, in batches of at most so many rows."""
    return (batch.slice(start, min(start + rows, len(batch))) for start in range(0, len(batch), rows))


def cut_into_chunks(octets: bytes, ends: Sequence[int], rows: int) -> Iterable[bytes]:
    """Written lines in order, at most so many at once: between two chunks a file may be rotated."""
    start = 0
    for last in range(rows, len(ends) + rows, rows):
        end = ends[min(last, len(ends)) - 1]
        yield octets[start:end]
        start = end


def iso_time(value: int, ticks_per_second: int) -> str:
    """``2021-11-23T22:36:01Z``, with as many digits of fraction as the type has; beyond year 9999 the number."""
    seconds, ticks = divmod(value, ticks_per_second)
    if seconds > _LATEST_SECOND:
        return str(value)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = len(str(ticks_per_second)) - 1
    return f"{text}.{ticks:0{digits}d}Z" if digits else f"{text}Z"


def plain_text(data_type: DataType, *, iso_times: bool) -> Callable[[object], str]:
    """How a value of the type is written where no format asks for more: octets in hex, true and false."""
    if data_type in TICKS_PER_SECOND and iso_times:
        ticks = TICKS_PER_SECOND[data_type]
        return lambda value: iso_time(int(value), ticks)  # type: ignore[call-overload]  # times are int
    if data_type is DataType.BOOLEAN:
        return lambda value: "true" if value else "false"
    return lambda value: value.hex() if isinstance(value, bytes) else str(value)
