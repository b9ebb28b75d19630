"""The columns of a CSV line, and texts of single values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from flowjoin.api import ConfigError, DataType, ElementRegistry, Value

__all__ = [
    "ADDRESSES",
    "CLUSTER_UUID",
    "LABELS",
    "TICKS_PER_SECOND",
    "TIME_INSERTED",
    "DistinctTexts",
    "columns_of",
    "iso_time",
    "plain_text",
    "refuse_unknown_elements",
]

CLUSTER_UUID: Final = "clusterUUID"  # the two columns that are no Information Element
TIME_INSERTED: Final = "timeInserted"

_BEFORE_SERVICE: Final = (
    "flowStartSeconds",
    "flowEndSeconds",
    "flowEndSecondsFromSourceNode",
    "flowEndSecondsFromDestinationNode",
    "flowEndReason",
    "sourceIP",
    "destinationIP",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "packetTotalCount",
    "octetTotalCount",
    "packetDeltaCount",
    "octetDeltaCount",
    "reversePacketTotalCount",
    "reverseOctetTotalCount",
    "reversePacketDeltaCount",
    "reverseOctetDeltaCount",
    "sourcePodName",
    "sourcePodNamespace",
    "sourceNodeName",
    "destinationPodName",
    "destinationPodNamespace",
    "destinationNodeName",
    "destinationClusterIP",
)
_AFTER_SERVICE: Final = (
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
    "tcpState",
    "flowType",
    "sourcePodLabels",
    "destinationPodLabels",
    "throughput",
    "reverseThroughput",
    "throughputFromSourceNode",
    "throughputFromDestinationNode",
    "reverseThroughputFromSourceNode",
    "reverseThroughputFromDestinationNode",
    CLUSTER_UUID,
    TIME_INSERTED,
    "egressName",
    "egressIP",
)
_COLUMNS: Final = {
    "antrea-2.7": (*_BEFORE_SERVICE, "destinationServiceIP", *_AFTER_SERVICE, "egressNodeName"),
    "antrea-2.3": (*_BEFORE_SERVICE, *_AFTER_SERVICE, "appProtocolName", "httpVals", "egressNodeName"),
}

LABELS: Final = frozenset({"sourcePodLabels", "destinationPodLabels"})

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
_LATEST_SECOND: Final = 253_402_300_799  # 9999-12-31T23:59:59Z: a calendar with four digits ends there


class DistinctTexts:
    """Texts of a column's distinct values, each made when it is first met, for all pieces of one batch."""

    def __init__(self, text: Callable[[object], str]) -> None:
        self._text = text
        self._dictionary: Sequence[Value] = ()
        self._known: dict[int, str] = {}

    def of(self, column: Any) -> Iterable[str]:
        """The texts of a piece.

        Args:
            column: with codes and dictionary: of strings or octets, whose pieces share one dictionary.
        """
        if column.dictionary is not self._dictionary:
            self._dictionary = column.dictionary
            self._known = _Known(self._text, self._dictionary)
        return map(self._known.__getitem__, column.codes.tolist())


class _Known(dict[int, str]):
    def __init__(self, text: Callable[[object], str], dictionary: Sequence[Value]) -> None:
        self._text = text
        self._dictionary = dictionary

    def __missing__(self, code: int) -> str:
        text = self[code] = self._text(self._dictionary[code])
        return text


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
