"""Laws of the wire: any octets are harmless, cuts do not matter, what is written is read."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire_builders import TCP, UDP, records

from flowjoin._model.errors import DecodeError
from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, InformationElement, Value
from flowjoin._model.reasons import Reason
from flowjoin._model.template import FieldSpecifier, Template, TemplateId
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire import (
    NEED_DATA,
    DataSetReceived,
    Decoder,
    DecoderLimits,
    Encoder,
    Event,
    MalformedMessage,
    MessageFramer,
    MessageReceived,
    SequenceGap,
    TemplateReceived,
    carries_octets,
    default_registry,
    encode_message,
    json_value,
    packed_of,
    text_of,
)
from flowjoin.wire.records import INTEGER_TYPES

pytestmark = pytest.mark.slow

EXPORT_TIME = 1_700_000_000
REGISTRY = default_registry()
ELEMENTS = {
    data_type: [element for element in REGISTRY if element.data_type is data_type]
    for data_type in DataType
    if any(element.data_type is data_type for element in REGISTRY)
}
PACKED = {DataType.IPV4_ADDRESS: 4, DataType.IPV6_ADDRESS: 16, DataType.MAC_ADDRESS: 6}
UNITS = {DataType.DATE_TIME_MICROSECONDS: 10**6, DataType.DATE_TIME_NANOSECONDS: 10**9}
# The NTP era of a time is found from the export time, within 68 years of it.
NEAR_EXPORT = st.integers(0, EXPORT_TIME + 2**31 - 2)


def lengths(element: InformationElement) -> st.SearchStrategy[int]:
    """Every length that carries the type, and some that do not."""
    data_type = element.data_type
    natural = data_type.natural_length
    if natural == VARIABLE_LENGTH:
        return st.one_of(st.just(VARIABLE_LENGTH), st.integers(0, 40))
    if data_type in INTEGER_TYPES:
        return st.one_of(st.just(natural), st.integers(0, 9), st.just(VARIABLE_LENGTH))
    return st.sampled_from([natural, natural, natural, 4, 0, natural + 1, VARIABLE_LENGTH])


fields = st.sampled_from(list(ELEMENTS)).flatmap(
    lambda data_type: st.sampled_from(ELEMENTS[data_type]).flatmap(
        lambda element: lengths(element).map(lambda length: FieldSpecifier(element, length))
    )
)
unknown_fields = (
    st.tuples(st.integers(1, 2**32 - 1), st.integers(0, 2**15 - 1), st.integers(0, 300) | st.just(VARIABLE_LENGTH))
    .filter(lambda key: REGISTRY.get(key[0], key[1]) is None)
    .map(lambda key: FieldSpecifier(REGISTRY.unknown(*key), key[2], is_known=False))
)


def make_template(fields: list[FieldSpecifier], template_id: int, scope: int) -> Template:
    return Template(
        version=10,
        template_id=TemplateId(template_id),
        fields=tuple(fields),
        is_options=scope > 0,
        scope_field_count=min(scope, len(fields)),
    )


templates = st.builds(
    make_template,
    st.lists(fields | unknown_fields, min_size=1, max_size=12),
    st.integers(256, 65_535),
    st.integers(0, 3),
).filter(lambda template: template.minimum_record_length > 0)


def octets_of(length: int) -> st.SearchStrategy[bytes]:
    if length == VARIABLE_LENGTH:
        return st.binary(max_size=300)
    return st.binary(min_size=length, max_size=length)


def values(field: FieldSpecifier) -> st.SearchStrategy[Value]:
    """What a record can carry in this field, as it will be read."""
    element, length = field.element, field.length
    data_type = element.data_type
    if length == 0:
        default = element.default
        return st.just(packed_of(element, str(default)) if data_type in PACKED else default)
    if data_type is DataType.STRING:
        text = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
        if length == VARIABLE_LENGTH:
            return text
        return text.map(lambda value: value.encode()[:length].decode(errors="ignore").rstrip("\0"))
    if length == VARIABLE_LENGTH or carries_octets(field):
        return octets_of(length)
    if data_type in INTEGER_TYPES:
        natural, is_signed = INTEGER_TYPES[data_type]
        bits = 8 * min(natural, length)
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else st.integers(0, (1 << bits) - 1)
    match data_type:
        case DataType.FLOAT32 | DataType.FLOAT64:
            return st.floats(width=32 if length == 4 else 64, allow_nan=False)
        case DataType.BOOLEAN:
            return st.booleans()
        case DataType.DATE_TIME_SECONDS:
            return st.integers(0, 2**32 - 1)
        case DataType.DATE_TIME_MILLISECONDS:
            return st.integers(0, 2**64 - 1)
        case DataType.DATE_TIME_MICROSECONDS | DataType.DATE_TIME_NANOSECONDS:
            unit = UNITS[data_type]
            return st.tuples(NEAR_EXPORT, st.integers(0, unit - 1)).map(lambda parts: parts[0] * unit + parts[1])
    return octets_of(length)


@st.composite
def templates_with_records(draw: st.DrawFn) -> tuple[Template, list[tuple[Value, ...]]]:
    template = draw(templates)
    return template, draw(st.lists(st.tuples(*map(values, template.fields)), max_size=5))


def encoded(template: Template, rows: list[tuple[Value, ...]], max_octets: int = 65_535) -> list[bytes]:
    encoder = Encoder(observation_domain_id=1, max_octets=max_octets)
    return [*encoder.encode_templates([template], EXPORT_TIME), *encoder.encode_records(template, rows, EXPORT_TIME)]


def decoded(messages: list[bytes], session: TransportSession = UDP) -> list[Event]:
    decoder = Decoder(REGISTRY)
    return [event for message in messages for event in decoder.receive_message(message, session, 0.0)]


@given(templates_with_records(), st.integers(8_192, 65_535))
def test_what_is_encoded_is_decoded_to_the_same_values(
    case: tuple[Template, list[tuple[Value, ...]]], max_octets: int
) -> None:
    template, rows = case
    messages = encoded(template, rows, max_octets)
    events = decoded(messages)
    assert max(map(len, messages)) <= max_octets
    assert records(events) == rows
    assert [event.template for event in events if isinstance(event, TemplateReceived)] == [template]


@given(templates_with_records())
def test_addresses_are_the_same_as_text_and_as_octets_and_every_value_has_a_text(
    case: tuple[Template, list[tuple[Value, ...]]],
) -> None:
    template, rows = case
    written = [tuple(as_text(*pair) for pair in zip(template.fields, row, strict=True)) for row in rows]
    assert encoded(template, written) == encoded(template, rows)
    for row in rows:
        for field, value in zip(template.fields, row, strict=True):
            assert isinstance(text_of(field.element, value), str)
            assert not isinstance(json_value(field.element, value), bytes)


def as_text(field: FieldSpecifier, value: Value) -> Value:
    if field.element.data_type in PACKED and field.length and not carries_octets(field):
        return text_of(field.element, value)
    return value


def is_harmless(decoder: Decoder, data: bytes, session: TransportSession) -> list[Event]:
    events = decoder.receive_message(data, session, 0.0)
    assert events
    assert isinstance(events[0], MessageReceived | MalformedMessage)
    assert sum(isinstance(event, MalformedMessage) for event in events) <= 1
    return events


# Octets that look like a Message, so that chance reaches the Sets.
sets = st.tuples(
    st.sampled_from([0, 2, 2, 3, 3, 4, 256, 256, 257, 65_535]),
    st.integers(-5, 5).map(lambda off: off if abs(off) == 5 else 0),
    st.binary(max_size=60)
    | st.lists(
        st.sampled_from([b"\x01\x00", b"\x00\x01", b"\x00\x04", b"\x00\x08", b"\xff\xff", b"\x00\x00", b"\x00\x52"]),
        max_size=20,
    ).map(b"".join),
).map(lambda parts: struct.pack(">HH", parts[0], max(0, 4 + len(parts[2]) + parts[1])) + parts[2])
likely = st.lists(sets, max_size=5).map(lambda parts: encode_message(parts, export_time=EXPORT_TIME))


@given(
    st.lists(st.binary(max_size=100) | likely, max_size=6),
    st.sampled_from([UDP, TCP]),
    st.sampled_from(["lenient", "strict"]),
)
@example([bytes.fromhex("000a0014") + bytes(12) + bytes(4)], UDP, "lenient")
def test_any_octets_give_events_and_nothing_else(messages: list[bytes], session: TransportSession, mode: str) -> None:
    limits = DecoderLimits(templates_per_session=3, held_octets=2_000, domains_per_session=2)
    decoder = Decoder(REGISTRY, mode="strict" if mode == "strict" else "lenient", limits=limits)
    for message in messages:
        is_harmless(decoder, message, session)
    statistics = decoder.statistics()
    assert statistics.templates <= 3
    assert statistics.held_octets <= 2_000
    decoder.close_session(session)
    assert decoder.statistics().held_octets == decoder.statistics().templates == 0


def is_in_range(field: FieldSpecifier, value: Value) -> bool:
    """Every integer is in its type's range, whatever its length on the wire."""
    if field.element.data_type not in INTEGER_TYPES or carries_octets(field):
        return not isinstance(value, int) or field.element.data_type.value.startswith(("dateTime", "boolean"))
    natural, is_signed = INTEGER_TYPES[field.element.data_type]
    low, bits = (-(1 << 8 * natural - 1), 8 * natural - 1) if is_signed else (0, 8 * natural)
    return isinstance(value, int) and low <= value < 1 << bits


