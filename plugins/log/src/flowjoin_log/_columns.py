"""The columns of a log line, and each column's values as texts.

A batch is rendered column by column: one list of texts per column, then the rows are zipped together. Strings,
names and times are looked at once per distinct value of the batch (``map_distinct``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowjoin.api import ConfigError, DataType, ElementRegistry, FlowBatch, InformationElement
from flowjoin.api.writers import Piece, rows_per_slice, write_rows
from flowjoin.wire import text_of

__all__ = [
    "ADDRESSES",
    "TIMES",
    "columns_of",
    "cut_into_slices",
    "plain_text",
    "refuse_unknown_elements",
    "written_lines",
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

TIMES: Final = frozenset(
    {
        DataType.DATE_TIME_SECONDS,
        DataType.DATE_TIME_MILLISECONDS,
        DataType.DATE_TIME_MICROSECONDS,
        DataType.DATE_TIME_NANOSECONDS,
    }
)


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


def written_lines(pieces: Sequence[Piece], rows: int, *, at_once: int) -> Iterable[bytes]:
    """Whole lines in order, at most so many at once: between two chunks a file may be rotated."""
    step = rows_per_slice(at_once)
    for first in range(0, rows, step):
        octets, ends = write_rows(pieces, rows, first, min(first + step, rows))
        start = 0
        for last in range(at_once, len(ends) + at_once, at_once):
            end = ends[min(last, len(ends)) - 1]
            yield octets[start:end]
            start = end


def plain_text(element: InformationElement, *, iso_times: bool) -> Callable[[object], str]:
    """How a value is written where no format asks for more: as flowjoin does, times as numbers unless ``iso_times``."""
    if element.data_type in TIMES and not iso_times:
        return str
    return lambda value: text_of(element, value)  # type: ignore[arg-type]  # values of the element
