"""Joined flows on standard output, where no exporter is configured: a line each for people, or JSON lines.

Values come from the network: control characters are shown as escapes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import Final, Literal, TextIO, cast

import trio

from flowjoin._cli.printable import printable
from flowjoin.api import API_VERSION, Exporter, ExporterType, FlowBatch, PluginContext
from flowjoin.wire.text import text_of

__all__ = ["TERMINAL_NAME", "TerminalSettings", "terminal_exporter_type"]

TERMINAL_NAME: Final = "terminal"
_PROTOCOLS: Final = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6", 132: "sctp"}
_NO_PORTS: Final = frozenset({1, 58})


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalSettings:
    """Where the lines go.

    Attributes:
        on_closed: told why nothing more can be written; whoever gave it ends the run.
    """

    out: TextIO
    form: Literal["table", "json"]
    on_closed: Callable[[OSError], None]


def terminal_exporter_type() -> ExporterType:
    """The exporter, as a plugin would hand it over."""
    return ExporterType(
        TERMINAL_NAME,
        TerminalSettings,
        _open,
        api_version=API_VERSION,
        patience=lambda _settings: inf,  # a reader of standard output may stop for as long as it likes
    )


class _TerminalExporter:
    def __init__(self, settings: TerminalSettings) -> None:
        self._settings = settings

    async def export(self, batch: FlowBatch) -> None:
        lines = _json_lines(batch) if self._settings.form == "json" else _text_lines(batch)
        try:
            await trio.to_thread.run_sync(self._write, "".join(f"{line}\n" for line in lines))
        except OSError as exc:
            self._settings.on_closed(exc)
            await trio.sleep_forever()

    def _write(self, text: str) -> None:
        self._settings.out.write(text)
        self._settings.out.flush()


@asynccontextmanager
async def _open(settings: TerminalSettings, _context: PluginContext) -> AsyncIterator[Exporter]:
    await trio.lowlevel.checkpoint()
    yield _TerminalExporter(settings)


def _json_lines(batch: FlowBatch) -> Iterator[str]:
    encode = json.JSONEncoder(separators=(",", ":")).encode
    return map(encode, batch.to_dicts())


def _text_lines(batch: FlowBatch) -> Iterator[str]:
    end_element = batch.schema.registry.by_name("flowEndSeconds")
    ends = [text_of(end_element, end) for end in batch.column("flowEndSeconds")]
    protocols = _numbers(batch, "protocolIdentifier")
    counts = zip(
        _numbers(batch, "packetTotalCount"),
        _numbers(batch, "octetTotalCount"),
        _numbers(batch, "reverseOctetTotalCount"),
        strict=True,
    )
    for end, protocol, source, destination, (packets, octets, reverse_octets) in zip(
        ends, protocols, _places(batch, "source"), _places(batch, "destination"), counts, strict=True
    ):
        name = _PROTOCOLS.get(protocol, str(protocol))
        line = f"{end}  {name:<5}  {source} -> {destination}  {packets:,} packets, {octets:,} octets"
        yield printable(f"{line}, {reverse_octets:,} back" if reverse_octets else line)


def _places(batch: FlowBatch, side: Literal["source", "destination"]) -> Iterator[str]:
    """``10.0.0.1:80`` or ``[2001:db8::1]:80``, with the Pod where it is known: ``10.0.0.1:80 (default/web)``."""
    for address, port, protocol, namespace, pod in zip(
        batch.address_text(side),
        _numbers(batch, f"{side}TransportPort"),
        _numbers(batch, "protocolIdentifier"),
        _texts(batch, f"{side}PodNamespace"),
        _texts(batch, f"{side}PodName"),
        strict=True,
    ):
        place = address
        if protocol not in _NO_PORTS:
            place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        yield f"{place} ({namespace}/{pod})" if pod else place


def _numbers(batch: FlowBatch, name: str) -> Sequence[int]:
    return cast(Sequence[int], batch.column(name))  # the element's data type says so


def _texts(batch: FlowBatch, name: str) -> Sequence[str]:
    return cast(Sequence[str], batch.column(name))
