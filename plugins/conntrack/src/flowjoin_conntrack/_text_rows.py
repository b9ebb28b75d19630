"""Connections as text: lines of ``/proc/net/nf_conntrack`` and of ``ovs-appctl dpctl/dump-conntrack``, as rows.

Invariant: any line gives a row or ``LineError``, never anything else.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from flowjoin_conntrack._entry import NO_TCP_STATE, TCP_STATES, Connection

__all__ = ["LineError", "ParseLine", "Rows", "parse_ovs_line", "parse_proc_line", "rows_of"]

ParseLine = Callable[[str], Connection]

_PROTOCOLS: Final = {
    "icmp": 1,
    "igmp": 2,
    "tcp": 6,
    "udp": 17,
    "dccp": 33,
    "gre": 47,
    "icmpv6": 58,
    "ipv6-icmp": 58,
    "sctp": 132,
    "udplite": 136,
}
_ICMP: Final = frozenset({1, 58})
_LAST_SECOND: Final = 0xFFFFFFFF  # that dateTimeSeconds can say (RFC 7011 section 6.1.7)
# IPS_* of linux/netfilter/nf_conntrack_common.h, by the names that Open vSwitch writes
_STATUS: Final = {
    "EXPECTED": 1,
    "SEEN_REPLY": 2,
    "ASSURED": 4,
    "CONFIRMED": 8,
    "SRC_NAT": 16,
    "DST_NAT": 32,
    "NAT_MASK": 48,
    "SEQ_ADJUST": 64,
    "SRC_NAT_DONE": 128,
    "DST_NAT_DONE": 256,
    "NAT_DONE_MASK": 384,
    "DYING": 512,
    "FIXED_TIMEOUT": 1024,
    "TEMPLATE": 2048,
    "UNTRACKED": 4096,
    "HELPER": 8192,
    "OFFLOAD": 16384,
}
# States that Open vSwitch names and the kernel's tools do not: the nearest of theirs.
_STATES: Final = {name: number for number, name in enumerate(TCP_STATES)} | {
    "CLOSED": 8,
    "LISTEN": 0,
    "FIN_WAIT_1": 4,
    "FIN_WAIT_2": 4,
    "CLOSING": 6,
}
_PIECE: Final = re.compile(r"([a-z_A-Z-]+)=(\([^()]*\)|[^,()]*)")
_FRACTION: Final = re.compile(r"^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z?$")
_LONGEST_LINE: Final = 4096
_U16, _U32, _U64 = 2**16 - 1, 2**32 - 1, 2**64 - 1


class LineError(ValueError):
    """A line that is no connection."""


class Rows(NamedTuple):
    """Of some lines: those that are wanted, how many lines told a connection, how many made no sense."""

    rows: bytes
    entries: int
    unreadable: int


def rows_of(text: bytes, parse: ParseLine, zones: Collection[int]) -> Rows:
    """The rows of whole lines; a line that makes no sense is counted and survived.

    Args:
        zones: keep the connections of these; empty keeps all.
    """
    rows: list[bytes] = []
    entries = unreadable = 0
    for line in text.decode("ascii", "replace").split("\n"):
        if not line.strip():
            continue
        try:
            connection = parse(line)
        except LineError:
            unreadable += 1
            continue
        entries += 1
        if not zones or connection.zone in zones:
            rows.append(connection.pack())
    return Rows(b"".join(rows), entries, unreadable)


def parse_ovs_line(line: str) -> Connection:
    """A line of ``ovs-appctl dpctl/dump-conntrack``, with or without ``-m`` and ``-s``.

    Raises:
        LineError: it is no connection.
    """
    name, _, rest = _bounded(line).partition(",")
    pieces = dict(_PIECE.findall(rest))
    if "orig" not in pieces or "reply" not in pieces:
        raise LineError("no two directions")
    states = list(dict(_PIECE.findall(pieces.get("protoinfo", "").strip("()"))).items())
    state = next((value for key, value in states if "state" in key), "")
    return _connection(
        protocol=_protocol(name),
        original=dict(_PIECE.findall(pieces["orig"].strip("()"))),
        reply=dict(_PIECE.findall(pieces["reply"].strip("()"))),
        facts=pieces,
        tcp_state=state,
        status=_status(pieces.get("status", "")),
        start=_moment(pieces.get("start", "")),
    )


def parse_proc_line(line: str) -> Connection:
    """A line of ``/proc/net/nf_conntrack``.

    It has no id, no labels and no time of beginning that stays the same from line to line.

    Raises:
        LineError: it is no connection.
    """
    words = _bounded(line).split()
    if len(words) < 6 or words[0] not in ("ipv4", "ipv6"):
        raise LineError("no family")
    pairs = [word.partition("=") for word in words]
    sources = [number for number, (key, _, _) in enumerate(pairs) if key == "src"]
    if len(sources) != 2:
        raise LineError("no two directions")
    first, second = sources
    flags = {word for word in words if word.startswith("[")}
    status = 8 | (0 if "[UNREPLIED]" in flags else 2) | (4 if "[ASSURED]" in flags else 0)
    # After the protocol's number come the seconds that are left, then a state where the protocol has one.
    state = words[5] if words[3] == "6" and "=" not in words[5] else ""
    values = {key: value for key, is_pair, value in pairs[second:] if is_pair}
    return _connection(
        protocol=_number(words[3], 255),
        original={key: value for key, is_pair, value in pairs[first:second] if is_pair},
        reply=values,
        facts=values,
        tcp_state=state,
        status=status,
        start=0,
    )


def _bounded(line: str) -> str:
    if len(line) > _LONGEST_LINE:
        raise LineError(f"{len(line)} letters")
    return line.strip()


def _connection(
    *,
    protocol: int,
    original: Mapping[str, str],
    reply: Mapping[str, str],
    facts: Mapping[str, str],
    tcp_state: str,
    status: int,
    start: int,
) -> Connection:
    family, source = _address(original)
    identity = _number(facts.get("id", "0"), _U32) if "orig" in facts else 0
    if not identity and protocol in _ICMP:
        # Two that ask the same host at once differ by this alone; the kernel's own id would tell them apart.
        identity = _number(original.get("id", "0"), _U16) << 16 | _number(original.get("type", "0"), 255)
    return Connection(
        family=family,
        protocol=protocol,
        zone=_number(facts.get("zone", "0"), _U16),
        connection_id=identity,
        source=source,
        destination=_address(reply)[1],
        source_port=_number(original.get("sport", "0"), _U16),
        destination_port=_number(reply.get("sport", "0"), _U16),
        original_destination=_address(original, "dst")[1],
        reply_destination=_address(reply, "dst")[1],
        original_destination_port=_number(original.get("dport", "0"), _U16),
        reply_destination_port=_number(reply.get("dport", "0"), _U16),
        mark=_number(facts.get("mark", "0"), _U32),
        labels=_labels(facts.get("labels", "0x0")),
        start=start,
        status=status,
        tcp_state=_STATES.get(tcp_state, NO_TCP_STATE) if protocol == 6 else NO_TCP_STATE,
        packets=_number(original.get("packets", "0"), _U64),
        octets=_number(original.get("bytes", "0"), _U64),
        reverse_packets=_number(reply.get("packets", "0"), _U64),
        reverse_octets=_number(reply.get("bytes", "0"), _U64),
    )


def _protocol(text: str) -> int:
    name = text.strip().lower()
    return _PROTOCOLS[name] if name in _PROTOCOLS else _number(name, 255)


def _number(text: str, largest: int, base: int = 10) -> int:
    if not text.isascii() or not text.isalnum():
        raise LineError(f"{text[:20]!r} is no number")
    try:
        number = int(text, base)
    except ValueError:
        raise LineError(f"{text[:20]!r} is no number") from None
    if number > largest:
        raise LineError(f"{number} is more than {largest}")
    return number


def _address(direction: Mapping[str, str], end: str = "src") -> tuple[int, bytes]:
    try:
        address = ipaddress.ip_address(direction.get(end, ""))
    except ValueError as exc:
        raise LineError(str(exc)) from None
    return address.version, address.packed.rjust(16, b"\0")


def _labels(text: str) -> bytes:
    if not text.startswith("0x") or len(text) > 34:
        raise LineError(f"{text[:40]!r} is no label")
    return _number(text[2:], 2**128 - 1, 16).to_bytes(16, "big")


def _status(text: str) -> int:
    status = 0
    for name in text.split("|"):
        status |= _STATUS.get(name, 0)
    return status


def _moment(text: str) -> int:
    """Nanoseconds since 1970 of a time in UTC; 0 where there is none."""
    if not text:
        return 0
    found = _FRACTION.match(text)
    try:
        whole = datetime.datetime.fromisoformat(f"{found[1] if found else text}+00:00")
    except ValueError:
        raise LineError(f"{text[:40]!r} is no time") from None
    seconds = int(whole.timestamp())
    if not 0 <= seconds <= _LAST_SECOND:
        raise LineError(f"{text[:40]!r} is before 1970, or after 2106")
    return seconds * 10**9 + int((found[2] or "").ljust(9, "0") if found else 0)
