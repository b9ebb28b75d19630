"""Data Records: octets to values, by a decoder compiled once per Template.

Strategy: neighbouring fields of fixed length are one ``struct`` each; only variable-length fields are
walked one by one; the few fields that ``struct`` cannot finish (odd integer sizes, booleans, strings,
NTP times, empty fields) have a converter. A Template without variable length is read a Set at a time.

Invariant: no octet outside ``[start, end)`` is given, and every integer is in its type's range.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, Value
from flowjoin._model.template import FieldSpecifier
from flowjoin.wire.ntp import MICROSECONDS, NANOSECONDS, from_ntp
from flowjoin.wire.text import packed_of

__all__ = ["INTEGER_TYPES", "RecordDecoder", "carries_octets"]

# struct gives Any; a converter makes the Value of what came, with the Message's export time.
_Converter: TypeAlias = Callable[[Any, int], Value]
# A run of fixed fields (None without one), its octets, and the empty value of the variable field
# behind it (None without one).
_Step: TypeAlias = tuple[Callable[[bytes, int], tuple[Any, ...]] | None, int, str | bytes | None]

_LONG_FORM: Final = 255  # RFC 7011 section 7: the length follows in two octets

INTEGER_TYPES: Final = {  # octets and signedness
    DataType.UNSIGNED8: (1, False),
    DataType.UNSIGNED16: (2, False),
    DataType.UNSIGNED32: (4, False),
    DataType.UNSIGNED64: (8, False),
    DataType.SIGNED8: (1, True),
    DataType.SIGNED16: (2, True),
    DataType.SIGNED32: (4, True),
    DataType.SIGNED64: (8, True),
}
_INTEGER_FORMATS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
# Types with exactly these lengths; float64 may be sent as a float32 (RFC 7011 section 6.2).
_FIXED_FORMATS: Final = {
    (DataType.FLOAT32, 4): "f",
    (DataType.FLOAT64, 4): "f",
    (DataType.FLOAT64, 8): "d",
    (DataType.BOOLEAN, 1): "B",
    (DataType.MAC_ADDRESS, 6): "6s",
    (DataType.IPV4_ADDRESS, 4): "4s",
    (DataType.IPV6_ADDRESS, 16): "16s",
    (DataType.DATE_TIME_SECONDS, 4): "I",
    (DataType.DATE_TIME_MILLISECONDS, 8): "Q",
    (DataType.DATE_TIME_MICROSECONDS, 8): "Q",
    (DataType.DATE_TIME_NANOSECONDS, 8): "Q",
}
_OCTET_TYPES: Final = {
    DataType.OCTET_ARRAY,
    DataType.BASIC_LIST,
    DataType.SUB_TEMPLATE_LIST,
    DataType.SUB_TEMPLATE_MULTI_LIST,
}
_ADDRESS_TYPES: Final = {DataType.IPV4_ADDRESS, DataType.IPV6_ADDRESS, DataType.MAC_ADDRESS}


def carries_octets(field: FieldSpecifier) -> bool:
    """Whether records give this field as bytes *because its length does not fit its type*.

    Integers may take 1 to 8 octets; an integer longer than its type is read, and brought into the
    type's range. Every type may be absent (length 0), which gives the element's default.
    """
    data_type, length = field.element.data_type, field.length
    if length == 0 or data_type in _OCTET_TYPES or data_type is DataType.STRING:
        return False
    if data_type in INTEGER_TYPES:
        return length > 8
    return (data_type, length) not in _FIXED_FORMATS


class RecordDecoder:
    """Reads the Data Records of one Template's fields."""

    __slots__ = ("_conversions", "_fixed", "_minimum", "_steps")

    def __init__(self, fields: tuple[FieldSpecifier, ...]) -> None:
        """Compile.

        Args:
            fields: with at least one octet in every record (else reading would never end).
        """
        self._conversions: list[tuple[int, _Converter]] = []
        self._steps: list[_Step] = []
        self._minimum = 0
        run = ""
        for index, field in enumerate(fields):
            if field.length == VARIABLE_LENGTH:
                self._add_step(run, "" if field.element.data_type is DataType.STRING else b"")
                run = ""
                continue
            code, converter = _compile_fixed(field)
            run += code
            if converter is not None:
                self._conversions.append((index, converter))
        is_fixed = not self._steps
        if run:
            self._add_step(run, None)
        assert self._minimum, "a Template whose records have no octet is refused before"
        self._fixed = struct.Struct(">" + run) if is_fixed else None

    def _add_step(self, run: str, empty: str | bytes | None) -> None:
        compiled = struct.Struct(">" + run)
        self._steps.append((compiled.unpack_from if run else None, compiled.size, empty))
        self._minimum += compiled.size + (empty is not None)

    def decode(self, data: bytes, start: int, end: int, export_time: int) -> tuple[list[tuple[Value, ...]], int | None]:
        """All records of ``data[start:end]``, and where the one that runs past the end begins (None without).

        A rest shorter than the shortest record is padding (RFC 7011 section 3.3.1).
        """
        if self._fixed is None:
            return self._decode_variable(data, start, end, export_time)
        size = self._minimum
        records: list[tuple[Value, ...]]
        if end - start < 2 * size:  # one record a Message is what Antrea's agents send
            records = [self._fixed.unpack_from(data, start)] if end - start >= size else []
        else:
            records = list(self._fixed.iter_unpack(data[start : end - (end - start) % size]))
        if self._conversions:
            records = [self._convert(list(record), export_time) for record in records]
        return records, None

    def _decode_variable(
        self, data: bytes, at: int, end: int, export_time: int
    ) -> tuple[list[tuple[Value, ...]], int | None]:
        records: list[tuple[Value, ...]] = []
        while end - at >= self._minimum:
            start = at
            values: list[Value] = []
            # Lengths are checked once a record: octets behind the end are looked at, but never given.
            try:
                for unpack_from, size, empty in self._steps:
                    if unpack_from is not None:
                        values += unpack_from(data, at)
                        at += size
                    if empty is None:
                        continue
                    length = data[at]
                    at += 1
                    if length == 0:
                        values.append(empty)
                        continue
                    if length == _LONG_FORM:
                        length = data[at] << 8 | data[at + 1]
                        at += 2
                    octets = data[at : at + length]
                    at += length
                    if empty == b"":
                        values.append(octets)
                        continue
                    try:
                        values.append(octets.decode())
                    except UnicodeDecodeError:
                        values.append(octets.decode(errors="replace"))
            except (IndexError, struct.error):
                return records, start
            if at > end:
                return records, start
            records.append(self._convert(values, export_time) if self._conversions else tuple(values))
        return records, None

    def _convert(self, values: list[Value], export_time: int) -> tuple[Value, ...]:
        for index, converter in self._conversions:
            values[index] = converter(values[index], export_time)
        return tuple(values)


