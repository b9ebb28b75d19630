"""Flows as JSON, in the form of Antrea's flow aggregator: an object and a line break for each.

``{"@timestamp":"2021-11-23T22:36:15+01:00","ipfix":{"destinationIPv4Address":"10.10.0.80",…}}``, keys in
alphabetical order, ``<``, ``>`` and ``&`` escaped.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from flowjoin.api import DataType, FlowBatch, InformationElement
from flowjoin.wire import Template
from flowjoin_ipfix._rows import WrittenRows, written_rows

__all__ = ["JsonEncoder"]

_NUMBERS: Final = frozenset(
    data_type
    for data_type in DataType
    if data_type.value.startswith(("unsigned", "signed", "dateTime")) and data_type.natural_length
)
_FLOATS: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
_ADDRESSES: Final = frozenset({DataType.IPV4_ADDRESS, DataType.IPV6_ADDRESS, DataType.MAC_ADDRESS})
# What Antrea's encoder escapes beside what JSON wants.
_ESCAPED: Final = str.maketrans(
    {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
)
_UUID_OCTETS: Final = 16


class JsonEncoder:
    """Writes the flows of one Template as JSON."""

    def __init__(self, template: Template, room: int, *, now: Callable[[], datetime]) -> None:
        """Plan the work.

        Args:
            room: octets that a line may have.
            now: gives the time of ``@timestamp``, with its zone.
        """
        self._room = room
        self._now = now
        elements = sorted((field.element for field in template.fields), key=lambda element: element.name)
        self._members = [
            (element.name, f"{',' if number else ''}{json.dumps(element.name)}:", _text(element))
            for number, element in enumerate(elements)
        ]

    def write(self, batch: FlowBatch) -> WrittenRows:
        """Every row's line; one that is too long is refused."""
        timestamp = self._now().isoformat(timespec="seconds").replace("+00:00", "Z")
        head = f'{{"@timestamp":"{timestamp}","ipfix":{{'
        columns = [self._column(batch, *member) for member in self._members]
        lines = [head + "".join(row) + "}}\n" for row in zip(*columns, strict=True)]
        return written_rows(list(map(str.encode, lines)), {}, self._room)

    def _column(
        self, batch: FlowBatch, name: str, prefix: str, text: Callable[[object], str] | None
    ) -> Iterable[object]:
        if text is None:
            return [prefix + number for number in map(str, batch.column(name).tolist())]
        return batch.map_distinct(name, lambda value: prefix + text(value)).tolist()


def _text(element: InformationElement) -> Callable[[object], str] | None:
    """How a value is written; None where it is a number's own text."""
    data_type = element.data_type
    if data_type in _NUMBERS:
        return None
    if data_type in _FLOATS:
        return _float
    if data_type in _ADDRESSES:
        return lambda value: f'"{value}"'
    if data_type is DataType.BOOLEAN:
        return lambda value: "true" if value else "false"
    if data_type is DataType.STRING:
        return lambda value: json.dumps(value, ensure_ascii=False).translate(_ESCAPED)
    if element.name.endswith("UUID") and element.length == _UUID_OCTETS:
        return lambda value: f'"{uuid.UUID(bytes=value)}"'  # type: ignore[arg-type]  # sixteen octets
    return lambda value: f'"{value.hex()}"'  # type: ignore[attr-defined]  # octets


def _float(value: object) -> str:
    assert isinstance(value, float)
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
