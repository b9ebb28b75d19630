"""Flows as JSON lines: one object per flow, a member per Information Element under its IANA name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowjoin.api import DataType, FlowBatch, InformationElement
from flowjoin.wire import json_value
from flowjoin_log._columns import TIMES, cut_into_slices, plain_text

__all__ = ["JsonLinesWriter"]

_ROWS: Final = 64  # in a slice: a flow has about a hundred members, so about 2 ms
_FLOATS: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
_QUOTED: Final = frozenset({DataType.MAC_ADDRESS, DataType.IPV4_ADDRESS, DataType.IPV6_ADDRESS})


class JsonLinesWriter:
    """Renders batches as lines of JSON."""

    header: Final = b""

    def __init__(self, extra: Sequence[str], *, iso_times: bool, omit_defaults: bool) -> None:
        """Remember the settings.

        Args:
            extra: elements that each object has beside those of its schema.
            omit_defaults: leave out members whose value is their element's default.
        """
        self._extra = tuple(extra)
        self._iso_times = iso_times
        self._omit_defaults = omit_defaults

    def render(self, batch: FlowBatch) -> Iterable[bytes]:
        """Whole lines, a slice of the batch at a time."""
        schema = batch.schema
        elements = (
            *schema.elements,
            *(schema.registry.by_name(name) for name in dict.fromkeys(self._extra) if name not in schema),
        )
        for part in cut_into_slices(batch, _ROWS):
            columns = [self._members(part, element) for element in elements]
            rows: Iterable[Iterable[str]] = zip(*columns, strict=True)
            if self._omit_defaults:
                rows = (filter(None, row) for row in rows)
            yield "".join("{" + ",".join(row) + "}\n" for row in rows).encode()

    def _members(self, batch: FlowBatch, element: InformationElement) -> Iterable[str]:
        prefix = json.dumps(element.name) + ":"
        text = _json_text(element, iso_times=self._iso_times)
        if self._omit_defaults:
            default = element.default
            return batch.map_distinct(  # type: ignore[return-value]  # the function gives str
                element.name, lambda value: "" if value == default else prefix + text(value)
            )
        if text is str:
            return [prefix + number for number in map(str, batch.column(element.name))]
        return batch.map_distinct(element.name, lambda value: prefix + text(value))  # type: ignore[return-value]


def _json_text(element: InformationElement, *, iso_times: bool) -> Callable[[object], str]:
    data_type = element.data_type
    if data_type is DataType.STRING:
        return lambda value: json.dumps(value, ensure_ascii=False)
    if data_type in _FLOATS:  # what is no number is a string: JSON has no words for it
        return lambda value: json.dumps(json_value(element, value))  # type: ignore[arg-type]  # values of the element
    text = plain_text(element, iso_times=iso_times)
    if data_type in _QUOTED or isinstance(element.default, bytes) or (data_type in TIMES and iso_times):
        return lambda value: f'"{text(value)}"'
    return text if data_type is DataType.BOOLEAN else str
