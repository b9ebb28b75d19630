"""Batches as Arrow: which Arrow type each data type has, and the buffers it needs.

Numbers, fixed octets and codes are handed over where they lie. Made anew are only booleans (bits in
Arrow), seconds (64 bits wide in Arrow) and dictionaries (small).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from flowjoin._model.arrow_abi import (
    ArrowArray,
    ArrowSchema,
    array_capsule,
    buffer_address,
    schema_capsule,
    stream_capsule,
)
from flowjoin._model.columns import Column, NumberColumn, PackedColumn
from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, InformationElement

__all__ = ["arrow_array", "arrow_schema", "arrow_stream"]

_NUMBERS: Final = {
    DataType.UNSIGNED8: "C",
    DataType.UNSIGNED16: "S",
    DataType.UNSIGNED32: "I",
    DataType.UNSIGNED64: "L",
    DataType.SIGNED8: "c",
    DataType.SIGNED16: "s",
    DataType.SIGNED32: "i",
    DataType.SIGNED64: "l",
    DataType.FLOAT32: "f",
    DataType.FLOAT64: "g",
    DataType.BOOLEAN: "b",
    DataType.DATE_TIME_SECONDS: "tss:UTC",
    DataType.DATE_TIME_MILLISECONDS: "tsm:UTC",
    DataType.DATE_TIME_MICROSECONDS: "tsu:UTC",
    DataType.DATE_TIME_NANOSECONDS: "tsn:UTC",
}
_LONG_TIMES: Final = frozenset(
    {DataType.DATE_TIME_MILLISECONDS, DataType.DATE_TIME_MICROSECONDS, DataType.DATE_TIME_NANOSECONDS}
)
_TEXTS: Final = frozenset(
    {DataType.STRING, DataType.IPV4_ADDRESS, DataType.IPV6_ADDRESS, DataType.MAC_ADDRESS},
)
_CODES: Final = "i"  # signed, because pandas takes no unsigned codes; a batch never has 2**31 distinct values
_LARGEST_TIME: Final = 2**63 - 1
_BITS: Final = bytes([ord("0")]) + bytes([ord("1")]) * 255


def arrow_schema(elements: Sequence[InformationElement]) -> object:
    """The capsule ``arrow_schema``: a struct with a field per element."""
    return schema_capsule(_struct_schema(elements))


def arrow_array(
    elements: Sequence[InformationElement], columns: Sequence[Column], length: int
) -> tuple[object, object]:
    """The capsules ``arrow_schema`` and ``arrow_array``."""
    return arrow_schema(elements), array_capsule(_struct_array(columns, length))


def arrow_stream(elements: Sequence[InformationElement], columns: Sequence[Column], length: int) -> object:
    """The capsule ``arrow_array_stream``, which gives the whole batch at once."""
    return stream_capsule(lambda: _struct_schema(elements), _struct_array(columns, length))


def _struct_schema(elements: Sequence[InformationElement]) -> ArrowSchema:
    return ArrowSchema.make("+s", children=list(map(_field, elements)))


def _struct_array(columns: Sequence[Column], length: int) -> ArrowArray:
    return ArrowArray.make(length, children=list(map(_array, columns)))


def _field(element: InformationElement) -> ArrowSchema:
    data_type = element.data_type
    if data_type in _NUMBERS:
        return ArrowSchema.make(_NUMBERS[data_type], element.name)
    if data_type is DataType.OCTET_ARRAY and element.length != VARIABLE_LENGTH:
        return ArrowSchema.make(f"w:{element.length}", element.name)
    return ArrowSchema.make(_CODES, element.name, dictionary=ArrowSchema.make("u" if data_type in _TEXTS else "z"))


def _array(column: Column) -> ArrowArray:
    if isinstance(column, NumberColumn):
        return ArrowArray.make(len(column), [_number_buffer(column)])
    if isinstance(column, PackedColumn) and column.element.data_type not in _TEXTS:
        return ArrowArray.make(len(column), [column.buffer])
    octets = [value.encode() if isinstance(value, str) else value for value in column.dictionary]
    offsets = array("i", [0])
    for value in octets:
        offsets.append(offsets[-1] + len(value))  # type: ignore[arg-type]  # text and octets only have a dictionary
    dictionary = ArrowArray.make(len(octets), [memoryview(offsets), memoryview(b"".join(octets))])  # type: ignore[arg-type]  # as above
    return ArrowArray.make(len(column), [_aligned(column.codes)], dictionary=dictionary)


def _number_buffer(column: NumberColumn) -> memoryview:
    data_type = column.element.data_type
    if data_type is DataType.BOOLEAN:
        # The first row is the lowest bit of the first octet.
        bits = int(b"0" + column.buffer.tobytes()[::-1].translate(_BITS), 2)
        return memoryview(bits.to_bytes(len(column) // 8 + 1, "little"))
    if data_type is DataType.DATE_TIME_SECONDS:
        return memoryview(array("q", column.buffer.tolist()))
    if data_type in _LONG_TIMES and max(column.buffer.tolist(), default=0) > _LARGEST_TIME:
        # A time past Arrow's last: the last, rather than one before 1970.
        return memoryview(array("q", [min(time, _LARGEST_TIME) for time in column.buffer.tolist()]))
    return _aligned(column.buffer)


def _aligned(buffer: memoryview) -> memoryview:
    """The buffer, or a copy where it lies across word boundaries, which Arrow's readers need not take."""
    address = buffer_address(buffer)
    return buffer if address is None or address % buffer.itemsize == 0 else memoryview(buffer.tobytes())
