"""Rows of one schema as IPFIX Data Records and back, column by column; pure.

Strategy: in a record all fields of fixed length come first, then those of variable length, each group in the order of
the schema. The fixed part of all rows is one array of octets, into which each column is laid octet by octet with a
stride (which turns the byte order on the way); a string is encoded once per distinct value.

Invariant: what ``encode`` wrote ``decode`` gives back as an equal batch: every value of every data type, NaN octet by
octet, strings with surrogates too. What a record cannot hold is refused with ``UnfitError`` and nothing is written.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate
from typing import Final

from flowjoin._model.columns import (
    NUMBER_FORMATS,
    Column,
    DictionaryColumn,
    NumberColumn,
    PackedColumn,
    factorise,
    is_packed,
)
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import FlowSchema
from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, InformationElement, Value
from flowjoin._model.template import FieldSpecifier, Template, TemplateId
from flowjoin.wire.ntp import MICROSECONDS, NANOSECONDS, from_ntp, to_ntp

__all__ = ["DamagedError", "RowLayout", "UnfitError"]

_MAX_FIELDS: Final = 8_000  # a Template of more may not fit into a Message
_ROOM: Final = 65_535 - 16 - 4  # of a Message, behind its header and its Set's
_SHORT_FORM_LIMIT: Final = 255  # RFC 7011 section 7
_LONG_FORM: Final = b"\xff"
_IS_LITTLE: Final = sys.byteorder == "little"
_NTP_UNITS: Final = {
    DataType.DATE_TIME_MICROSECONDS: MICROSECONDS,
    DataType.DATE_TIME_NANOSECONDS: NANOSECONDS,
}
_NTP_REACH: Final = (1 << 31) - 2  # seconds from the export time within which a stamp's era is certain
# RFC 7011 section 6.1.5: 1 is true, 2 is false; a column has 1 and 0.
_TO_WIRE_BOOLEAN: Final = bytes([2, *[1] * 255])
_FROM_WIRE_BOOLEAN: Final = bytes([0, 1, *[0] * 254])


class UnfitError(Exception):
    """These rows cannot be Data Records: too long for a Message, or a time out of reach."""


class DamagedError(Exception):
    """These octets are not what was written."""


class RowLayout:
    """How one schema's rows lie in Data Records."""

    def __init__(self, schema: FlowSchema) -> None:
        self.schema = schema
        self._fixed: list[tuple[int, int, int]] = []  # position in the schema, offset in the record, octets
        self._variable: list[int] = []
        self._width = 0
        for position, element in enumerate(schema.elements):
            octets = _octets_of(element)
            if octets is None:
                self._variable.append(position)
            else:
                self._fixed.append((position, self._width, octets))
                self._width += octets

    @property
    def is_fit(self) -> bool:
        """Whether there can be a Template of it."""
        return 0 < len(self.schema.elements) <= _MAX_FIELDS and self._width <= _ROOM

    def template(self, template_id: int) -> Template:
        """The Template of its records."""
        fields = [(position, octets) for position, _, octets in self._fixed]
        fields += [(position, VARIABLE_LENGTH) for position in self._variable]
        elements = self.schema.elements
        return Template(
            version=10,
            template_id=TemplateId(template_id),
            fields=tuple(FieldSpecifier(elements[position], octets) for position, octets in fields),
        )

    def encode(self, batch: FlowBatch, export_time: int) -> Generator[None, None, list[tuple[bytes, int]]]:
        """The rows as bodies of Data Sets that fit into a Message each, with their numbers of rows; in steps.

        Raises:
            UnfitError: a row that no Message can hold.
        """
        columns = batch.columns
        count, width = len(batch), self._width
        fixed = bytearray(count * width)
        for position, offset, octets in self._fixed:
            source, is_turned = _fixed_octets(columns[position], export_time)
            for index in range(octets):
                fixed[offset + index :: width] = source[octets - 1 - index if is_turned else index :: octets]
        whole = bytes(fixed)
        if not self._variable:
            step = max(1, _ROOM // width) if width else 1
            return [(whole[at * width : (at + step) * width], min(step, count - at)) for at in range(0, count, step)]
        yield
        parts: list[Sequence[bytes]] = [_encoded_texts(columns[position]) for position in self._variable]
        yield
        if width:
            parts.insert(0, [whole[at : at + width] for at in range(0, len(whole), width)])
        return list(_packed_into_sets(list(map(b"".join, zip(*parts, strict=True)))))

    def decode(
        self, bodies: Sequence[bytes], export_time: int, *, is_first_export: bool
    ) -> Generator[None, None, FlowBatch]:
        """The rows that ``encode`` made these bodies of; in steps.

        Raises:
            DamagedError: they are not.
        """
        texts: list[list[bytes]] = [[] for _ in self._variable]
        data = b"".join(bodies)
        fixed = self._walk(data, texts) if self._variable else data
        rows = len(texts[0]) if self._variable else len(fixed) // self._width if self._width else 0
        if len(fixed) != rows * self._width:
            raise DamagedError("a record is cut")
        yield
        elements = self.schema.elements
        columns: dict[int, Column] = {}
        for position, offset, octets in self._fixed:
            columns[position] = _fixed_column(elements[position], fixed, offset, octets, self._width, rows, export_time)
        for position, column in zip(self._variable, texts, strict=True):
            columns[position] = _text_column(elements[position], column)
        made = [columns[position] for position in range(len(elements))]
        return FlowBatch(self.schema, made, is_first_export=is_first_export)

    def _walk(self, data: bytes, texts: list[list[bytes]]) -> bytes:
        """Part records into their fixed octets, which it gives, and their texts, which it appends."""
        width, at, end = self._width, 0, len(data)
        fixed: list[bytes] = []
        appends = [column.append for column in texts]
        try:
            while at < end:
                fixed.append(data[at : at + width])
                at += width
                for append in appends:
                    length = data[at]
                    at += 1
                    if length == _SHORT_FORM_LIMIT:
                        length = data[at] << 8 | data[at + 1]
                        at += 2
                    append(data[at : at + length])
                    at += length
        except IndexError:
            raise DamagedError("a record runs past the end") from None
        if at != end:
            raise DamagedError("records do not end where their Sets do")
        return b"".join(fixed)


def _octets_of(element: InformationElement) -> int | None:
    """Octets in a record; None where each record says."""
    if element.data_type in NUMBER_FORMATS:
        return element.data_type.natural_length
    return element.length if is_packed(element) else None


def _fixed_octets(column: Column, export_time: int) -> tuple[bytes, bool]:
    """A column's values side by side, and whether the octets of each are in the machine's order, turned."""
    octets = column.buffer.tobytes()  # type: ignore[union-attr]  # fixed columns have a buffer
    if isinstance(column, PackedColumn):
        return octets, False
    data_type = column.element.data_type
    if data_type is DataType.BOOLEAN:
        return octets.translate(_TO_WIRE_BOOLEAN), False
    units = _NTP_UNITS.get(data_type)
    if units is not None:
        assert isinstance(column, NumberColumn)
        values: list[int] = column.buffer.tolist()
        furthest = max(abs(value // units - export_time) for value in (min(values), max(values))) if values else 0
        if furthest >= _NTP_REACH:
            raise UnfitError(f"{column.element.name}: a time too far from now")
        octets = array("Q", [to_ntp(value, units) for value in values]).tobytes()
    return octets, _IS_LITTLE


def _fixed_column(
    element: InformationElement, data: bytes, offset: int, octets: int, width: int, rows: int, export_time: int
) -> Column:
    buffer = bytearray(rows * octets)
    is_turned = _IS_LITTLE and not is_packed(element) and element.data_type is not DataType.BOOLEAN
    for index in range(octets):
        buffer[octets - 1 - index if is_turned else index :: octets] = data[offset + index :: width]
    if is_packed(element):
        return PackedColumn(element, bytes(buffer))
    if element.data_type is DataType.BOOLEAN:
        return NumberColumn(element, bytes(buffer).translate(_FROM_WIRE_BOOLEAN))
    units = _NTP_UNITS.get(element.data_type)
    if units is not None:
        stamps = array("Q", bytes(buffer))
        try:
            return NumberColumn(element, array("Q", [from_ntp(stamp, export_time, units) for stamp in stamps]))
        except OverflowError:
            raise DamagedError("a time before 1970") from None
    return NumberColumn(element, bytes(buffer))


def _encoded_texts(column: Column) -> Sequence[bytes]:
    """Each row's value with its length before it (RFC 7011 section 7), encoded once per distinct value."""
    assert isinstance(column, DictionaryColumn)
    encoded: list[bytes] = []
    for value in column.dictionary:
        octets = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else _as_bytes(value)
        length = len(octets)
        if length < _SHORT_FORM_LIMIT:
            encoded.append(length.to_bytes(1, "big") + octets)
        elif length <= _ROOM:
            encoded.append(_LONG_FORM + length.to_bytes(2, "big") + octets)
        else:
            raise UnfitError(f"{column.element.name}: {length} octets in one value")
    return list(map(encoded.__getitem__, column.codes.tolist()))


def _as_bytes(value: Value) -> bytes:
    assert isinstance(value, bytes), "a dictionary has str or bytes"
    return value


def _text_column(element: InformationElement, values: list[bytes]) -> Column:
    codes, distinct = factorise(values)
    if element.data_type is not DataType.STRING:
        return DictionaryColumn(element, codes, distinct)
    decode: Callable[[bytes], str] = lambda octets: octets.decode("utf-8", "surrogatepass")  # noqa: E731 - for map
    try:
        return DictionaryColumn(element, codes, tuple(map(decode, distinct)))
    except UnicodeDecodeError:
        raise DamagedError("a string that is none") from None


def _packed_into_sets(records: list[bytes]) -> Iterator[tuple[bytes, int]]:
    """As many records in each as fit."""
    ends = list(accumulate(map(len, records)))
    start, done = 0, 0
    while start < len(records):
        stop = bisect_right(ends, done + _ROOM, lo=start)
        if stop == start:
            raise UnfitError(f"a row of {len(records[start])} octets")
        yield b"".join(records[start:stop]), stop - start
        start, done = stop, ends[stop - 1]
