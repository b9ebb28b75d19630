"""Reads a block of ClickHouse's Native format, from what the format's description says."""

from __future__ import annotations

import io
import ipaddress
import struct
from typing import Any

_NUMBERS = {
    "UInt8": "B",
    "UInt16": "H",
    "UInt32": "I",
    "UInt64": "Q",
    "Int8": "b",
    "Int16": "h",
    "Int32": "i",
    "Int64": "q",
    "Float32": "f",
    "Float64": "d",
    "Bool": "?",
    "DateTime": "I",
    "DateTime64(3)": "q",
    "DateTime64(6)": "q",
    "DateTime64(9)": "q",
}


def read_block(data: bytes) -> dict[str, tuple[str, list[Any]]]:
    """Type and values of each column; nothing may be left over."""
    file = io.BytesIO(data)
    columns, rows = _varint(file), _varint(file)
    found: dict[str, tuple[str, list[Any]]] = {}
    for _ in range(columns):
        name, kind = _octets(file).decode(), _octets(file).decode()
        assert name not in found
        found[name] = kind, _values(file, kind, rows)
    assert not file.read(1)
    return found


def _values(file: io.BytesIO, kind: str, rows: int) -> list[Any]:
    if kind == "String":
        return [_octets(file) for _ in range(rows)]
    if kind == "IPv4":
        return [str(ipaddress.IPv4Address(value)) for value in struct.unpack(f"<{rows}I", file.read(4 * rows))]
    if kind == "IPv6":
        return [str(ipaddress.IPv6Address(file.read(16))) for _ in range(rows)]
    form = _NUMBERS[kind]
    return list(struct.unpack(f"<{rows}{form}", file.read(struct.calcsize(f"<{form}") * rows)))


def _octets(file: io.BytesIO) -> bytes:
    length = _varint(file)
    octets = file.read(length)
    assert len(octets) == length
    return octets


def _varint(file: io.BytesIO) -> int:
    number = shift = 0
    while True:
        (octet,) = file.read(1)
        number |= (octet & 127) << shift
        if octet < 128:
            return number
        shift += 7
