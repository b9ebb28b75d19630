from __future__ import annotations

import pytest
from wire_builders import TCP, UDP, kinds, records, template

from flowjoin._model.errors import EncodeError
from flowjoin._model.information_element import VARIABLE_LENGTH, Value
from flowjoin._model.template import FieldSpecifier, Template, TemplateId
from flowjoin.wire import (
    Decoder,
    Encoder,
    RecordEncoder,
    TemplateWithdrawn,
    default_registry,
    encode_data_set,
    encode_message,
    encode_template_set,
    encode_withdrawal_set,
)

ADDRESSES = template("sourceIPv4Address", "destinationIPv4Address")
EIGHT_OCTETS = ("192.0.2.1", "192.0.2.2")
OPTIONS = template("observationDomainId", "exportedMessageTotalCount", template_id=300, scope=1)


def encode(name: str, value: Value, length: int | None = None) -> bytes:
    return RecordEncoder(template(name if length is None else (name, length))).encode([value])


@pytest.mark.parametrize(
    ("name", "value", "octets"),
    [
        ("protocolIdentifier", 1, "01"),
        ("sourceTransportPort", 123, "007b"),
        ("ingressInterface", 1234, "000004d2"),
        ("octetDeltaCount", 12_345, "0000000000003039"),
        ("octetDeltaCount", 2**64 - 1, "ffffffffffffffff"),
        ("mibObjectValueInteger", -1234, "fffffb2e"),
        ("samplingProbability", 1097.655698798798, "4091269f6f818375"),
        ("samplingProbability", 1, "3ff0000000000000"),
        ("dataRecordsReliability", True, "01"),
        ("dataRecordsReliability", False, "02"),
        ("sourceMacAddress", "aa:bb:cc:dd:ee:ff", "aabbccddeeff"),
        ("sourceMacAddress", bytes.fromhex("aabbccddeeff"), "aabbccddeeff"),
        ("flowStartSeconds", 1_257_894_000, "4af9f070"),
        ("flowStartMilliseconds", 1_700_000_000_005, "0000018bcfe56805"),
        ("flowStartMicroseconds", 1_700_000_000_500_000, "e8fe6f8080000000"),
        ("flowStartNanoseconds", 1_700_000_000_500_000_000, "e8fe6f8080000000"),
        ("sourceIPv4Address", "1.2.3.4", "01020304"),
        ("sourceIPv4Address", b"\x01\x02\x03\x04", "01020304"),
        ("sourceIPv6Address", "2001:0:3238:dfe1:63::fefb", "200100003238dfe1006300000000fefb"),
        ("sourceIPv6Address", "::ffff:192.0.2.1", "00000000000000000000ffffc0000201"),
        ("interfaceName", "Test", "0454657374"),
        ("interfaceName", "", "00"),
        ("interfaceName", "a" * 254, "fe" + "61" * 254),
        ("interfaceName", "a" * 255, "ff00ff" + "61" * 255),
        ("interfaceName", "a" * 65_535, "ffffff" + "61" * 65_535),
        ("interfaceName", "é", "02c3a9"),
        ("paddingOctets", bytes(128), "80" + "00" * 128),
        ("paddingOctets", bytes(10_000), "ff2710" + "00" * 10_000),
        ("basicList", b"\xff\x00", "02ff00"),
    ],
)
def test_every_abstract_data_type_is_written(name: str, value: Value, octets: str) -> None:
    assert encode(name, value).hex() == octets


@pytest.mark.parametrize(
    ("name", "length", "value", "octets"),
    [
        ("octetDeltaCount", 1, 255, "ff"),
        ("octetDeltaCount", 3, 65_536, "010000"),
        ("octetDeltaCount", 5, 2**32, "0100000000"),
        ("mibObjectValueInteger", 1, -2, "fe"),
        ("mibObjectValueInteger", 3, -2, "fffffe"),
        ("mibObjectValueInteger", 8, -2, "fffffffffffffffe"),
        ("protocolIdentifier", 4, 64, "00000040"),
        ("samplingProbability", 4, 0.5, "3f000000"),
        ("interfaceName", 6, "eth0", "657468300000"),
        ("paddingOctets", 128, bytes(128), "00" * 128),
        ("octetDeltaCount", 16, bytes(16), "00" * 16),
        ("octetDeltaCount", VARIABLE_LENGTH, b"\x01\x02", "020102"),
        ("octetDeltaCount", 0, 5, ""),
        ("interfaceName", 0, "ignored", ""),
    ],
)
def test_the_length_in_the_template_decides(name: str, length: int, value: Value, octets: str) -> None:
    assert encode(name, value, length).hex() == octets


