"""Data Records: values to octets, by an encoder compiled once per Template.

Invariant: what is written, ``RecordDecoder`` reads back as the same values (a float in four octets
rounded, a padded string without trailing NULs), or nothing is written and ``EncodeError`` names the element.
"""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from flowjoin._model.errors import EncodeError
from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, InformationElement, Value
from flowjoin._model.template import FieldSpecifier, Template
from flowjoin.wire.ntp import MICROSECONDS, NANOSECONDS, to_ntp
from flowjoin.wire.records import INTEGER_TYPES, carries_octets
from flowjoin.wire.text import packed_of

__all__ = ["RecordEncoder"]

_FieldEncoder: TypeAlias = Callable[[Value], bytes]

_SHORT_FORM_LIMIT: Final = 255  # RFC 7011 section 7
_ADDRESS_LENGTHS: Final = {DataType.IPV4_ADDRESS: 4, DataType.IPV6_ADDRESS: 16, DataType.MAC_ADDRESS: 6}
_NTP_UNITS: Final = {
    DataType.DATE_TIME_MICROSECONDS: MICROSECONDS,
    DataType.DATE_TIME_NANOSECONDS: NANOSECONDS,
}


class RecordEncoder:
    """Writes the Data Records of one Template."""

    __slots__ = ("_encoders", "template")

    def __init__(self, template: Template) -> None:
        self.template = template
        self._encoders = tuple(_field_encoder(field) for field in template.fields)

    def encode(self, record: Sequence[Value]) -> bytes:
        """One record's octets; one value a field, addresses as text or as packed octets.

        Raises:
            EncodeError: a value its field cannot carry, or not one value a field.
        """
        if len(record) != len(self._encoders):
            raise EncodeError(f"{len(record)} values for {len(self._encoders)} fields")
        return b"".join([encode(value) for encode, value in zip(self._encoders, record, strict=True)])


def _field_encoder(field: FieldSpecifier) -> _FieldEncoder:
    """What writes a field's values; it checks them itself, so that the error can name the element."""
    element, length = field.element, field.length
    data_type = element.data_type
    if length == 0:
        return _nothing
    is_text = data_type is DataType.STRING
    if length == VARIABLE_LENGTH:
        return partial(_variable, element, is_text)
    if is_text:
        return partial(_padded_text, element, length)
    if carries_octets(field):
        return partial(_octets, element, length)
    if data_type in INTEGER_TYPES:
        natural, is_signed = INTEGER_TYPES[data_type]
        bits = 8 * min(natural, length) - is_signed
        return partial(_integer, element, length, -(1 << bits) if is_signed else 0, (1 << bits) - 1)
    match data_type:
        case DataType.FLOAT32 | DataType.FLOAT64:
            return partial(_float, element, struct.Struct(">f" if length == 4 else ">d"))
        case DataType.BOOLEAN:
            return partial(_boolean, element)
        case DataType.DATE_TIME_SECONDS | DataType.DATE_TIME_MILLISECONDS:
            return partial(_integer, element, length, 0, (1 << 8 * length) - 1)
        case DataType.DATE_TIME_MICROSECONDS | DataType.DATE_TIME_NANOSECONDS:
            return partial(_ntp, element, _NTP_UNITS[data_type])
        case DataType.IPV4_ADDRESS | DataType.IPV6_ADDRESS | DataType.MAC_ADDRESS:
            return partial(_address, element)
    return partial(_octets, element, length)


def _refused(element: InformationElement, value: object, wanted: str) -> EncodeError:
    # reprlib: a value may be megabytes long, and Python refuses to write integers of many digits.
    is_huge = isinstance(value, int) and value.bit_length() > 128
    return EncodeError(f"{'a huge integer' if is_huge else reprlib.repr(value)} is not {wanted}", element=element.name)


def _nothing(_value: Value) -> bytes:
    return b""


def _as_octets(element: InformationElement, value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise _refused(element, value, "bytes")
    return value


def _as_text(element: InformationElement, value: Value) -> bytes:
    if not isinstance(value, str):
        raise _refused(element, value, "a string")
    try:
        return value.encode()
    except UnicodeEncodeError as error:  # a lone surrogate
        raise _refused(element, value, "Unicode text") from error


def _variable(element: InformationElement, is_text: bool, value: Value) -> bytes:
    octets = _as_text(element, value) if is_text else _as_octets(element, value)
    length = len(octets)
    if length < _SHORT_FORM_LIMIT:
        return length.to_bytes(1, "big") + octets
    if length > 0xFFFF:
        raise EncodeError(f"{length} octets are more than a field can have", element=element.name)
    return b"\xff" + length.to_bytes(2, "big") + octets


def _padded_text(element: InformationElement, length: int, value: Value) -> bytes:
    octets = _as_text(element, value)
    if len(octets) > length:
        raise EncodeError(f"{len(octets)} octets do not fit into {length}", element=element.name)
    return octets.ljust(length, b"\0")


def _octets(element: InformationElement, length: int, value: Value) -> bytes:
    octets = _as_octets(element, value)
    if len(octets) != length:
        raise EncodeError(f"{len(octets)} octets where {length} are due", element=element.name)
    return octets


def _integer(element: InformationElement, length: int, low: int, high: int, value: Value) -> bytes:
    if not isinstance(value, int) or not low <= value <= high:
        raise _refused(element, value, f"an integer from {low} to {high}")
    return value.to_bytes(length, "big", signed=low < 0)


def _float(element: InformationElement, packer: struct.Struct, value: Value) -> bytes:
    if not isinstance(value, (int, float)):
        raise _refused(element, value, "a number")
    try:
        return packer.pack(value)
    except (OverflowError, struct.error) as error:  # the second for integers beyond any float
        raise _refused(element, value, f"a number that {packer.size} octets can carry") from error


def _boolean(element: InformationElement, value: Value) -> bytes:
    if not isinstance(value, bool):
        raise _refused(element, value, "a boolean")
    return b"\x01" if value else b"\x02"  # RFC 7011 section 6.1.5


def _ntp(element: InformationElement, units_per_second: int, value: Value) -> bytes:
    high = (units_per_second << 32) - 1  # as far as dateTimeSeconds goes
    if not isinstance(value, int) or not 0 <= value <= high:
        raise _refused(element, value, f"a time from 0 to {high}")
    return to_ntp(value, units_per_second).to_bytes(8, "big")


def _address(element: InformationElement, value: Value) -> bytes:
    if isinstance(value, str):
        return packed_of(element, value)
    return _octets(element, _ADDRESS_LENGTHS[element.data_type], value)
