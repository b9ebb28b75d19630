"""Flows as JSON lines: one object per flow, a member per Information Element under its IANA name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowjoin.api import DataType, FlowBatch, InformationElement
from flowjoin_s3._columns import TICKS_PER_SECOND, DistinctTexts, plain_text

__all__ = ["JsonLinesWriter"]

_FLOATS: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
_QUOTED: Final = frozenset({DataType.MAC_ADDRESS, DataType.IPV4_ADDRESS, DataType.IPV6_ADDRESS})


class JsonLinesWriter:
    """Renders the rows of one object, piece by piece, as lines of JSON."""

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
        self._texts: dict[str, DistinctTexts] = {}

    def render(self, part: FlowBatch, _inserted_at: int) -> bytes:
        """Whole lines."""
        schema = part.schema
        elements = (
            *schema.elements,
            *(schema.registry.by_name(name) for name in self._extra if name not in schema),
        )
        if self._omit_defaults:
            rows = zip(*(self._members(part, element) for element in elements), strict=True)
            return "".join("{" + ",".join(filter(None, row)) + "}\n" for row in rows).encode()
        # %s: a number becomes text where it stands; no element has a percent sign in its name
        line = "{" + ",".join(f"{json.dumps(element.name)}:%s" for element in elements) + "}\n"
        values = zip(*(self._values(part, element) for element in elements), strict=True)
        return "".join(map(line.__mod__, values)).encode()

    def _values(self, part: FlowBatch, element: InformationElement) -> Iterable[object]:
        name, data_type = element.name, element.data_type
        text = _json_text(data_type, iso_times=self._iso_times)
        if text is str:
            return part.column(name).tolist()
        if data_type is DataType.STRING or data_type.default == b"":
            return self._texts.setdefault(name, DistinctTexts(text)).of(part.column(name))
        return part.map_distinct(name, text).tolist()

    def _members(self, part: FlowBatch, element: InformationElement) -> Iterable[str]:
        prefix = json.dumps(element.name) + ":"
        text = _json_text(element.data_type, iso_times=self._iso_times)
        default = element.default
        return part.map_distinct(  # type: ignore[return-value]  # the function gives str
            element.name, lambda value: "" if value == default else prefix + text(value)
        )


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
