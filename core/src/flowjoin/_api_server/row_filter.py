"""Which rows of a batch a filter means; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter

__all__ = ["row_filter"]


def row_filter(flow_filter: FlowFilter) -> Callable[[FlowBatch], FlowBatch]:
    """A function that gives the rows that match; addresses may be given in any spelling."""
    source, destination = _canonical(flow_filter.source), _canonical(flow_filter.destination)
    numbers = (
        ("protocolIdentifier", flow_filter.protocol_identifier),
        ("sourceTransportPort", flow_filter.source_port),
        ("destinationTransportPort", flow_filter.destination_port),
    )
    wanted = [(name, number) for name, number in numbers if number is not None]
    if source is None and destination is None and not wanted:
        return lambda batch: batch

    def matching(batch: FlowBatch) -> FlowBatch:
        columns: list[tuple[Sequence[object], object]] = [(batch.column(name), number) for name, number in wanted]
        if source is not None:
            columns.append((batch.address_text("source"), source))
        if destination is not None:
            columns.append((batch.address_text("destination"), destination))
        return batch.take([row for row in range(len(batch)) if all(column[row] == value for column, value in columns)])

    return matching


def _canonical(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text  # of no flow
