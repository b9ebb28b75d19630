"""Rows become Data Records octet by octet as RFC 7011 and Antrea have them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from batch_examples import ROWS, WIDE
from hypothesis import given

from flowjoin._model.transport_session import TransportSession
from flowjoin.api import (
    AddressFamily,
    DataType,
    EncodeError,
    FlowBatch,
    FlowOrigin,
    FlowSchema,
    InformationElement,
    Value,
)
from flowjoin.testing import standard_flow
from flowjoin.wire import (
    DataSetReceived,
    Decoder,
    FieldSpecifier,
    RecordEncoder,
    Template,
    TemplateId,
    default_registry,
    encode_message,
    encode_template_set,
    text_of,
)
from flowjoin_ipfix._encode import DataRecordEncoder
from flowjoin_ipfix._rows import WrittenRows, units_of
from flowjoin_ipfix._session import IpfixSession
from flowjoin_ipfix._templates import TemplateBook

V4, V6 = AddressFamily.IPV4, AddressFamily.IPV6
ROOM = 65535 - 20

# An agent's record of before Antrea 2.0: sequence 1, exported at 1637706975.
OLD_AGENT_RECORD = """
000a00c1619d6cdf000000012fc239a2010000b1619d6cd1619d6cdd03aed014510600000000000c8f940000000718524991000000000003
aeb5000000021767faaa0a0a004f0a0a00500000000000073047000000000175db04000000000002141300000000006c15140a7065726674
6573742d610b616e747265612d74657374166b38732d6e6f64652d636f6e74726f6c2d706c616e6500000014520870657266746573740000
00000100000000000954494d455f574149540200000a0a010a
"""


def template_of(names: Sequence[str], template_id: int = 256) -> Template:
    elements = [default_registry().by_name(name) for name in names]
    return Template(10, TemplateId(template_id), tuple(FieldSpecifier(each, each.length) for each in elements))


def rows_of(written: WrittenRows) -> list[bytes]:
    starts = [0, *written.ends]
    return [written.octets[start:end] for start, end in zip(starts, written.ends, strict=False)]


def one_column(element: InformationElement, *values: Value) -> tuple[DataRecordEncoder, FlowBatch]:
    schema = FlowSchema(origin=FlowOrigin.PLAIN, family=V4, elements=(element,), registry=default_registry())
    template = Template(10, TemplateId(258), (FieldSpecifier(element, element.length),))
    return DataRecordEncoder(template, ROOM), FlowBatch.from_rows(schema, [(value,) for value in values])


@pytest.mark.parametrize(
    ("data_type", "value", "octets"),
    [
        ("unsigned8", 1, "01"),
        ("unsigned16", 123, "007b"),
        ("unsigned32", 1234, "000004d2"),
        ("unsigned64", 12345, "0000000000003039"),
        ("signed8", -1, "ff"),
        ("signed16", -123, "ff85"),
        ("signed32", -1234, "fffffb2e"),
        ("signed64", -12345, "ffffffffffffcfc7"),
        ("float32", 10.6556, "412a7d56"),
        ("float64", 1097.655698798798, "4091269f6f818375"),
        ("boolean", True, "01"),
        ("boolean", False, "02"),
        ("macAddress", "aa:bb:cc:dd:ee:ff", "aabbccddeeff"),
        ("dateTimeSeconds", 1257894000, "4af9f070"),
        ("ipv4Address", "1.2.3.4", "01020304"),
        ("ipv6Address", "2001:0:3238:dfe1:63::fefb", "200100003238dfe1006300000000fefb"),
        ("string", "Test", "0454657374"),
        ("string", "é" * 127, "fe" + "c3a9" * 127),
        ("string", "a" * 254 + "é", "ff0100" + "61" * 254 + "c3a9"),
        ("octetArray", bytes(128), "80" + "00" * 128),
        ("octetArray", bytes(10000), "ff2710" + "00" * 10000),
    ],
)
def test_values_have_the_octets_of_rfc_7011(data_type: str, value: Value, octets: str) -> None:
    element = InformationElement(name="anElement", element_id=1, data_type=DataType(data_type))  # type: ignore[arg-type]
    encoder, batch = one_column(element, value, value)
    assert rows_of(encoder.write(batch)) == [bytes.fromhex(octets)] * 2


def test_a_fixed_octet_array_has_no_length_before_it() -> None:
    element = default_registry().by_name("sourcePodUUID")
    encoder, batch = one_column(element, bytes(range(16)), bytes(16))
    assert rows_of(encoder.write(batch)) == [bytes(range(16)), bytes(16)]


def test_an_old_agents_record_is_the_same_to_the_octet() -> None:
    names = list(TemplateBook(default_registry(), "agent", compatibility="antrea-2.3").templates[0].fields)
    template = Template(10, TemplateId(256), tuple(
        field for field in names
        if field.element.name not in ("appProtocolName", "httpVals", "egressNodeName")
    ))  # fmt: skip
    absent = dict.fromkeys(
        [f"destination{what}" for what in ("PodName", "PodNamespace", "PodLabels", "NodeName")]
        + [f"{way}NetworkPolicy{what}" for way in ("ingress", "egress") for what in ("Name", "Namespace", "RuleName")]
        + ["egressName", "egressIP"],
        "",
    )
    none = dict.fromkeys(["ingressNetworkPolicyType", "egressNetworkPolicyType", "egressNetworkPolicyRuleAction"], 0)
    batch = standard_flow(**absent, **none, ingressNetworkPolicyRuleAction=1, flowType=2)
    session = IpfixSession(801257890, lambda: 1637706975)
    units = list(units_of(DataRecordEncoder(template, ROOM).write(batch), 256, room=ROOM, most_rows=99))
    session.sent(units[0])
    assert session.framed(units[0]) == bytes.fromhex(OLD_AGENT_RECORD)


@given(ROWS)
def test_rows_are_what_the_encoder_of_single_records_makes(rows: list[tuple[Value, ...]]) -> None:
    fields = tuple(FieldSpecifier(element, element.length) for element in WIDE.elements)
    template = Template(10, TemplateId(258), fields)
    batch = FlowBatch.from_rows(WIDE, rows)
    written = DataRecordEncoder(template, ROOM).write(batch)
    single = RecordEncoder(template)
    expected: dict[int, bytes] = {}
    for number, row in enumerate(batch.rows()):
        with suppress(EncodeError):
            expected[number] = single.encode(row)
    assert dict(zip(written.rows, rows_of(written), strict=True)) == expected
    assert set(written.refused) == set(range(len(batch))) - set(expected)


def distinct_values(batch: FlowBatch) -> FlowBatch:
    """A row in which no two elements have one value."""
    columns: dict[str, list[Value]] = {}
    for number, element in enumerate(batch.schema.elements, start=1):
        match element.data_type:
            case DataType.STRING:
                columns[element.name] = [f"{element.name}-{number}"]
            case DataType.IPV4_ADDRESS:
                columns[element.name] = [f"192.0.2.{number}"]
            case DataType.IPV6_ADDRESS:
                columns[element.name] = [f"2001:db8::{number:x}"]
            case DataType.OCTET_ARRAY:
                columns[element.name] = [bytes([number]) * 16]
            case _:
                columns[element.name] = [number]
    return FlowBatch.from_columns(batch.schema, columns)


@pytest.mark.parametrize("family", AddressFamily)
@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize(("names", "uids"), [(True, False), (False, True), (True, True), (False, False)])
@pytest.mark.parametrize("kind", ["aggregator", "proxy", "agent"])
@pytest.mark.parametrize("compatibility", ["antrea-2.3", "antrea-2.7"])
def test_every_element_comes_back_under_its_own_name(
    compatibility: str, kind: str, names: bool, uids: bool, extra: bool, family: AddressFamily
) -> None:
    uuids = {
        name: [bytes(16)] for name in (
            "sourcePodUUID", "sourceNodeUUID", "destinationPodUUID", "destinationNodeUUID", "destinationServiceUUID",
            "ingressNetworkPolicyUUID", "egressNetworkPolicyUUID", "egressUUID", "egressNodeUUID",
        )
    }  # fmt: skip
    batch = distinct_values(standard_flow(family).with_columns(uuids))
    book = TemplateBook(
        default_registry(), kind, compatibility=compatibility, names=names, uids=uids, extra=extra  # type: ignore[arg-type]
    )  # fmt: skip
    template = book.template_of(batch.schema)
    session = IpfixSession(1, lambda: 1_700_000_000)
    decoder, transport = Decoder(default_registry()), TransportSession(protocol="tcp")
    [definition] = session.definitions([template])
    decoder.receive_message(definition, transport, 0.0)
    [unit] = units_of(DataRecordEncoder(template, ROOM).write(batch), template.template_id, room=ROOM, most_rows=99)
    _, received = decoder.receive_message(session.framed(unit), transport, 0.0)
    assert isinstance(received, DataSetReceived)
    [record] = received.records
    seen = {
        field.element.name: text_of(field.element, value)
        for field, value in zip(received.template.fields, record, strict=True)
    }
    assert seen == {
        field.element.name: text_of(field.element, batch.column(field.element.name)[0]) for field in template.fields
    }
    present = [value for name, value in seen.items() if name in batch.schema]
    assert len(set(present)) == len(present) > 30


def test_what_no_field_can_carry_is_refused_row_by_row() -> None:
    element = default_registry().by_name("sourcePodName")
    encoder, batch = one_column(element, "fine", "x" * 65536, "é" * 40000, "fine too")
    written = encoder.write(batch)
    assert rows_of(written) == [b"\4fine", b"\10fine too"]
    assert list(written.rows) == [0, 3]
    assert sorted(written.refused) == [1, 2]
    assert "sourcePodName" in written.refused[2]


def test_a_record_over_the_limit_is_refused_and_its_size_told() -> None:
    element = default_registry().by_name("sourcePodName")
    template = Template(10, TemplateId(258), (FieldSpecifier(element, element.length),))
    _, batch = one_column(element, "a", "b" * 99, "c" * 100)
    written = DataRecordEncoder(template, 100).write(batch)
    assert [len(row) for row in rows_of(written)] == [2, 100]
    assert written.refused == {2: "its record of 101 octets is over the limit of 100"}


def test_messages_are_as_full_as_the_limit_lets_them_be() -> None:
    element = default_registry().by_name("octetDeltaCount")
    encoder, batch = one_column(element, *range(200))
    session = IpfixSession(1, lambda: 0)
    messages, sequence_numbers = [], []
    for unit in units_of(encoder.write(batch), 258, room=IpfixSession.room(512), most_rows=10_000):
        messages.append(session.framed(unit))
        sequence_numbers.append(int.from_bytes(messages[-1][8:12], "big"))
        session.sent(unit)
    assert [len(message) for message in messages] == [508, 508, 508, 156]
    assert sequence_numbers == [0, 61, 122, 183]


def test_a_unit_that_was_not_sent_does_not_count() -> None:
    element = default_registry().by_name("octetDeltaCount")
    encoder, batch = one_column(element, 1, 2)
    session = IpfixSession(1, lambda: 0)
    [unit] = units_of(encoder.write(batch), 258, room=100, most_rows=99)
    assert session.framed(unit) == session.framed(unit)


def test_the_sequence_number_wraps() -> None:
    session = IpfixSession(1, lambda: 0)
    element = default_registry().by_name("octetDeltaCount")
    encoder, batch = one_column(element, 1, 2)
    [unit] = units_of(encoder.write(batch), 258, room=100, most_rows=99)
    session._sequence_number = 2**32 - 1
    session.sent(unit)
    assert session.framed(unit)[8:12] == bytes([0, 0, 0, 1])


def test_a_template_is_sent_once_unless_asked_again() -> None:
    book = TemplateBook(default_registry(), "aggregator", compatibility="antrea-2.7")
    session = IpfixSession(7, lambda: 0)
    first = session.definitions(book.templates)
    assert len(first) == 2
    assert first[0] == encode_message(
        [encode_template_set([book.templates[0]])], export_time=0, sequence_number=0, observation_domain_id=7
    )
    assert session.definitions(book.templates) == []
    assert session.definitions(book.templates, again=True) == first
