"""NTP timestamps, the form of dateTimeMicroseconds and dateTimeNanoseconds (RFC 7011 sections 6.1.9 and 6.1.10).

Invariant: what ``to_ntp`` writes, ``from_ntp`` reads back exactly, if the export time is within
68 years of it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MICROSECONDS", "NANOSECONDS", "from_ntp", "to_ntp"]

MICROSECONDS: Final = 1_000_000
NANOSECONDS: Final = 1_000_000_000

_UNIX_EPOCH: Final = 2_208_988_800  # seconds from 1900-01-01, NTP's epoch, to 1970-01-01
# RFC 7011 section 6.1.9: the low 11 bits of the fraction say nothing about microseconds.
_FRACTION_MASK: Final = {MICROSECONDS: 0xFFFF_F800, NANOSECONDS: 0xFFFF_FFFF}


def from_ntp(stamp: int, export_time: int, units_per_second: int) -> int:
    """Units since 1970 of a 64-bit stamp, in the era that brings it nearest to the export time."""
    away = ((stamp >> 32) - _UNIX_EPOCH - export_time) & 0xFFFF_FFFF
    if away >= 0x8000_0000:
        away -= 0x1_0000_0000
    # Rounded: an exporter that cuts a unit's fraction off stays below the unit it means.
    fraction = stamp & _FRACTION_MASK[units_per_second]
    return (export_time + away) * units_per_second + ((fraction * units_per_second + 0x8000_0000) >> 32)


def to_ntp(value: int, units_per_second: int) -> int:
    """The stamp of units since 1970, era cut off; the fraction is the smallest that is not below the value."""
    seconds, units = divmod(value, units_per_second)
    unused = ~_FRACTION_MASK[units_per_second] & 0xFFFF_FFFF
    fraction = (-(-(units << 32) // units_per_second) + unused) & ~unused
    return ((seconds + _UNIX_EPOCH) & 0xFFFF_FFFF) << 32 | fraction
