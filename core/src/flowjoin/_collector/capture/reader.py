"""From a capture or an IPFIX File to whole Messages, with the session and the time of each.

Strategy: the first four octets tell the format. Frames of a capture pass link, IP, fragments, UDP or TCP; a payload
that begins like a Message is one. Files are read from front to back, so that they may be pipes and of any size;
what waits for missing pieces is bounded.
Invariant: any octets give items or DecodeError; a file cut anywhere gives the items before the cut, then
FILE_TRUNCATED.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from flowjoin._collector.capture.fragments import FragmentTable
from flowjoin._collector.capture.frame import Frame
from flowjoin._collector.capture.ip import TCP, UDP, IpPacket, read_ip_packet
from flowjoin._collector.capture.ipfix_file import read_ipfix_file
from flowjoin._collector.capture.link import ip_packet_of
from flowjoin._collector.capture.message_start import IPFIX_VERSION
from flowjoin._collector.capture.octet_source import BinaryReader, OctetSource
from flowjoin._collector.capture.pcap import PCAP_MAGICS, read_pcap
from flowjoin._collector.capture.pcapng import SECTION_HEADER_BLOCK, read_pcapng
from flowjoin._collector.capture.streams import MessageEvent, MessageStreams, StreamMessage
from flowjoin._collector.capture.udp import read_udp_datagram
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportProtocol, TransportSession
from flowjoin.wire.text import address_text

__all__ = ["CaptureItem", "CaptureReader", "CaptureStatistics", "CapturedMessage", "SessionEnded", "open_capture"]

_FILE_SESSION: Final = TransportSession(protocol="file")
_NETFLOW_HEADERS: Final = {1: 16, 5: 24, 7: 24, 8: 28, 9: 20}  # octets, by version
_BUFFER_OCTETS: Final = 1 << 20
_MAX_SESSIONS_KEPT: Final = 65_536  # of a cache that saves making equal values


class CapturedMessage(NamedTuple):
    """One whole Message.

    Attributes:
        time: seconds since the Unix epoch, when its last octet was captured (export time in an IPFIX File);
            never before that of the item before it.
        session: from the exporting process to the collector.
        payload: the Message, as far as it was captured.
    """

    time: float
    session: TransportSession
    payload: memoryview


class SessionEnded(NamedTuple):
    """A TCP session that has given Messages will give none any more.

    Attributes:
        error: why the byte stream could not be read further; None when it was closed, or octets were not captured.
    """

    time: float
    session: TransportSession
    error: DecodeError | None


CaptureItem: TypeAlias = CapturedMessage | SessionEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStatistics:
    """What was met besides Messages.

    Attributes:
        frames: captured frames read.
        frames_skipped: without an IP packet, with neither UDP nor TCP in it, or with headers that cannot be.
        packets_incomplete: fragmented packets of which pieces are missing.
        datagrams_other: UDP datagrams that are no Messages, or went to other ports.
        datagrams_netflow: of those others, the datagrams of each version of NetFlow before IPFIX.
        datagrams_cut: Messages longer than what was captured of them.
        streams_other: TCP streams that do not begin with a Message.
        streams_with_gap: TCP streams that ended early, because octets were not captured.
        streams_cut: TCP streams whose last Message stayed incomplete.
    """

    frames: int = 0
    frames_skipped: int = 0
    packets_incomplete: int = 0
    datagrams_other: int = 0
    datagrams_netflow: Mapping[int, int] = field(default_factory=dict)
    datagrams_cut: int = 0
    streams_other: int = 0
    streams_with_gap: int = 0
    streams_cut: int = 0


class CaptureReader:
    """Iterates over the items of one file, once.

    Raises:
        DecodeError: while iterating; FILE_FORMAT_UNKNOWN before any item, FILE_TRUNCATED or
            STREAM_DESYNCHRONISED after all items that could be read.
    """

    def __init__(self, file: BinaryReader, *, ports: Collection[int] | None = None) -> None:
        """Read from ``file``; with ``ports`` only what was sent to one of them (an IPFIX File has no ports).

        Raises:
            OSError: the file's first octets cannot be read.
        """
        self._source = OctetSource(file)
        self._start = self._source.read(4)
        self._ports = None if ports is None else frozenset(ports)
        self._fragments = FragmentTable()
        self._streams = MessageStreams()
        self._sessions: dict[tuple[str, bytes, int, bytes, int, int], TransportSession] = {}
        self._time = 0.0
        self._frames = 0
        self._frames_skipped = 0
        self._datagrams_other = 0
        self._datagrams_netflow: Counter[int] = Counter()
        self._datagrams_cut = 0
        self._items = self._read()

    def __iter__(self) -> Iterator[CaptureItem]:
        return self._items

    def __next__(self) -> CaptureItem:
        return next(self._items)

    @property
    def is_ipfix_file(self) -> bool:
        """Whether it is an IPFIX File (RFC 5655), which knows nothing of ports; else it is a capture, or unknown."""
        return self._start[:2] == IPFIX_VERSION

    @property
    def offset(self) -> int:
        """Octets of the file taken so far."""
        return self._source.offset

    def statistics(self) -> CaptureStatistics:
        """A snapshot of all counters."""
        return CaptureStatistics(
            frames=self._frames,
            frames_skipped=self._frames_skipped,
            packets_incomplete=self._fragments.given_up,
            datagrams_other=self._datagrams_other,
            datagrams_netflow=dict(sorted(self._datagrams_netflow.items())),
            datagrams_cut=self._datagrams_cut,
            streams_other=self._streams.other,
            streams_with_gap=self._streams.gaps,
            streams_cut=self._streams.cut,
        )

    def _read(self) -> Iterator[CaptureItem]:
        start = self._start
        if self.is_ipfix_file:
            for export_time, message in read_ipfix_file(start, self._source):
                self._time = max(self._time, export_time)
                yield CapturedMessage(self._time, _FILE_SESSION, message)
        elif start in PCAP_MAGICS:
            yield from self._items_of(read_pcap(start, self._source))
        elif start == SECTION_HEADER_BLOCK:
            yield from self._items_of(read_pcapng(self._source))
        else:
            raise DecodeError(Reason.FILE_FORMAT_UNKNOWN, offset=0)

    def _items_of(self, frames: Iterator[Frame]) -> Iterator[CaptureItem]:
        fault: DecodeError | None = None
        try:
            for frame in frames:
                self._frames += 1
                self._time = max(self._time, frame.time)
                packet = self._packet_of(frame)
                if packet is None:
                    continue
                if packet.protocol == UDP:
                    message = self._message_of(packet)
                    if message is not None:
                        yield message
                elif self._is_wanted(packet.payload):
                    for event in self._streams.receive(packet.source, packet.destination, packet.payload):
                        yield self._item_of(event)
        except DecodeError as error:
            fault = error
        self._fragments.give_up_all()
        yield from map(self._item_of, self._streams.end_all())
        if fault is not None:
            raise fault

    def _packet_of(self, frame: Frame) -> IpPacket | None:
        """The whole packet of UDP or TCP that a frame brings or completes."""
        octets = ip_packet_of(frame.link_type, memoryview(frame.octets))
        packet = None if octets is None else read_ip_packet(octets)
        if packet is not None and packet.fragment is not None:
            packet = self._fragments.receive(self._time, packet)
            if packet is None:
                return None
        if packet is None or packet.protocol not in (UDP, TCP):
            self._frames_skipped += 1
            return None
        return packet

    def _message_of(self, packet: IpPacket) -> CapturedMessage | None:
        datagram = read_udp_datagram(packet.payload)
        if datagram is None:
            self._frames_skipped += 1
            return None
        is_wanted = self._is_wanted(packet.payload)
        if bytes(datagram.payload[:2]) != IPFIX_VERSION or not is_wanted:
            self._datagrams_other += 1
            version = int.from_bytes(datagram.payload[:2], "big")
            if is_wanted and len(datagram.payload) >= _NETFLOW_HEADERS.get(version, inf):
                self._datagrams_netflow[version] += 1
            return None
        self._datagrams_cut += datagram.is_cut
        session = self._session(
            "udp", packet.source, datagram.source_port, packet.destination, datagram.destination_port
        )
        return CapturedMessage(self._time, session, datagram.payload)

    def _is_wanted(self, segment: memoryview) -> bool:
        """Whether a datagram or segment went to one of our ports, which stand at the same place in both headers."""
        return self._ports is None or int.from_bytes(segment[2:4], "big") in self._ports

    def _item_of(self, event: MessageEvent) -> CaptureItem:
        session = self._session("tcp", *event.name)
        if isinstance(event, StreamMessage):
            return CapturedMessage(self._time, session, event.message)
        return SessionEnded(self._time, session, event.error)

    def _session(
        self,
        protocol: TransportProtocol,
        source: bytes,
        source_port: int,
        destination: bytes,
        destination_port: int,
        serial: int = 0,
    ) -> TransportSession:
        key = (protocol, source, source_port, destination, destination_port, serial)
        session = self._sessions.get(key)
        if session is None:
            if len(self._sessions) >= _MAX_SESSIONS_KEPT:
                self._sessions.clear()
            session = self._sessions[key] = TransportSession(
                protocol=protocol,
                peer=address_text(source),
                peer_port=source_port,
                local=address_text(destination),
                local_port=destination_port,
                serial=serial,
            )
        return session


@contextlib.contextmanager
def open_capture(path: Path | str, *, ports: Collection[int] | None = None) -> Iterator[CaptureReader]:
    """Open a capture or an IPFIX File; ``-`` is standard input.

    Raises:
        OSError: the file cannot be opened.
    """
    if str(path) == "-":
        yield CaptureReader(_standard_input(), ports=ports)
        return
    with Path(path).open("rb", buffering=_BUFFER_OCTETS) as file:
        yield CaptureReader(file, ports=ports)


def _standard_input() -> BinaryReader:
    """Standard input with a buffer of its own.

    A reader that was interrupted may have left a thread behind that waits in ``read``. Python, when it ends, wants the
    buffer of ``sys.stdin`` for itself, and aborts when somebody has it.
    """
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:  # not the process's own
        return sys.stdin.buffer
    return open(descriptor, "rb", buffering=_BUFFER_OCTETS, closefd=False)  # nobody may close it
