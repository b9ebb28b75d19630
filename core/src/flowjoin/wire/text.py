"""Values as text, and addresses from text.

Strategy: plain arithmetic over packed octets. Invariant: text depends on the value alone (no locale,
no time zone, no platform), never fails, and ``packed_of`` undoes the text of every address.
"""

from __future__ import annotations

import ipaddress
import math
import re
import struct
from datetime import date
from typing import Final

from flowjoin._model.errors import EncodeError
from flowjoin._model.information_element import DataType, InformationElement, Value

__all__ = ["address_text", "json_value", "mac_address_text", "packed_of", "text_of"]

# Decimal digits of a second that each type can tell apart.
_TIME_DIGITS: Final = {
    DataType.DATE_TIME_SECONDS: 0,
    DataType.DATE_TIME_MILLISECONDS: 3,
    DataType.DATE_TIME_MICROSECONDS: 6,
    DataType.DATE_TIME_NANOSECONDS: 9,
}
_PACKED_LENGTHS: Final = {DataType.IPV4_ADDRESS: 4, DataType.IPV6_ADDRESS: 16, DataType.MAC_ADDRESS: 6}
_MAC_ADDRESS: Final = re.compile(r"[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}")
_V4_MAPPED: Final = bytes(10) + b"\xff\xff"
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_DAYS_OF_400_YEARS: Final = 146_097


def text_of(element: InformationElement, value: Value) -> str:
    """The canonical text of a value.

    Addresses as RFC 5952 says (``::ffff:192.0.2.1`` for a mapped one), MAC addresses in lower case,
    times in ISO 8601 with their type's precision and ``Z``, octets in lower-case hexadecimal,
    booleans ``true`` and ``false``.
    """
    written = json_value(element, value)
    if isinstance(written, bool):
        return "true" if written else "false"
    return str(written)


def json_value(element: InformationElement, value: Value) -> int | float | bool | str:
    """A value as JSON can carry it: numbers and booleans as they are, all others as ``text_of`` writes them."""
    if isinstance(value, bytes):
        if len(value) != _PACKED_LENGTHS.get(element.data_type):
            return value.hex()
        return mac_address_text(value) if len(value) == 6 else address_text(value)
    if isinstance(value, int) and element.data_type in _TIME_DIGITS:
        return _time_text(value, _TIME_DIGITS[element.data_type])
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"  # JSON has no number for it
    return value


def address_text(packed: bytes) -> str:
    """RFC 5952 text of 4 or 16 octets."""
    if len(packed) == 4:
        return ".".join(map(str, packed))
    if packed.startswith(_V4_MAPPED):
        return "::ffff:" + ".".join(map(str, packed[12:]))  # RFC 5952 section 5
    groups = struct.unpack(">8H", packed)
    best_at, best_length, at = 0, 1, 0  # section 4.2.2: a single zero group is not shortened
    while at < 8:
        length = 0
        while at + length < 8 and groups[at + length] == 0:
            length += 1
        if length > best_length:  # section 4.2.3: of equal runs the first
            best_at, best_length = at, length
        at += length or 1
    words = [f"{group:x}" for group in groups]
    if best_length == 1:
        return ":".join(words)
    return f"{':'.join(words[:best_at])}::{':'.join(words[best_at + best_length :])}"


def mac_address_text(packed: bytes) -> str:
    """``aa:bb:cc:dd:ee:ff``."""
    return packed.hex(":")


def packed_of(element: InformationElement, text: str) -> bytes:
    """The octets of an address's text.

    Raises:
        EncodeError: the text is no address of the element's type.
    """
    try:
        match element.data_type:
            case DataType.IPV4_ADDRESS:
                return ipaddress.IPv4Address(text).packed
            case DataType.IPV6_ADDRESS if "%" not in text:  # a zone says nothing outside its host
                return ipaddress.IPv6Address(text).packed
            case DataType.MAC_ADDRESS if _MAC_ADDRESS.fullmatch(text):
                return bytes.fromhex(text.replace("-", "").replace(":", ""))
    except ValueError:
        pass  # said below, with the element's name
    raise EncodeError(f"{text!r} is no {element.data_type.value}", element=element.name)


def _time_text(value: int, digits: int) -> str:
    """ISO 8601 of any integer: a wire value may lie far outside the years that ``datetime`` knows."""
    seconds, fraction = divmod(value, 10**digits)
    days, second = divmod(seconds, 86_400)
    cycles, day = divmod(days, _DAYS_OF_400_YEARS)
    when = date.fromordinal(_EPOCH_ORDINAL + day)
    year = when.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    tail = f".{fraction:0{digits}d}" if digits else ""
    return f"{sign}{abs(year):04d}-{when.month:02d}-{when.day:02d}T{clock}{tail}Z"
