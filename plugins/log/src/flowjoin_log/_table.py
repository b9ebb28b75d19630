"""Flows as a table for people: one aligned line per flow, whenever it comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, Literal

from flowjoin.api import FlowBatch
from flowjoin.api.lines import cut_into_slices
from flowjoin_log._pretty import PROTOCOLS, RULE_ACTIONS

__all__ = ["TableWriter", "human_count", "human_octets"]

_ROWS: Final = 128
_NARROW: Final = 104  # below this many cells there is no room for packets and policies' names
_WIDE: Final = 140
_NARROWEST_END: Final = 16
_WIDEST_END: Final = 47  # an IPv6 address with its port
_DENIED: Final = frozenset({2, 3})
_COLOURS: Final = {"Drop": "31", "Reject": "31", "Allow": "32"}  # ECMA-48 section 8.3.117: red, green
_PORTLESS: Final = frozenset({1, 2, 58})
_SHORT_PROTOCOLS: Final = {**PROTOCOLS, 58: "ICMPv6"}
_UNITS: Final = ("kB", "MB", "GB", "TB", "PB", "EB")
_ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class TableWriter:
    """Renders batches as lines of a table.

    The columns are as wide as the line allows, once and for all: rows come one by one. An end that does not fit
    loses its middle. Nothing that a peer sends can steer the terminal.
    """

    header: Final = b""

    def __init__(self, *, width: int, colours: bool) -> None:
        """Lay out the columns for lines of ``width`` cells."""
        self._is_narrow = width < _NARROW
        self._verdict_width = 6 if self._is_narrow else 24 if width < _WIDE else 36
        fixed = 37 if self._is_narrow else 46  # what stands beside the two ends and the policy
        room = (width - fixed - self._verdict_width) // 2
        self._end_width = max(_NARROWEST_END, min(_WIDEST_END, room))
        self._colours = colours
        self._day = -1

    def render(self, batch: FlowBatch) -> Iterable[bytes]:
        """Whole lines, a slice of the batch at a time; a heading first and whenever a new day begins."""
        for part in cut_into_slices(batch, _ROWS):
            yield "".join(self._lines(part)).encode()

    def _lines(self, part: FlowBatch) -> Iterator[str]:
        columns = (
            part.column("flowEndSeconds"),
            _ends(part, "source"),
            _ends(part, "destination"),
            part.column("protocolIdentifier"),
            _counts(part, "octetTotalCount", "octetDeltaCount"),
            _counts(part, "packetTotalCount", "packetDeltaCount"),
            _verdicts(part),
        )
        for end, source, destination, protocol, octets, packets, (word, policy) in zip(*columns, strict=True):
            moment = datetime.fromtimestamp(int(end), UTC)  # dateTimeSeconds has 32 bits: always a date
            day = int(end) // 86_400
            if day > self._day:
                self._day = day
                heading = self._row(f"{moment:%Y-%m-%d}", "SOURCE", "DESTINATION", "PROTO", "OCTETS", "PACKETS", " ")
                yield f"{self._painted(f'{heading}POLICY', '1')}\n"
            row = self._row(
                f"{moment:%H:%M:%S}",
                source,
                destination,
                _SHORT_PROTOCOLS.get(protocol, str(protocol)),
                human_octets(octets),
                human_count(packets),
                "\N{RIGHTWARDS ARROW}",
            )
            room = self._verdict_width - len(word) - 1
            name = f" {_fit(policy, room)}" if policy and room > 1 else ""
            yield f"{row}{self._painted(word, _COLOURS.get(word, ''))}{name}".rstrip() + "\n"

    def _row(
        self, time: str, source: str, destination: str, protocol: str, octets: str, packets: str, arrow: str
    ) -> str:
        width = self._end_width
        ends = f"{_fit(source, width):<{width}}  {arrow}  {_fit(destination, width):<{width}}"
        packets_cell = "" if self._is_narrow else f"{packets:>7}  "
        return f"{time:>10}  {ends}  {protocol:<6}  {octets:>8}  {packets_cell}"

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and colour else text


def human_octets(octets: int) -> str:
    """``30.5 GB``: three digits that matter, decimal units."""
    if octets < 1000:
        return f"{octets} B"
    amount, unit = octets / 1000, 0
    while amount >= 999.5:
        amount, unit = amount / 1000, unit + 1
    digits = 2 if amount < 9.995 else 1 if amount < 99.95 else 0
    return f"{amount:.{digits}f} {_UNITS[unit]}"


def human_count(count: int) -> str:
    """The number as it is up to seven digits, then ``12.3M``."""
    if count < 10_000_000:
        return str(count)
    return human_octets(count).replace(" ", "").removesuffix("B")


def _fit(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    kept = max(width - len(_ELLIPSIS), 0)
    end = kept // 2
    return f"{text[: kept - end]}{_ELLIPSIS}{text[len(text) - end :]}"


def _printable(text: object) -> str:
    string = str(text)
    return string if string.isprintable() else "".join(c if c.isprintable() else _REPLACEMENT for c in string)


def _ends(batch: FlowBatch, side: Literal["source", "destination"]) -> Iterator[str]:
    """``namespace/pod:port`` where the Pod is known, the Service's name for a destination, else the address."""
    names = batch.map_distinct(f"{side}PodName", _printable)
    namespaces = batch.map_distinct(f"{side}PodNamespace", _printable)
    services = batch.map_distinct("destinationServicePortName", _printable)
    for address, port, protocol, name, namespace, service in zip(
        batch.address_text(side),
        batch.column(f"{side}TransportPort"),
        batch.column("protocolIdentifier"),
        names,
        namespaces,
        services,
        strict=True,
    ):
        has_port = port and protocol not in _PORTLESS
        if name:
            host = f"{namespace}/{name}" if namespace else str(name)
        elif side == "destination" and service:
            yield str(service)
            continue
        else:
            host = f"[{address}]" if has_port and ":" in address else address
        yield f"{host}:{port}" if has_port else host


def _counts(batch: FlowBatch, total: str, delta: str) -> Iterator[int]:
    """The total where the flow has one, else what this export adds."""
    return (int(whole) or int(added) for whole, added in zip(batch.column(total), batch.column(delta), strict=True))


def _verdicts(batch: FlowBatch) -> Iterator[tuple[str, str]]:
    """What policies did and the policy that did it: a denial before a permission, egress (met first) before ingress."""
    rules = [
        zip(
            batch.column(f"{direction}NetworkPolicyRuleAction"),
            batch.map_distinct(f"{direction}NetworkPolicyNamespace", _printable),
            batch.map_distinct(f"{direction}NetworkPolicyName", _printable),
            strict=True,
        )
        for direction in ("egress", "ingress")
    ]
    for egress, ingress in zip(*rules, strict=True):
        action, namespace, name = max(egress, ingress, key=lambda rule: (rule[0] in _DENIED, bool(rule[0])))
        policy = f"{namespace}/{name}" if namespace and name else str(name)
        yield (RULE_ACTIONS.get(action, "Invalid") or "-", policy) if action else ("-", "")
