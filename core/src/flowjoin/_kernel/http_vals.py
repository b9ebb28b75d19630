"""Antrea's httpVals: JSON objects, one member an HTTP transaction, united as records come."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

__all__ = ["merge_http_vals"]

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_TRANSACTIONS: Final = range(-(2**31), 2**31)  # their numbers are int32
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_TO_ESCAPE: Final = re.compile("[<>&\u2028\u2029]")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_MAXIMUM_LENGTH: Final = 65_535  # no IPFIX string is longer; so nothing grows without end


def merge_http_vals(incoming: str, stored: str) -> tuple[str, bool]:
    """The union, on equal numbers the stored value; compact, members in the order of their numbers as text.

    The second value is False if one of them is no such object, or the union too long: then the incoming
    text replaces the stored one.
    """
    try:
        united = _parse(incoming) | _parse(stored)
    except (ValueError, RecursionError):  # RecursionError: arrays nested deeper than any parser follows
        return incoming, False
    members = {number: united[number] for number in sorted(united)}
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    text = _SURROGATES.sub("\ufffd", _TO_ESCAPE.sub(lambda match: _ESCAPED[match[0]], text))
    return (text, True) if len(text) <= _MAXIMUM_LENGTH else (incoming, False)


def _parse(text: str) -> dict[str, Any]:  # values are whatever JSON has
    if not text:
        return {}
    parsed = json.loads(text, parse_float=_finite, parse_constant=_refuse)
    if not isinstance(parsed, dict):
        raise ValueError("no object")
    members = {}
    for key, value in parsed.items():
        if _NUMBER.fullmatch(key) is None or int(key) not in _TRANSACTIONS:
            raise ValueError("no transaction's number")
        members[str(int(key))] = value
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number out of range")
    return number


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
