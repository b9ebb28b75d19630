"""Whether octets can be the beginning of a Message: how other traffic is told from ours."""

from __future__ import annotations

from typing import Final

__all__ = ["IPFIX_VERSION", "begins_message"]

IPFIX_VERSION: Final = b"\x00\x0a"  # RFC 7011 section 3.1
_MESSAGE_HEADER_OCTETS: Final = 16


def begins_message(octets: memoryview | bytes) -> bool:
    """Whether a byte stream that begins so can be one of Messages; a few octets are enough for a first answer."""
    if bytes(octets[:2]) != IPFIX_VERSION[: len(octets)]:
        return False
    return len(octets) < 4 or int.from_bytes(octets[2:4], "big") >= _MESSAGE_HEADER_OCTETS
