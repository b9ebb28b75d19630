from __future__ import annotations

import json
import struct

import pytest
from capture_writer import message

from flowjoin._cli.decode_lines import DecodeLines, Line
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.registry import default_registry

SESSION = TransportSession(protocol="udp", peer="2001:db8::1", peer_port=4739)
FILE = TransportSession(protocol="file")


def a_set(set_id: int, body: bytes) -> bytes:
    return struct.pack(">HH", set_id, 4 + len(body)) + body


def template(template_id: int, *fields: tuple[int, int] | tuple[int, int, int]) -> bytes:
    body = struct.pack(">HH", template_id, len(fields))
    for number, length, *enterprise in fields:
        body += struct.pack(">HH", number | (0x8000 if enterprise else 0), length)
        body += struct.pack(">I", *enterprise) if enterprise else b""
    return body


def lines_of(*messages: bytes, session: TransportSession = SESSION) -> list[Line]:
    decoder = Decoder(default_registry())
    lines = DecodeLines()
    written = [
        line for each in messages for line in lines.lines_of(session, decoder.receive_message(each, session, 0.0))
    ]
    return [*written, lines.counters()]


def elements_of(fields: list[tuple[int, int] | tuple[int, int, int]], record: bytes) -> list[list[object]]:
    lines = lines_of(message(a_set(2, template(256, *fields)) + a_set(256, record)))
    return list(lines[1]["elements"])


def test_templates_and_records_have_exactly_the_keys_that_others_read() -> None:
    octets = message(
        a_set(2, template(256, (8, 4), (999, 3, 56506))) + a_set(256, bytes([10, 0, 0, 1, 1, 2, 0xAB])), domain=7
    )
    assert lines_of(octets) == [
        {
            "type": "template",
            "version": 10,
            "session": "[2001:db8::1]:4739",
            "observation_domain_id": 7,
            "template_id": 256,
            "fields": [["sourceIPv4Address", 4], ["56506/999", 3]],
        },
        {
            "type": "record",
            "version": 10,
            "session": "[2001:db8::1]:4739",
            "observation_domain_id": 7,
            "template_id": 256,
            "elements": [["sourceIPv4Address", "10.0.0.1"], ["56506/999", "0102ab"]],
        },
        {
            "type": "counters",
            "messages": 1,
            "records": 1,
            "option_records": 0,
            "sets_without_template": 0,
            "malformed_messages": 0,
            "malformed_templates": 0,
            "sequence_lost": 0,
            "reasons": {},
        },
    ]


def test_options_are_told_apart() -> None:
    options = struct.pack(">HHH", 300, 2, 1) + struct.pack(">HHHH", 143, 4, 160, 8)
    octets = message(a_set(3, options) + a_set(300, struct.pack(">IQ", 5, 1_431_516_013_506)))
    template_line, record, counters = lines_of(octets, session=FILE)
    assert (template_line["type"], template_line["session"]) == ("options_template", "file")
    assert record["type"] == "option_record"
    assert record["elements"] == [["meteringProcessId", 5], ["systemInitTimeMilliseconds", "2015-05-13T11:20:13.506Z"]]
    assert (counters["records"], counters["option_records"]) == (0, 1)


def test_repeated_elements_stay_in_template_order() -> None:
    assert elements_of([(1, 1), (8, 4), (1, 1)], bytes([1, 0, 0, 0, 0, 2])) == [
        ["octetDeltaCount", 1],
        ["sourceIPv4Address", "0.0.0.0"],
        ["octetDeltaCount", 2],
    ]


def test_integers_stay_exact_in_json() -> None:
    (element,) = elements_of([(1, 8)], b"\xff" * 8)
    assert json.dumps(element) == '["octetDeltaCount", 18446744073709551615]'


@pytest.mark.parametrize(
    ("number", "value", "text"),
    [
        (150, struct.pack(">I", 1_700_000_000), "2023-11-14T22:13:20Z"),
        (152, struct.pack(">Q", 1_700_000_000_001), "2023-11-14T22:13:20.001Z"),
        (154, struct.pack(">II", 1_700_000_000 + 2_208_988_800, 1 << 31), "2023-11-14T22:13:20.500000Z"),
        (156, struct.pack(">II", 1_700_000_000 + 2_208_988_800, 1 << 31), "2023-11-14T22:13:20.500000000Z"),
    ],
)
def test_times_have_the_precision_of_their_type(number: int, value: bytes, text: str) -> None:
    ((_, found),) = elements_of([(number, len(value))], value)
    assert found == text


@pytest.mark.parametrize(
    ("number", "value", "expected"),
    [
        (56, bytes.fromhex("0242ac110002"), "02:42:ac:11:00:02"),
        (27, bytes.fromhex("20010db8000000000000000000000001"), "2001:db8::1"),
        (82, b"eth0", "eth0"),
        (210, b"\x00\xff", "00ff"),
        (276, b"\x01", True),
    ],
)
def test_values_are_written_as_their_type_is_read(number: int, value: bytes, expected: object) -> None:
    ((_, found),) = elements_of([(number, len(value))], value)
    assert found == expected
    assert type(found) is type(expected)


def test_every_fault_is_counted_with_its_reason() -> None:
    counters = lines_of(
        message(a_set(256, b"1234")),  # no Template
        message(a_set(17, b"1234"), sequence=0),  # a reserved id: no Data Set
        message(struct.pack(">HH", 2, 3)),
        message(a_set(2, template(255, (8, 4)))),
        message(a_set(2, template(257, (82, 65_535))) + a_set(257, b"\x03abc\x0fcut short")),
        b"\x00\x0a\x00",
    )[-1]
    assert counters["sets_without_template"] == 1
    assert counters["malformed_messages"] == 2
    assert counters["malformed_templates"] == 1
    assert counters["reasons"] == {
        "message_too_short": 1,
        "record_truncated": 1,
        "set_id_reserved": 1,
        "set_too_short": 1,
        "template_id_reserved": 1,
        "template_unknown": 1,
    }


def test_lost_records_are_counted_and_found_again() -> None:
    def octets(sequence: int) -> bytes:
        return message(a_set(2, template(256, (1, 1))) + a_set(256, b"\x01"), sequence=sequence)

    assert lines_of(octets(0), octets(3))[-1]["sequence_lost"] == 2
    assert lines_of(octets(0), octets(2), octets(1))[-1]["sequence_lost"] == 0


def test_what_ends_a_stream_or_the_file_is_counted_too() -> None:
    lines = DecodeLines()
    lines.count_malformed_message(DecodeError(Reason.STREAM_DESYNCHRONISED, offset=0))
    lines.count_reason(Reason.FILE_TRUNCATED)
    counters = lines.counters()
    assert counters["malformed_messages"] == 1
    assert counters["reasons"] == {"file_truncated": 1, "stream_desynchronised": 1}
