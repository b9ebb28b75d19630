"""Values as text, and addresses from text.

Invariant: text depends on the value alone (no locale, no time zone, no platform), never fails, and
``packed_of`` undoes the text of every address.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from typing import Final

from flowjoin._model.address_text import ipv4_text, ipv6_text, mac_text, pack_ipv4, pack_ipv6, pack_mac
from flowjoin._model.errors import EncodeError
from flowjoin._model.information_element import DataType, InformationElement, Value

__all__ = ["address_text", "json_value", "packed_of", "text_of"]

# Decimal digits of a second that each type can tell apart.
_TIME_DIGITS: Final = {
    DataType.DATE_TIME_SECONDS: 0,
    DataType.DATE_TIME_MILLISECONDS: 3,
    DataType.DATE_TIME_MICROSECONDS: 6,
    DataType.DATE_TIME_NANOSECONDS: 9,
}
_ADDRESS_TEXTS: Final[dict[tuple[DataType, int], Callable[[bytes], str]]] = {
    (DataType.IPV4_ADDRESS, 4): ipv4_text,
    (DataType.IPV6_ADDRESS, 16): ipv6_text,
    (DataType.MAC_ADDRESS, 6): mac_text,
}
_PACKERS: Final[dict[DataType, Callable[[str], bytes]]] = {
    DataType.IPV4_ADDRESS: pack_ipv4,
    DataType.IPV6_ADDRESS: pack_ipv6,
    DataType.MAC_ADDRESS: lambda text: pack_mac(text.replace("-", ":")),
}
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
        return _ADDRESS_TEXTS.get((element.data_type, len(value)), bytes.hex)(value)
    if isinstance(value, int) and element.data_type in _TIME_DIGITS:
        return _time_text(value, _TIME_DIGITS[element.data_type])
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"  # JSON has no number for it
    return value


def address_text(packed: bytes) -> str:
    """RFC 5952 text of 4 or 16 octets."""
    return ipv4_text(packed) if len(packed) == 4 else ipv6_text(packed)


def packed_of(element: InformationElement, text: str) -> bytes:
    """The octets of an address's text; a MAC address may have hyphens too.

    Raises:
        EncodeError: the text is no address of the element's type.
    """
    pack = _PACKERS.get(element.data_type)
    try:
        if pack is not None:
            return pack(text)
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