@given(templates_with_records(), st.data())
def test_a_valid_message_changed_anywhere_is_harmless(
    case: tuple[Template, list[tuple[Value, ...]]], data: st.DataObject
) -> None:
    stream = bytearray(b"".join(encoded(*case)))
    for at in data.draw(st.lists(st.integers(0, len(stream) - 1), min_size=1, max_size=4)):
        stream[at] = data.draw(st.integers(0, 255))
    decoder = Decoder(REGISTRY)
    for message in (bytes(stream), bytes(stream[: data.draw(st.integers(0, len(stream)))])):
        for event in is_harmless(decoder, message, UDP):
            if isinstance(event, DataSetReceived):
                for record in event.records:
                    assert all(is_in_range(*pair) for pair in zip(event.template.fields, record, strict=True))


def read_stream(parts: list[bytes]) -> tuple[list[Event], DecodeError | None]:
    framer, decoder, events = MessageFramer(), Decoder(REGISTRY), []
    for part in parts:
        framer.receive_data(part)
        try:
            while (message := framer.next_message()) is not NEED_DATA:
                events += decoder.receive_message(message, TCP, 0.0)
        except DecodeError as error:
            return events, error
    return events, None


def comparable(events: list[Event]) -> list[str]:
    return [repr(event) for event in events]  # errors in events compare by their text


