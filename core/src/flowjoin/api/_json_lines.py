"""Flows as JSON lines: one object per flow, a member per Information Element under its IANA name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowjoin._kernel.row_writing import (
    Constant,
    Decimal,
    Dotted,
    Hexadecimal,
    Piece,
    TextStyle,
    chosen_of,
    rows_per_slice,
    texts_of,
)
from flowjoin._model.columns import NumberColumn, PackedColumn
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.information_element import DataType, InformationElement
from flowjoin.api._line_slices import TIMES, cut_into_slices, plain_text, write_in_chunks
from flowjoin.wire.text import json_value

__all__ = ["JsonLines"]

_PIECE_ROWS: Final = 256  # for which pieces are made at once
_ROWS: Final = 32  # in a step without compiled code: a flow has about a hundred members, so about 1 ms
_FLOATS: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
_QUOTED: Final = frozenset({DataType.MAC_ADDRESS, DataType.IPV4_ADDRESS, DataType.IPV6_ADDRESS})


class JsonLines:
    """Renders batches as lines of JSON, each an object ended by LF.

    Invariant: each line is what ``json.loads`` reads back as the flow, whatever its sender wrote.
    """

    header: Final = b""

    def __init__(
        self,
        extra: Sequence[str] = (),
        *,
        iso_times: bool = False,
        omit_defaults: bool = False,
        most_lines: int | None = None,
    ) -> None:
        """Remember the settings.

        Args:
            extra: elements that each object has beside those of its schema.
            iso_times: times as ISO 8601; else numbers in their unit.
            omit_defaults: leave out members whose value is their element's default.
            most_lines: that ``render`` gives at once; None: as many as it likes.
        """
        self._extra = tuple(extra)
        self._iso_times = iso_times
        self._omit_defaults = omit_defaults
        self._most_lines = most_lines

    def render(self, batch: FlowBatch) -> Iterable[bytes]:
        """Whole lines, a slice of the batch at a time: between two there is time for others.

        Raises:
            KeyError: the batch's registry does not have an extra element.
        """
        schema = batch.schema
        elements = (
            *schema.elements,
            *(schema.registry.by_name(name) for name in dict.fromkeys(self._extra) if name not in schema),
        )
        rows_at_once = _ROWS if self._omit_defaults else rows_per_slice(_PIECE_ROWS)
        for part in cut_into_slices(batch, rows_at_once):
            if self._omit_defaults:
                columns = [self._members(part, element) for element in elements]
                rows = (filter(None, row) for row in zip(*columns, strict=True))
                yield "".join("{" + ",".join(row) + "}\n" for row in rows).encode()
                continue
            pieces = [self._piece(part, element, b"," if at else b"{") for at, element in enumerate(elements)]
            pieces.append(Constant(b"}\n"))
            yield from write_in_chunks(pieces, len(part), at_once=_ROWS, most_lines=self._most_lines)

    def _members(self, batch: FlowBatch, element: InformationElement) -> Iterable[str]:
        """Each row's member of an element; empty for the element's default."""
        prefix, default = _prefix(element), element.default
        text = _json_text(element, iso_times=self._iso_times)
        return batch.map_distinct(  # type: ignore[return-value]  # the function gives str
            element.name, lambda value: "" if value == default else prefix + text(value)
        )

    def _piece(self, batch: FlowBatch, element: InformationElement, before: bytes) -> Piece:
        """One member of each object, with what stands before it."""
        prefix = before + _prefix(element).encode()
        text = _json_text(element, iso_times=self._iso_times)
        column = batch.column(element.name)
        if text is str and isinstance(column, NumberColumn):
            return Decimal(column, prefix)
        if element.data_type is DataType.IPV4_ADDRESS and isinstance(column, PackedColumn):
            return Dotted(column, prefix + b'"', b'"')
        if element.data_type is DataType.OCTET_ARRAY and isinstance(column, PackedColumn):
            return Hexadecimal(column, prefix + b'"', b'"')
        if element.data_type is DataType.STRING:
            return texts_of(batch, element.name, TextStyle.JSON, prefix=prefix)
        return chosen_of(batch, element.name, text, prefix=prefix)


def _prefix(element: InformationElement) -> str:
    return json.dumps(element.name) + ":"


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
