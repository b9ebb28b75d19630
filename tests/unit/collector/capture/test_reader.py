from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from capture_writer import (
    ACK,
    COLLECTOR,
    COLLECTOR6,
    EXPORTER,
    EXPORTER6,
    FIN,
    SYN,
    enhanced_packet,
    ethernet,
    interface,
    ipv4,
    ipv6,
    message,
    pcap,
    section,
    tcp,
    udp,
)

from flowjoin._collector.capture.reader import (
    CapturedMessage,
    CaptureItem,
    CaptureReader,
    CaptureStatistics,
    SessionEnded,
    open_capture,
)
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession

MESSAGE = message(b"\x01\x2c\x00\x08abcd")


def over_tcp(*segments: bytes) -> bytes:
    return pcap((float(time), ethernet(ipv4(each, protocol=6))) for time, each in enumerate(segments))


def messages(items: list[CaptureItem]) -> list[bytes]:
    return [bytes(item.payload) for item in items if isinstance(item, CapturedMessage)]


def read(file: bytes, ports: tuple[int, ...] | None = None) -> list[CaptureItem]:
    return list(CaptureReader(io.BytesIO(file), ports=ports))


def test_a_datagram_that_begins_like_a_message_is_one_on_any_port() -> None:
    file = pcap(
        [
            (5.5, ethernet(ipv4(udp(MESSAGE, source_port=50_001, destination_port=9995)))),
            (6.5, ethernet(ipv6(udp(MESSAGE)))),
        ]
    )
    assert read(file) == [
        CapturedMessage(
            5.5,
            TransportSession(protocol="udp", peer=EXPORTER, peer_port=50_001, local=COLLECTOR, local_port=9995),
            memoryview(MESSAGE),
        ),
        CapturedMessage(
            6.5,
            TransportSession(protocol="udp", peer=EXPORTER6, peer_port=50_001, local=COLLECTOR6, local_port=4739),
            memoryview(MESSAGE),
        ),
    ]


def test_ports_narrow_to_what_was_sent_to_them() -> None:
    frames = [(0.0, ethernet(ipv4(udp(MESSAGE, destination_port=port)))) for port in (4739, 9995, 2055)]
    items = read(pcap(frames), ports=(9995, 2055))
    assert [item.session.local_port for item in items] == [9995, 2055]
    assert read(over_tcp(tcp(MESSAGE, sequence=1)), ports=(9995,)) == []
    assert messages(read(over_tcp(tcp(MESSAGE, sequence=1)), ports=(4739,))) == [MESSAGE]


def test_time_never_runs_backwards() -> None:
    frames = [(time, ethernet(ipv4(udp(MESSAGE)))) for time in (10.0, 9.0, 11.0)]
    assert [item.time for item in read(pcap(frames))] == [10.0, 10.0, 11.0]


def test_pcapng_is_told_by_its_first_block() -> None:
    frame = ethernet(ipv4(udp(MESSAGE)))
    file = section() + interface() + enhanced_packet(frame, ticks=2_000_000)
    assert [(item.time, bytes(item.payload)) for item in read(file) if isinstance(item, CapturedMessage)] == [
        (2.0, MESSAGE)
    ]


def test_a_tcp_stream_gives_its_messages_however_it_was_cut() -> None:
    stream = MESSAGE * 3
    segments = [tcp(stream[at : at + 7], sequence=1 + at) for at in range(0, len(stream), 7)]
    items = read(over_tcp(tcp(sequence=0, flags=SYN), *segments, tcp(sequence=1 + len(stream), flags=FIN | ACK)))
    session = TransportSession(
        protocol="tcp", peer=EXPORTER, peer_port=50_001, local=COLLECTOR, local_port=4739, serial=1
    )
    assert messages(items) == [MESSAGE] * 3
    assert items[-1] == SessionEnded(len(segments) + 1.0, session, None)


def test_a_tcp_stream_that_loses_its_place_ends_with_the_reason() -> None:
    items = read(over_tcp(tcp(MESSAGE + b"\x00\x09more", sequence=1), tcp(MESSAGE, sequence=100)))
    assert messages(items) == [MESSAGE]
    (ended,) = items[1:]
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert (ended.error.reason, ended.error.offset) == (Reason.STREAM_DESYNCHRONISED, len(MESSAGE))


