"""What was told of each connection, packed so that the next run of the program goes on where this one ended.

Pure: octets in, octets out. A connection is the same one if its identity and its start are, and its totals are no
smaller than those that were told; the kernel gives ids and port pairs again.

Invariant: any octets give what was told, or ``ValueError``, never anything else.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from flowjoin_conntrack._entry import IDENTITY, START_AT, TAIL, TAIL_AT
from flowjoin_conntrack._exports import Counters

__all__ = ["END", "TOLD", "Told", "ToldTotals", "packed", "unpacked"]

TOLD: Final = struct.Struct(f">{IDENTITY.size}s8sQQQQQBB")  # identity, start, first seen, totals, TCP state, flags
END: Final = struct.Struct(">Q")  # of the last row, seconds since 1970
_KEY: Final = IDENTITY.size + 8
_RECORD: Final = TOLD.size + END.size
_VALUE: Final = struct.Struct(">QQQQQBBQ")
_TITLE: Final = b"flowjoin-conntrack-told 1"


class Told(NamedTuple):
    """What was told of one connection.

    Attributes:
        first_seen: nanoseconds since 1970.
        before: totals in its last row.
        tcp_state: in its last row.
        flags: of the table, as they were.
        end: of its last row, seconds since 1970.
    """

    first_seen: int
    before: Counters
    tcp_state: int
    flags: int
    end: int


class ToldTotals:
    """What an earlier run told, by connection; each is asked for once."""

    def __init__(self, records: bytes = b"") -> None:
        self._told = {
            records[at : at + _KEY]: records[at + _KEY : at + _RECORD] for at in range(0, len(records), _RECORD)
        }

    def __len__(self) -> int:
        return len(self._told)

    def take(self, row: bytes) -> Told | None:
        """What was told of a row's connection; None where nothing was, or of another one."""
        value = self._told.pop(row[: IDENTITY.size] + row[START_AT : START_AT + 8], None) if self._told else None
        if value is None:
            return None
        first_seen, packets, octets, reverse_packets, reverse_octets, tcp_state, flags, end = _VALUE.unpack(value)
        before = Counters(packets, octets, reverse_packets, reverse_octets)
        if any(now < then for now, then in zip(TAIL.unpack_from(row, TAIL_AT)[2:], before, strict=True)):
            return None
        return Told(first_seen, before, tcp_state, flags, end)


def packed(records: Sequence[bytes], place: str) -> bytes:
    """A file of what was told.

    Args:
        records: each one or several of ``TOLD`` and ``END``, one after the other.
        place: where the connections are: they are looked for in no other.
    """
    body = b"".join(records)
    return b"\n".join((_TITLE, place.encode(), b"%08x" % zlib.crc32(body), body))


def unpacked(file: bytes, place: str) -> bytes:
    """The records of a file; none where it is of another place.

    Raises:
        ValueError: it is damaged.
    """
    title, *rest = file.split(b"\n", 3)
    if title != _TITLE or len(rest) != 3:
        raise ValueError("it does not hold what was told of connections")
    written_at, checksum, body = rest
    if len(body) % _RECORD or checksum != b"%08x" % zlib.crc32(body):
        raise ValueError("it was cut short or changed")
    return body if written_at == place.encode() else b""