@given(st.lists(templates_with_records(), max_size=3), st.binary(max_size=20), st.data())
def test_a_stream_cut_anywhere_gives_the_same_events(
    cases: list[tuple[Template, list[tuple[Value, ...]]]], tail: bytes, data: st.DataObject
) -> None:
    stream = b"".join(message for case in cases for message in encoded(*case)) + tail
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parts = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    events, error = read_stream(parts)
    whole_events, whole_error = read_stream([stream])
    assert comparable(events) == comparable(whole_events)
    assert (error is None) == (whole_error is None)
    if error is not None and whole_error is not None:
        assert (error.reason, error.offset) == (Reason.STREAM_DESYNCHRONISED, whole_error.offset)


@given(st.binary(max_size=300))
def test_any_octets_frame_to_messages_or_the_framers_own_error(stream: bytes) -> None:
    whole = read_stream([stream])
    single = read_stream([stream[at : at + 1] for at in range(len(stream))])
    assert comparable(whole[0]) == comparable(single[0])


@settings(max_examples=50)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.data())
def test_losses_add_up_to_the_records_missing(counts: list[int], data: st.DataObject) -> None:
    """Messages are lost, and neighbours change places."""
    first = data.draw(st.sampled_from([0, 1000, 2**32 - 20]))
    numbered, number = [], first
    for count in counts:
        numbered.append((number % 2**32, count))
        number += count
    kept = [item for item in numbered[1:] if data.draw(st.booleans())]
    for at in range(len(kept) - 1):
        if data.draw(st.booleans()):
            kept[at], kept[at + 1] = kept[at + 1], kept[at]
    template = make_template([FieldSpecifier(REGISTRY.by_name("protocolIdentifier"), 1)], 256, 0)
    messages = Encoder(sequence_number=first).encode_templates([template], EXPORT_TIME)
    decoder = Decoder(REGISTRY)
    for start, count in [numbered[0], *kept, (number % 2**32, 1)]:
        messages += Encoder(sequence_number=start).encode_records(template, [(6,)] * count, EXPORT_TIME)
    lost = 0
    for message in messages:
        events = decoder.receive_message(message, UDP, 0.0)
        lost += sum(event.lost for event in events if isinstance(event, SequenceGap))
        assert lost >= 0
    assert lost == sum(counts) - counts[0] - sum(count for _, count in kept)
