"""Sizes as people write them: ``256MiB``, ``1GiB``, ``10MB``, ``4096``."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from flowjoin.api._settings import Octets

__all__ = ["format_octets", "parse_octets"]

_UNITS: Final = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_MAX: Final = 2**63 - 1
_SIZE: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?([A-Za-z]{0,10})", re.ASCII)


def parse_octets(text: str) -> Octets:
    """Octets from a number with or without a unit.

    Raises:
        ValueError: with the sentence for the operator.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text[:60]}" is not a size; write one such as 256MiB, 1GiB or 4096')
    number, unit = match.groups()
    if unit not in _UNITS:
        letter = unit[:1].upper()
        remedy = (
            f"did you mean {letter}iB?" if letter in "KMGT" else "the units are KiB, MiB, GiB, TiB, kB, MB, GB and TB"
        )
        raise ValueError(f'"{text}" has the unknown unit "{unit}"; {remedy}')
    size = Fraction(number) * _UNITS[unit]
    if size.denominator != 1 or size > _MAX:
        raise ValueError(f'"{text}" is not a whole number of octets below 8 EiB')
    return Octets(int(size))


def format_octets(octets: int) -> str:
    """The shortest exact binary form: ``256MiB``, ``1000``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if octets and octets % _UNITS[unit] == 0:
            return f"{octets // _UNITS[unit]}{unit}"
    return str(octets)
