"""Addresses between octets and canonical text.

IPv4 is dotted decimal, IPv6 follows RFC 5952 (a mapped address keeps its dotted part, section 5), a MAC
address is six pairs of lower-case digits with colons. Packing takes any correct spelling of an address.
"""

from __future__ import annotations

import re
import struct
from typing import Final

__all__ = ["ipv4_text", "ipv6_text", "mac_text", "pack_ipv4", "pack_ipv6", "pack_mac"]

_EIGHT_GROUPS: Final = struct.Struct("!8H")
_IPV4_MAPPED: Final = bytes(10) + b"\xff\xff"
_ZERO_RUNS: Final = tuple(":" + "0:" * count for count in range(8, 1, -1))
_GROUP: Final = re.compile("[0-9A-Fa-f]{1,4}")
_MAC: Final = re.compile("[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}")


def ipv4_text(packed: bytes) -> str:
    """Text of four octets."""
    first, second, third, fourth = packed
    return f"{first}.{second}.{third}.{fourth}"


def ipv6_text(packed: bytes) -> str:
    """Text of sixteen octets."""
    if packed[:12] == _IPV4_MAPPED:
        return "::ffff:" + ipv4_text(packed[12:])
    text = ":%x:%x:%x:%x:%x:%x:%x:%x:" % _EIGHT_GROUPS.unpack(packed)  # noqa: UP031 - twice as fast as format
    # RFC 5952 section 4.2: the longest run of zero groups is shortened, the first of equals, never a single one.
    if ":0:0:" not in text:
        return text[1:-1]
    run = next(run for run in _ZERO_RUNS if run in text)
    at = text.index(run)
    return f"{text[1:at]}::{text[at + len(run) : -1]}"


def mac_text(packed: bytes) -> str:
    """Text of six octets."""
    return packed.hex(":")


def pack_ipv4(text: str) -> bytes:
    """Octets of dotted decimal text.

    Raises:
        ValueError: it is no IPv4 address; a leading zero, which some read as octal, is refused.
    """
    try:
        packed = bytes(map(int, text.split(".")))
    except ValueError:
        pass
    else:
        # int() takes signs, spaces, underscores and zeros in front, none of which is written back.
        if len(packed) == 4 and ipv4_text(packed) == text:
            return packed
    raise ValueError(f"{text!r} is not an IPv4 address")


def pack_ipv6(text: str) -> bytes:
    """Octets of an IPv6 address in any spelling of RFC 4291 section 2.2, without a zone.

    Raises:
        ValueError: it is no IPv6 address.
    """
    head, shortened, tail = text.partition("::")
    try:
        before = _groups(head, may_end_dotted=not shortened)
        after = _groups(tail, may_end_dotted=True)
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv6 address") from None
    missing = 16 - len(before) - len(after)
    if missing < 2 if shortened else missing:
        raise ValueError(f"{text!r} is not an IPv6 address")
    return before + bytes(missing) + after


def _groups(text: str, *, may_end_dotted: bool) -> bytes:
    if not text:
        return b""
    *parts, last = text.split(":")
    if may_end_dotted and "." in last:
        end = pack_ipv4(last)
    else:
        parts.append(last)
        end = b""
    if not all(map(_GROUP.fullmatch, parts)):
        raise ValueError("no group of an IPv6 address")
    return b"".join(int(part, 16).to_bytes(2, "big") for part in parts) + end


def pack_mac(text: str) -> bytes:
    """Octets of a MAC address.

    Raises:
        ValueError: it is not six pairs of hexadecimal digits with colons.
    """
    if _MAC.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a MAC address")
    return bytes.fromhex(text.replace(":", ""))
