from __future__ import annotations

import struct

import pytest
from wire_builders import template

from flowjoin._model.information_element import VARIABLE_LENGTH, Value
from flowjoin.wire import carries_octets
from flowjoin.wire.records import RecordDecoder

EXPORT_TIME = 1_700_000_000


def decode(octets: str | bytes, *fields: str | tuple[str, int]) -> tuple[list[tuple[Value, ...]], int | None]:
    data = bytes.fromhex(octets) if isinstance(octets, str) else octets
    # Other octets around show that none of them is read.
    return RecordDecoder(template(*fields).fields).decode(b"\xff" + data + b"\x01" * 9, 1, 1 + len(data), EXPORT_TIME)


def one(octets: str, name: str, length: int | None = None) -> Value:
    records, fault = decode(octets, name if length is None else (name, length))
    assert fault is None
    [[value]] = records
    return value


@pytest.mark.parametrize(
    ("name", "octets", "value"),
    [
        ("protocolIdentifier", "01", 1),
        ("sourceTransportPort", "007b", 123),
        ("ingressInterface", "000004d2", 1234),
        ("octetDeltaCount", "0000000000003039", 12_345),
        ("octetDeltaCount", "ffffffffffffffff", 2**64 - 1),
        ("mibObjectValueInteger", "fffffb2e", -1234),
        ("samplingProbability", "4091269f6f818375", 1097.655698798798),
        ("dataRecordsReliability", "01", True),
        ("dataRecordsReliability", "02", False),
        ("dataRecordsReliability", "00", False),
        ("sourceMacAddress", "aabbccddeeff", bytes.fromhex("aabbccddeeff")),
        ("flowStartSeconds", "4af9f070", 1_257_894_000),
        ("flowStartSeconds", "ffffffff", 2**32 - 1),
        ("flowStartMilliseconds", "0000018bcfe56805", 1_700_000_000_005),
        ("flowStartMicroseconds", "e8fe6f80800007ff", 1_700_000_000_500_000),
        ("flowStartNanoseconds", "e8fe6f80800007ff", 1_700_000_000_500_000_477),
        ("sourceIPv4Address", "01020304", b"\x01\x02\x03\x04"),
        ("sourceIPv6Address", "200100003238dfe1006300000000fefb", bytes.fromhex("200100003238dfe1006300000000fefb")),
        ("interfaceName", "0454657374", "Test"),
        ("interfaceName", "00", ""),
        ("interfaceName", "ff000454657374", "Test"),
        ("interfaceName", "0461006200", "a\0b\0"),
        ("interfaceName", "03fffe41", "��A"),
        ("paddingOctets", "0200ff", b"\x00\xff"),
        ("basicList", "03ff0001", b"\xff\x00\x01"),
    ],
)
def test_every_abstract_data_type_is_read(name: str, octets: str, value: Value) -> None:
    assert one(octets, name) == value
    assert type(one(octets, name)) is type(value)


@pytest.mark.parametrize("length", range(1, 9))
def test_unsigned_integers_are_read_in_any_size(length: int) -> None:
    octets = "80" + "01" * (length - 1)
    assert one(octets, "octetDeltaCount", length) == int(octets, 16)


@pytest.mark.parametrize("length", range(1, 5))
def test_signed_integers_keep_their_sign_in_any_size(length: int) -> None:
    assert one("fe".rjust(2 * length, "f"), "mibObjectValueInteger", length) == -2


@pytest.mark.parametrize(
    ("name", "octets", "value"),
    [
        ("forwardingStatus", "0040", 64),
        ("forwardingStatus", "00000040", 64),
        ("protocolIdentifier", "0140", 255),
        ("sourceTransportPort", "00000000ffffffff", 65_535),
        ("mibObjectValueInteger", "00000080000000", 2**31 - 1),
        ("mibObjectValueInteger", "ffffff7fffffff", -(2**31)),
        ("mibObjectValueInteger", "ffffffffffff85", -123),
    ],
)
def test_an_integer_longer_than_its_type_is_brought_into_the_types_range(name: str, octets: str, value: int) -> None:
    assert one(octets, name, len(octets) // 2) == value


def test_a_float64_may_come_in_four_octets() -> None:
    assert one("3f000000", "samplingProbability", 4) == 0.5


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("octetDeltaCount", 9),
        ("octetDeltaCount", 16),
        ("samplingProbability", 3),
        ("dataRecordsReliability", 2),
        ("sourceMacAddress", 8),
        ("sourceIPv4Address", 5),
        ("sourceIPv6Address", 4),
        ("flowStartSeconds", 8),
        ("flowStartMilliseconds", 4),
        ("flowStartNanoseconds", 4),
    ],
)
def test_a_length_its_type_does_not_allow_gives_octets_and_keeps_in_step(name: str, length: int) -> None:
    fields = template((name, length), "protocolIdentifier").fields
    records, fault = decode(b"\xfe" * length + b"\x06", (name, length), "protocolIdentifier")
    assert (records, fault) == ([(b"\xfe" * length, 6)], None)
    assert carries_octets(fields[0])
    assert not carries_octets(fields[1])