@pytest.mark.parametrize(
    ("name", "length", "value"),
    [
        ("protocolIdentifier", None, 256),
        ("protocolIdentifier", None, -1),
        ("protocolIdentifier", None, "6"),
        ("protocolIdentifier", None, 6.0),
        ("protocolIdentifier", 4, 256),  # more than its type can carry, though four octets could
        ("octetDeltaCount", None, 2**64),
        ("octetDeltaCount", 3, 2**24),
        ("mibObjectValueInteger", None, 2**31),
        ("mibObjectValueInteger", 1, -129),
        ("samplingProbability", None, "0.5"),
        ("samplingProbability", 4, 1e300),
        ("samplingProbability", None, 10**400),
        ("dataRecordsReliability", None, 1),
        ("sourceMacAddress", None, "aa:bb"),
        ("sourceMacAddress", None, bytes(5)),
        ("sourceMacAddress", None, 5),
        ("sourceIPv4Address", None, "2001:db8::1"),
        ("sourceIPv4Address", None, bytes(16)),
        ("sourceIPv6Address", None, "192.0.2.1"),
        ("flowStartSeconds", None, -1),
        ("flowStartSeconds", None, 2**32),
        ("flowStartMilliseconds", None, 2**64),
        ("flowStartMicroseconds", None, -1),
        ("flowStartMicroseconds", None, 2**32 * 1_000_000),
        ("flowStartNanoseconds", None, "now"),
        ("interfaceName", None, b"eth0"),
        ("interfaceName", None, "\udcff"),
        ("interfaceName", None, "é" * 32_768),
        ("interfaceName", 3, "eth0"),
        ("paddingOctets", None, "00"),
        ("paddingOctets", None, bytes(65_536)),
        ("paddingOctets", 4, bytes(3)),
        ("octetDeltaCount", 16, 5),
    ],
)
def test_a_value_its_field_cannot_carry_is_refused_by_the_elements_name(
    name: str, length: int | None, value: Value
) -> None:
    with pytest.raises(EncodeError) as refused:
        encode(name, value, length)
    assert refused.value.element == name
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("name", ["octetDeltaCount", "samplingProbability", "interfaceName"])
def test_an_integer_that_python_does_not_even_write_is_refused_like_any_other(name: str) -> None:
    with pytest.raises(EncodeError) as refused:
        encode(name, 10**5000)
    assert refused.value.element == name


@pytest.mark.parametrize("record", [(), ("192.0.2.1",), ("192.0.2.1", "192.0.2.2", 3)])
def test_a_record_has_one_value_a_field(record: tuple[Value, ...]) -> None:
    with pytest.raises(EncodeError):
        RecordEncoder(ADDRESSES).encode(record)


# Messages and Sets


def test_a_message_has_its_header_and_sets() -> None:
    octets = encode_message(
        [encode_template_set([ADDRESSES]), encode_data_set(ADDRESSES, [EIGHT_OCTETS])],
        export_time=1_700_000_000,
        sequence_number=2**32 - 1,
        observation_domain_id=7,
    )
    assert octets.hex() == (
        "000a002c6553f100ffffffff00000007" + "000200100100000200080004000c0004" + "0100000cc0000201c0000202"
    )


def test_enterprise_and_options_templates_are_written() -> None:
    options = template("observationDomainId", "sourcePodName", template_id=300, scope=1)
    assert encode_template_set([options]).hex() == "00030016" + "012c00020001" + "00950004" + "8065ffff0000dcba"


@pytest.mark.parametrize(
    ("template_ids", "is_options", "octets"),
    [
        (None, False, "0002000800020000"),
        (None, True, "0003000800030000"),
        ([256, 300], False, "0002000c01000000012c0000"),
        ([300], True, "00030008012c0000"),
    ],
)
def test_withdrawals_are_written(template_ids: list[int] | None, is_options: bool, octets: str) -> None:
    assert encode_withdrawal_set(template_ids, is_options=is_options).hex() == octets


@pytest.mark.parametrize(
    "header", [{"export_time": -1}, {"export_time": 2**32}, {"export_time": 0, "sequence_number": 2**32}]
)
def test_header_numbers_that_do_not_fit_are_refused(header: dict[str, int]) -> None:
    with pytest.raises(EncodeError):
        encode_message([], **header)


def test_what_a_message_cannot_hold_is_refused() -> None:
    large = encode_data_set(ADDRESSES, [EIGHT_OCTETS] * 8000)
    with pytest.raises(EncodeError):
        encode_message([large, large], export_time=0)
    with pytest.raises(EncodeError):
        encode_data_set(ADDRESSES, [EIGHT_OCTETS] * 10_000)


def bad_template(**changes: object) -> Template:
    values: dict[str, object] = {"version": 10, "template_id": TemplateId(256), "fields": ADDRESSES.fields}
    return Template(**{**values, **changes})  # type: ignore[arg-type]  # some are meant to be wrong


@pytest.mark.parametrize(
    "bad",
    [
        bad_template(template_id=255),
        bad_template(template_id=65_536),
        bad_template(fields=()),
        bad_template(fields=(FieldSpecifier(ADDRESSES.fields[0].element, 0),)),
        bad_template(fields=ADDRESSES.fields * 40_000),
        bad_template(is_options=True),
        bad_template(is_options=True, scope_field_count=3),
    ],
    ids=["reserved", "too large an id", "no fields", "no octets", "too many fields", "no scope", "too much scope"],
)
def test_a_template_that_no_collector_can_use_is_not_written(bad: Template) -> None:
    with pytest.raises(EncodeError):
        encode_template_set([bad])


