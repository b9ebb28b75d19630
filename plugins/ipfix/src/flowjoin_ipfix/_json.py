"""Flows as JSON, in the form of Antrea's flow aggregator: an object and a line break for each.

``{"@timestamp":"2021-11-23T22:36:15+01:00","ipfix":{"destinationIPv4Address":"10.10.0.80",…}}``, keys in
alphabetical order, ``<``, ``>`` and ``&`` escaped.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Final

from flowjoin.api import DataType, FlowBatch, InformationElement
from flowjoin.api.writers import (
    Chosen,
    Constant,
    Decimal,
    Dotted,
    Hexadecimal,
    NumberColumn,
    PackedColumn,
    Piece,
    TextStyle,
    chosen_of,
    texts_of,
    write_rows,
)
from flowjoin.wire import Template
from flowjoin_ipfix._rows import WrittenRows, written_rows

__all__ = ["JsonEncoder"]

# What Antrea's encoder escapes beside what JSON wants, in UTF-8.
_ESCAPED: Final = {
    b"<": rb"\u003c",
    b">": rb"\u003e",
    b"&": rb"\u0026",
    "\u2028".encode(): rb"\u2028",
    "\u2029".encode(): rb"\u2029",
}
_TO_ESCAPE: Final = re.compile(b"|".join(_ESCAPED))
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
            (element, f"{',' if number else ''}{json.dumps(element.name)}:".encode())
            for number, element in enumerate(elements)
        ]

    def write(self, batch: FlowBatch) -> WrittenRows:
        """Every row's line; one that is too long is refused."""
        timestamp = self._now().isoformat(timespec="seconds").replace("+00:00", "Z")
        pieces: list[Piece] = [Constant(f'{{"@timestamp":"{timestamp}","ipfix":{{'.encode())]
        pieces += [_member(batch, element, prefix) for element, prefix in self._members]
        octets, ends = write_rows([*pieces, Constant(b"}}\n")], len(batch))
        return written_rows(octets, ends, {}, self._room)


def _member(batch: FlowBatch, element: InformationElement, prefix: bytes) -> Piece:
    """One member of each object."""
    column = batch.column(element.name)
    match element.data_type:
        case DataType.STRING:
            return _escaped(texts_of(batch, element.name, TextStyle.JSON, prefix=prefix))
        case DataType.BOOLEAN:
            return chosen_of(batch, element.name, lambda value: "true" if value else "false", prefix=prefix)
        case DataType.FLOAT32 | DataType.FLOAT64:
            return chosen_of(batch, element.name, _float, prefix=prefix)
        case DataType.IPV4_ADDRESS if isinstance(column, PackedColumn):
            return Dotted(column, prefix + b'"', b'"')
        case DataType.IPV6_ADDRESS | DataType.MAC_ADDRESS:
            return chosen_of(batch, element.name, lambda value: f'"{value}"', prefix=prefix)
    if isinstance(column, NumberColumn):
        return Decimal(column, prefix)
    if element.name.endswith("UUID") and element.length == _UUID_OCTETS:
        return chosen_of(batch, element.name, lambda value: f'"{uuid.UUID(bytes=value)}"', prefix=prefix)
    if isinstance(column, PackedColumn):
        return Hexadecimal(column, prefix + b'"', b'"')
    return chosen_of(batch, element.name, lambda value: f'"{value.hex()}"', prefix=prefix)


def _escaped(chosen: Chosen) -> Chosen:
    if _TO_ESCAPE.search(b"".join(chosen.texts)) is None:
        return chosen
    return Chosen(chosen.codes, [_TO_ESCAPE.sub(lambda found: _ESCAPED[found[0]], text) for text in chosen.texts])


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
