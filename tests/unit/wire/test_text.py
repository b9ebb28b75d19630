from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from flowjoin._model.errors import EncodeError
from flowjoin._model.information_element import Value
from flowjoin.wire import address_text, default_registry, json_value, packed_of, text_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text(name: str, value: Value) -> str:
    return text_of(default_registry().by_name(name), value)


@pytest.mark.parametrize(
    ("packed", "written"),
    [
        ("01020304", "1.2.3.4"),
        ("20010db8000000000000000000000001", "2001:db8::1"),
        ("200100003238dfe1006300000000fefb", "2001:0:3238:dfe1:63::fefb"),
        ("20010db8000000010000000000000001", "2001:db8:0:1::1"),  # the longest run
        ("20010000000000010000000000010001", "2001::1:0:0:1:1"),  # of equal runs the first
        ("20010db8000000010001000100010001", "2001:db8:0:1:1:1:1:1"),  # one group stays
        ("00000000000000000000000000000000", "::"),
        ("00000000000000000000000000000001", "::1"),
        ("00010000000000000000000000000000", "1::"),
        ("00000000000000000000ffffc0000201", "::ffff:192.0.2.1"),
        ("000000000000000000000000c0000201", "::c000:201"),
        ("fe80000000000000abcdef0123456789", "fe80::abcd:ef01:2345:6789"),
        ("20010db800010002000300040005000a", "2001:db8:1:2:3:4:5:a"),
    ],
)
def test_addresses_are_written_as_rfc_5952_says(packed: str, written: str) -> None:
    octets = bytes.fromhex(packed)
    assert address_text(octets) == written
    name = "sourceIPv4Address" if len(octets) == 4 else "sourceIPv6Address"
    assert text(name, octets) == written
    assert packed_of(default_registry().by_name(name), written) == octets


def test_mac_addresses_are_written_in_lower_case_with_colons() -> None:
    octets = bytes.fromhex("AABBCCDDEEFF")
    assert text("sourceMacAddress", octets) == "aa:bb:cc:dd:ee:ff"


@pytest.mark.parametrize("written", ["aa:bb:cc:dd:ee:ff", "AA-BB-CC-DD-EE-FF"])
def test_mac_addresses_are_read_with_colons_or_hyphens(written: str) -> None:
    assert packed_of(default_registry().by_name("sourceMacAddress"), written).hex() == "aabbccddeeff"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("sourceIPv4Address", "1.2.3"),
        ("sourceIPv4Address", "1.2.3.04"),
        ("sourceIPv4Address", "2001:db8::1"),
        ("sourceIPv4Address", ""),
        ("sourceIPv6Address", "192.0.2.1"),
        ("sourceIPv6Address", "fe80::1%eth0"),
        ("sourceMacAddress", "aa:bb:cc:dd:ee"),
        ("sourceMacAddress", "aa:bb:cc:dd:ee:fg"),
        ("sourceMacAddress", "aabbccddeeffaabbc"),
        ("sourceMacAddress", "aa bb cc dd ee ff"),
        ("sourceMacAddress", "aabbccddeeff     "),
        ("sourceTransportPort", "80"),
    ],
)
def test_what_is_no_address_of_the_elements_type_is_refused_by_its_name(name: str, written: str) -> None:
    with pytest.raises(EncodeError) as refused:
        packed_of(default_registry().by_name(name), written)
    assert refused.value.element == name


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("flowStartSeconds", 0, "1970-01-01T00:00:00Z"),
        ("flowStartSeconds", 4_294_967_295, "2106-02-07T06:28:15Z"),
        ("flowStartMilliseconds", 1_700_000_000_005, "2023-11-14T22:13:20.005Z"),
        ("flowStartMicroseconds", 1_700_000_000_000_001, "2023-11-14T22:13:20.000001Z"),
        ("flowStartNanoseconds", 1_700_000_000_000_000_001, "2023-11-14T22:13:20.000000001Z"),
        ("flowStartMicroseconds", -1, "1969-12-31T23:59:59.999999Z"),
        ("flowStartMilliseconds", 253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ("flowStartMilliseconds", 253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        ("flowStartMilliseconds", 2**64 - 1, "+584556019-04-03T14:25:51.615Z"),
        ("flowStartSeconds", -62_198_755_200, "-0001-01-01T00:00:00Z"),
    ],
)
def test_times_have_their_types_precision_and_any_year(name: str, value: int, written: str) -> None:
    assert text(name, value) == written


def test_times_agree_with_the_calendar_across_leap_years() -> None:
    for day in range(-200_000, 800_000, 997):
        when = EPOCH + timedelta(days=day, seconds=day % 86_400)
        assert text("flowStartSeconds", day * 86_400 + day % 86_400) == when.isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("name", "value", "written", "json"),
    [
        ("octetDeltaCount", 2**64 - 1, "18446744073709551615", 2**64 - 1),
        ("samplingProbability", 0.5, "0.5", 0.5),
        ("samplingProbability", float("nan"), "NaN", "NaN"),
        ("samplingProbability", float("inf"), "Infinity", "Infinity"),
        ("samplingProbability", float("-inf"), "-Infinity", "-Infinity"),
        ("dataRecordsReliability", True, "true", True),
        ("dataRecordsReliability", False, "false", False),
        ("interfaceName", "eth0", "eth0", "eth0"),
        ("sourceIPv4Address", "1.2.3.4", "1.2.3.4", "1.2.3.4"),
        ("paddingOctets", b"\x00\xff", "00ff", "00ff"),
        ("sourceIPv4Address", b"\x01\x02", "0102", "0102"),  # a length that the type does not allow
        ("octetDeltaCount", bytes(9), "00" * 9, "00" * 9),
        ("flowStartSeconds", bytes(2), "0000", "0000"),
    ],
)
def test_values_have_a_text_and_a_json_form(name: str, value: Value, written: str, json: object) -> None:
    assert text(name, value) == written
    assert json_value(default_registry().by_name(name), value) == json