def test_a_variable_length_its_type_does_not_allow_gives_octets_too() -> None:
    assert one("020102", "octetDeltaCount", VARIABLE_LENGTH) == b"\x01\x02"
    assert carries_octets(template(("octetDeltaCount", VARIABLE_LENGTH)).fields[0])


@pytest.mark.parametrize(
    "field",
    ["interfaceName", ("interfaceName", 3), "paddingOctets", ("paddingOctets", 3), "basicList", "octetDeltaCount"],
)
def test_octets_and_strings_of_any_length_and_whole_numbers_are_what_they_are(field: str | tuple[str, int]) -> None:
    assert not carries_octets(template(field).fields[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("octetDeltaCount", 0),
        ("samplingProbability", 0.0),
        ("dataRecordsReliability", False),
        ("interfaceName", ""),
        ("paddingOctets", b""),
        ("sourceIPv4Address", bytes(4)),
        ("sourceIPv6Address", bytes(16)),
        ("sourceMacAddress", bytes(6)),
        ("flowStartNanoseconds", 0),
    ],
)
def test_a_field_without_octets_has_the_elements_default(name: str, value: Value) -> None:
    assert decode("0607", (name, 0), "protocolIdentifier") == ([(value, 6), (value, 7)], None)
    assert not carries_octets(template((name, 0)).fields[0])


def test_fields_without_octets_may_surround_variable_ones() -> None:
    fields = (("octetDeltaCount", 0), "interfaceName", ("packetDeltaCount", 0))
    assert decode("0161026262", *fields) == ([(0, "a", 0), (0, "bb", 0)], None)


def test_strings_of_fixed_length_lose_the_nulls_at_their_end_only() -> None:
    assert one("6100620000", "interfaceName", 5) == "a\0b"
    assert one("0000000000", "interfaceName", 5) == ""
    assert one("c3a9fffe00", "interfaceName", 5) == "é��"


def test_both_forms_of_variable_length_reach_their_limits() -> None:
    octets = b"\xfe" + b"a" * 254 + b"\xff\x00\xff" + b"b" * 255 + b"\xff\x00\x00" + b"\xff\x40\x00" + b"c" * 0x4000
    records, fault = decode(octets, "interfaceName")
    assert [len(str(value)) for [value] in records] == [254, 255, 0, 0x4000]
    assert fault is None


@pytest.mark.parametrize("padding", range(8))
def test_a_rest_shorter_than_the_shortest_record_is_padding(padding: int) -> None:
    octets = bytes.fromhex("0102030405060708") + bytes(padding)
    expected = ([(b"\x01\x02\x03\x04", b"\x05\x06\x07\x08")], None)
    assert decode(octets, "sourceIPv4Address", "destinationIPv4Address") == expected


def test_a_variable_field_counts_one_octet_in_the_shortest_record() -> None:
    assert decode("06046574683000000005" + "000000", "protocolIdentifier", "interfaceName", ("octetDeltaCount", 4)) == (
        [(6, "eth0", 5)],
        None,
    )


def test_an_empty_set_has_no_records() -> None:
    assert decode("", "protocolIdentifier") == ([], None)
    assert decode("", "interfaceName") == ([], None)


def test_many_records_of_fixed_length_are_read_at_once() -> None:
    octets = struct.pack(">60000B", *([6] * 60_000))
    records, fault = decode(octets, "protocolIdentifier")
    assert (len(records), set(records), fault) == (60_000, {(6,)}, None)


@pytest.mark.parametrize(
    ("octets", "fields", "fault"),
    [
        ("0161" + "0561", ("interfaceName",), 2),  # the short form's octets are cut
        ("0161" + "ff0005616161", ("interfaceName",), 2),  # the long form's octets
        ("0161" + "ff", ("interfaceName",), 2),  # the long form's length
        ("0161" + "ff00", ("interfaceName",), 2),
        ("016106" + "01ff", ("interfaceName", "protocolIdentifier"), 3),  # the fixed run behind it
        ("0600" + "0600" + "0602", ("protocolIdentifier", "interfaceName"), 4),
        (
            "000000" + "026161" + "00",
            ("interfaceName", "interfaceName", "interfaceName"),
            3,
        ),  # nothing is left for the last
    ],
)
def test_records_before_the_one_cut_are_given_and_the_fault_is_where_that_begins(
    octets: str, fields: tuple[str, ...], fault: int
) -> None:
    records, where = decode(octets, *fields)
    assert records
    assert where == 1 + fault
