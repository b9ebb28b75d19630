"""Durations in Go's syntax, because Antrea's configuration is written in it: ``1m30s``, ``250ms``, ``-1.5h``."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from flowjoin.api._settings import Duration

__all__ = ["format_duration", "parse_duration"]

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "μs": 1_000,  # U+03BC, Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_LONGER: Final = {"d": "a day is 24h", "w": "a week is 168h", "y": "a year is 8760h"}
_MAX_NANOSECONDS: Final = 2**63 - 1  # Go's range, about 292 years
_MAX_CHARACTERS: Final = 100
_EXAMPLES: Final = "30s, 1m30s or 250ms"
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([^0-9.]*)")


def parse_duration(text: str) -> Duration:
    """Seconds from Go's syntax.

    Raises:
        ValueError: with the sentence for the operator.
    """
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0.0)
    if len(text) > _MAX_CHARACTERS or not rest:
        raise ValueError(f"this is not a duration; write one such as {_EXAMPLES}")
    nanoseconds = Fraction(0)
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            raise ValueError(f'"{text}" is not a duration; write one such as {_EXAMPLES}')
        number, unit = part.groups()
        if not unit:
            raise ValueError(f'"{text}" has no unit; write a duration such as {_EXAMPLES}')
        if unit not in _NANOSECONDS:
            remedy = _LONGER.get(unit.strip().lower(), "the units are h, m, s, ms, us and ns")
            raise ValueError(f'"{text}" has the unknown unit "{unit}"; {remedy}')
        nanoseconds += Fraction(number.removesuffix(".")) * _NANOSECONDS[unit]
        position = part.end()
    whole = int(nanoseconds)
    if whole > _MAX_NANOSECONDS:
        raise ValueError(f'"{text}" is longer than 292 years')
    return Duration(sign * whole / 1_000_000_000)


def format_duration(seconds: float) -> str:
    """Go's own rendering: ``1m30s``, ``250ms``, ``1h0m0s``, ``0s``."""
    nanoseconds = round(abs(seconds) * 1_000_000_000)
    sign = "-" if seconds < 0 and nanoseconds else ""
    if nanoseconds == 0:
        return "0s"
    for unit in ("ns", "µs", "ms"):
        if nanoseconds < 1000 * _NANOSECONDS[unit]:
            return f"{sign}{_decimal(nanoseconds, _NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(nanoseconds, _NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, _NANOSECONDS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(value: int, unit: int) -> str:
    whole, fraction = divmod(value, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{str(fraction).zfill(len(str(unit)) - 1).rstrip('0')}"
