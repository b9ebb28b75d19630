"""Flows as JSON lines: one object per flow, a member per Information Element under its IANA name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowjoin.api import DataType, FlowBatch, InformationElement
from flowjoin_s3._columns import TICKS_PER_SECOND, plain_text

__all__ = ["JsonLinesWriter"]

_FLOATS: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
_QUOTED: Final = frozenset({DataType.MAC_ADDRESS, DataType.IPV4_ADDRESS, DataType.IPV6_ADDRESS})


class JsonLinesWriter:
    """Renders rows as lines of JSON."""

    rows: Final = 64  # that are rendered at a time: a flow has about a hundred members
    header: Final = b""

    def __init__(self, extra: Sequence[str], *, iso_times: bool, omit_defaults: bool) -> None:
        """Remember the settings.

        Args:
            extra: elements that each object has beside those of its schema.
            omit_defaults: leave out members whose value is their element's default.
        """
        self._extra = tuple(dict.fromkeys(extra))
        self._iso_times = iso_times
        self._omit_defaults = omit_defaults

    def render(self, part: FlowBatch, _inserted_at: int) -> bytes:
        """Whole lines."""
        schema = part.schema
        elements = (
            *schema.elements,
            *(schema.registry.by_name(name) for name in self._extra if name not in schema),
        )
        rows: Iterable[Iterable[str]] = zip(*(self._members(part, element) for element in elements), strict=True)
        if self._omit_defaults:
            rows = (filter(None, row) for row in rows)
        return "".join("{" + ",".join(row) + "}\n" for row in rows).encode()

    def _members(self, part: FlowBatch, element: InformationElement) -> Iterable[str]:
        prefix = json.dumps(element.name) + ":"
        text = _json_text(element.data_type, iso_times=self._iso_times)
        if self._omit_defaults:
            default = element.default
            return part.map_distinct(  # type: ignore[return-value]  # the function gives str
                element.name, lambda value: "" if value == default else prefix + text(value)
            )
        if text is str:
            return [prefix + number for number in map(str, part.column(element.name))]
        return part.map_distinct(element.name, lambda value: prefix + text(value))  # type: ignore[return-value]


def _json_text(data_type: DataType, *, iso_times: bool) -> Callable[[object], str]:
    if data_type is DataType.STRING:
        return lambda value: json.dumps(value, ensure_ascii=False)
    if data_type in _QUOTED:
        return lambda value: f'"{value}"'
    if data_type in _FLOATS:
        # JSON has no words for what is no number; these are the strings of its mapping for Protocol Buffers.
        return lambda value: repr(value) if math.isfinite(value) else f'"{_word(value)}"'  # type: ignore[arg-type]
    if data_type is DataType.BOOLEAN:
        return plain_text(data_type, iso_times=iso_times)
    if data_type.default == b"" or (data_type in TICKS_PER_SECOND and iso_times):
        text = plain_text(data_type, iso_times=iso_times)
        return lambda value: f'"{text(value)}"'
    return str


def _word(value: object) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value == math.inf else "-Infinity"