def test_a_stream_open_at_the_end_of_the_capture_ends_there() -> None:
    reader = CaptureReader(io.BytesIO(over_tcp(tcp(MESSAGE + MESSAGE[:9], sequence=1))))
    items = list(reader)
    assert (len(messages(items)), type(items[-1])) == (1, SessionEnded)
    assert reader.statistics().streams_cut == 1


def test_an_ipfix_file_has_one_session_and_its_own_clock() -> None:
    file = message(export_time=200) + message(export_time=100) + message(export_time=300)
    items = read(file)
    assert [(item.time, str(item.session)) for item in items] == [(200, "file"), (200, "file"), (300, "file")]


def test_everything_that_is_no_message_is_counted() -> None:
    file = pcap(
        [
            (0.0, b"no frame"),
            (0.0, ethernet(ipv4(b"", protocol=1))),
            (0.0, ethernet(ipv4(b"\0\0\0"))),
            (0.0, ethernet(ipv4(udp(b"\x00\x05netflow")))),
            (0.0, ethernet(ipv4(udp(MESSAGE[:10], length=100)))),
            (0.0, ethernet(ipv4(udp(MESSAGE)[:16], identification=1, more=True))),
            (0.0, ethernet(ipv4(tcp(sequence=0, flags=SYN), protocol=6))),
            (0.0, ethernet(ipv4(tcp(b"SSH-2.0", sequence=1), protocol=6))),
            (0.0, ethernet(ipv4(tcp(sequence=0, flags=SYN, source_port=1), protocol=6))),
            (0.0, ethernet(ipv4(tcp(MESSAGE, sequence=2, source_port=1), protocol=6))),
        ]
    )
    reader = CaptureReader(io.BytesIO(file))
    assert messages(list(reader)) == [MESSAGE[:10]]
    assert reader.statistics() == CaptureStatistics(
        frames=10,
        frames_skipped=3,
        packets_incomplete=1,
        datagrams_other=1,
        datagrams_cut=1,
        streams_other=1,
        streams_with_gap=1,
    )


@pytest.mark.parametrize("file", [b"", b"\x00", b"\x1f\x8b\x08\x00", b"\x00\x09\x00\x10" + bytes(100), b"text\n" * 10])
def test_an_unknown_format_is_told_before_anything_is_given(file: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        read(file)
    assert (caught.value.reason, caught.value.offset) == (Reason.FILE_FORMAT_UNKNOWN, 0)


def test_a_capture_cut_short_gives_what_is_whole_and_ends_open_streams_first() -> None:
    file = over_tcp(tcp(MESSAGE, sequence=1), tcp(MESSAGE, sequence=1 + len(MESSAGE)))[:-1]
    reader = CaptureReader(io.BytesIO(file))
    items: list[CaptureItem] = []
    with pytest.raises(DecodeError) as caught:
        items.extend(reader)
    assert caught.value.reason is Reason.FILE_TRUNCATED
    assert (len(messages(items)), type(items[-1])) == (1, SessionEnded)


def test_a_reader_knows_how_far_it_is() -> None:
    file = pcap([(0.0, ethernet(ipv4(udp(MESSAGE))))] * 2)
    reader = CaptureReader(io.BytesIO(file))
    next(reader)
    assert reader.offset == 24 + (len(file) - 24) // 2
    list(reader)
    assert reader.offset == len(file)


def test_a_file_is_opened_by_its_path_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "flows.ipfix"
    path.write_bytes(MESSAGE)
    with open_capture(path) as capture:
        assert len(list(capture)) == 1


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MESSAGE)))
    with open_capture("-") as capture:
        assert len(list(capture)) == 1


def test_sessions_are_made_anew_when_too_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowjoin._collector.capture.reader._MAX_SESSIONS_KEPT", 2)
    frames = [(0.0, ethernet(ipv4(udp(MESSAGE, source_port=port)))) for port in (1, 2, 3, 1)]
    assert [item.session.peer_port for item in read(pcap(frames))] == [1, 2, 3, 1]