def _compile_fixed(field: FieldSpecifier) -> tuple[str, _Converter | None]:
    """The struct format of a field of fixed length, and what finishes its value."""
    element, length = field.element, field.length
    data_type = element.data_type
    if length == 0:
        default = element.default
        if data_type in _ADDRESS_TYPES:
            default = packed_of(element, str(default))
        return "0s", partial(_constant, default)
    if data_type is DataType.STRING:
        return f"{length}s", _text
    if data_type in INTEGER_TYPES and length <= 8:
        return _compile_integer(*INTEGER_TYPES[data_type], length)
    code = _FIXED_FORMATS.get((data_type, length), f"{length}s")
    if code == "B":
        return code, _boolean
    if code == "Q" and data_type is DataType.DATE_TIME_MICROSECONDS:
        return code, partial(from_ntp, units_per_second=MICROSECONDS)
    if code == "Q" and data_type is DataType.DATE_TIME_NANOSECONDS:
        return code, partial(from_ntp, units_per_second=NANOSECONDS)
    return code, None


def _compile_integer(natural: int, is_signed: bool, length: int) -> tuple[str, _Converter | None]:
    """RFC 7011 section 6.2: big-endian in any number of octets, sign kept."""
    if length > natural:
        bits = 8 * natural - is_signed
        return f"{length}s", partial(
            _saturated, is_signed=is_signed, low=-(1 << bits) if is_signed else 0, high=(1 << bits) - 1
        )
    if length in _INTEGER_FORMATS:
        code = _INTEGER_FORMATS[length]
        return code.lower() if is_signed else code, None
    return f"{length}s", partial(_integer, is_signed=is_signed)


def _constant(default: Value, _value: bytes, _export_time: int) -> Value:
    return default


def _text(value: bytes, _export_time: int) -> str:
    return value.rstrip(b"\0").decode("utf-8", "replace")


def _boolean(value: int, _export_time: int) -> bool:
    return value == 1  # RFC 7011 section 6.1.5: 1 is true, 2 is false


def _integer(value: bytes, _export_time: int, *, is_signed: bool) -> int:
    return int.from_bytes(value, "big", signed=is_signed)


def _saturated(value: bytes, _export_time: int, *, is_signed: bool, low: int, high: int) -> int:
    return min(max(int.from_bytes(value, "big", signed=is_signed), low), high)
