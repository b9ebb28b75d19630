"""What /flowrecords is asked for: Antrea's query parameters.

A parameter that is empty, or a number that is 0, is as good as not given. Of one that is given twice the first
counts. Parameters of other names are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from flowjoin._model.flow_key import FlowFilter, FlowKey

__all__ = ["BadQuery", "FlowQuery", "parse_query"]

_MAX_PARAMETERS: Final = 64
# parameter: what it is called in errors, the largest value
_NUMBERS: Final = {
    "proto": ("protocol", 255),
    "srcport": ("source port", 65535),
    "dstport": ("destination port", 65535),
}


class BadQuery(Exception):
    """The query cannot be understood; the text is the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowQuery:
    """Which flows.

    Attributes:
        flow_filter: what they have in common.
        key: the one flow that is meant, where everything is given.
    """

    flow_filter: FlowFilter
    key: FlowKey | None = None


def parse_query(query_string: bytes) -> FlowQuery:
    """Read a query string.

    Raises:
        BadQuery: a number is none, or out of range.
    """
    try:
        pairs = parse_qsl(query_string.decode("latin-1"), max_num_fields=_MAX_PARAMETERS)
    except ValueError as exc:
        raise BadQuery(f"Error when parsing query: more than {_MAX_PARAMETERS} parameters") from exc
    given: dict[str, str] = {}
    for name, value in pairs:
        given.setdefault(name, value)
    source, destination = given.get("srcip") or None, given.get("dstip") or None
    protocol, source_port, destination_port = (_number(name, given.get(name, "")) for name in _NUMBERS)
    flow_filter = FlowFilter(
        source=source,
        destination=destination,
        protocol_identifier=protocol,
        source_port=source_port,
        destination_port=destination_port,
    )
    if source is None or destination is None or protocol is None or source_port is None or destination_port is None:
        return FlowQuery(flow_filter=flow_filter)
    key = FlowKey(
        source=source,
        destination=destination,
        protocol_identifier=protocol,
        source_port=source_port,
        destination_port=destination_port,
    )
    return FlowQuery(flow_filter=flow_filter, key=key)


def _number(name: str, text: str) -> int | None:
    if not text:
        return None
    what, maximum = _NUMBERS[name]
    if not (text.isascii() and text.isdecimal()):
        raise BadQuery(f'Error when parsing {what}: "{text[:50]}" is not a decimal number')
    digits = text.lstrip("0") or "0"
    if len(digits) > 5 or int(digits) > maximum:
        raise BadQuery(f'Error when parsing {what}: "{text[:50]}" is not from 0 to {maximum}')
    return int(digits) or None