def test_a_set_has_templates_of_one_kind() -> None:
    for templates in ([], [ADDRESSES, OPTIONS]):
        with pytest.raises(EncodeError):
            encode_template_set(templates)


def test_withdrawals_and_data_need_a_template_id_that_is_not_reserved() -> None:
    with pytest.raises(EncodeError):
        encode_withdrawal_set([255])
    with pytest.raises(EncodeError):
        encode_data_set(bad_template(template_id=3), [EIGHT_OCTETS])
    with pytest.raises(EncodeError):
        Encoder().encode_records(bad_template(template_id=3), [EIGHT_OCTETS], 0)


# A stream of Messages


def test_templates_leave_the_sequence_and_records_move_it() -> None:
    encoder = Encoder(observation_domain_id=1)
    [definition] = encoder.encode_templates([ADDRESSES], 0)
    assert (len(definition), encoder.sequence_number) == (32, 0)
    [data] = encoder.encode_records(ADDRESSES, [EIGHT_OCTETS], 0)
    assert (len(data), encoder.sequence_number) == (28, 1)
    assert data[8:12] == bytes(4)
    [data] = encoder.encode_records(ADDRESSES, [EIGHT_OCTETS], 0)
    assert data[8:12] == b"\x00\x00\x00\x01"


def test_records_are_packed_into_messages_of_bounded_size() -> None:
    encoder = Encoder(max_octets=512)
    messages = encoder.encode_records(ADDRESSES, [EIGHT_OCTETS] * 200, 0)
    assert [len(message) for message in messages] == [508, 508, 508, 156]
    assert [int.from_bytes(message[8:12], "big") for message in messages] == [0, 61, 122, 183]
    assert encoder.sequence_number == 200


def test_records_are_split_by_their_true_size() -> None:
    names = template("interfaceName")
    rows = [("a" * length,) for length in (400, 100, 300, 50, 50, 20, 489, 1)]
    messages = Encoder(max_octets=512).encode_records(names, rows, 0)
    decoder = Decoder(default_registry())
    decoder.receive_message(encode_message([encode_template_set([names])], export_time=0), UDP, 0.0)
    events = [event for message in messages for event in decoder.receive_message(message, UDP, 0.0)]
    assert records(events) == rows
    assert max(map(len, messages)) <= 512
    assert [len(records(decoder.receive_message(message, UDP, 0.0))) for message in messages] == [1, 3, 2, 1, 1]


def test_no_records_make_no_message() -> None:
    assert Encoder().encode_records(ADDRESSES, [], 0) == []
    assert Encoder().encode_templates([], 0) == []


def test_a_record_larger_than_a_message_is_refused_and_none_counts_as_sent() -> None:
    names = template("interfaceName")
    encoder = Encoder(max_octets=512)
    for value in ("a" * 490, "\udcff"):
        with pytest.raises(EncodeError):
            encoder.encode_records(names, [("a" * 400,), (value,)], 0)
        assert encoder.sequence_number == 0
    assert len(encoder.encode_records(names, [("a" * 489,)], 0)[0]) == 512


def test_the_sequence_wraps_at_32_bits() -> None:
    encoder = Encoder(sequence_number=2**32 - 1)
    encoder.encode_records(ADDRESSES, [EIGHT_OCTETS] * 3, 0)
    assert encoder.sequence_number == 2


def test_templates_that_do_not_fit_together_take_several_messages_and_keep_their_order() -> None:
    templates = [template(*["sourcePodName"] * 20, template_id=300 + number) for number in range(5)]
    messages = Encoder(max_octets=512).encode_templates([*templates[:3], OPTIONS, *templates[3:]], 0)
    assert max(map(len, messages)) <= 512
    decoder = Decoder(default_registry())
    events = [event for message in messages for event in decoder.receive_message(message, UDP, 0.0)]
    assert kinds(events).count("TemplateReceived") == 6
    with pytest.raises(EncodeError):
        Encoder(max_octets=128).encode_templates(templates, 0)


def test_withdrawals_that_do_not_fit_together_take_several_messages() -> None:
    messages = Encoder(max_octets=64).encode_withdrawals(range(256, 280), 0, is_options=True)
    assert [len(message) for message in messages] == [64, 64, 28]
    [message] = Encoder().encode_withdrawals(None, 0)
    assert Decoder(default_registry()).receive_message(message, TCP, 0.0)[1:] == [
        TemplateWithdrawn(None, is_options=False)
    ]


def test_a_template_redefined_is_the_one_used() -> None:
    encoder = Encoder()
    encoder.encode_records(ADDRESSES, [EIGHT_OCTETS], 0)
    [message] = encoder.encode_records(template("protocolIdentifier"), [(6,)], 0)
    assert message[16:].hex() == "0100000506"


@pytest.mark.parametrize("max_octets", [0, 63, 65_536])
def test_a_message_size_that_ipfix_does_not_have_is_refused(max_octets: int) -> None:
    with pytest.raises(ValueError, match="max_octets"):
        Encoder(max_octets=max_octets)
