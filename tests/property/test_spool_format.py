"""What goes into a segment comes out of it."""

from __future__ import annotations

import pytest
from batch_examples import REGISTRY, ROWS, WIDE, schema_of
from hypothesis import given
from hypothesis import strategies as st

from flowjoin._collector.capture import open_capture
from flowjoin._model.columns import DictionaryColumn
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.steps import at_once
from flowjoin._pipeline.spool.row_layout import DamagedError, RowLayout
from flowjoin._pipeline.spool.segment_format import (
    FIRST_SCHEMA_ID,
    decode_piece,
    encode_opening,
    encode_piece,
    encode_schema,
    is_spool_file,
)
from flowjoin.testing import every_data_type, hostile_flows, numbered_flows
from flowjoin.wire import DataSetReceived, Decoder

NOW = 1_790_000_000


def round_trip(batch: FlowBatch) -> FlowBatch:
    layout = RowLayout(batch.schema)
    data, _ = at_once(encode_piece(batch, layout, FIRST_SCHEMA_ID, export_time=NOW, sequence=0))
    return at_once(decode_piece(data, layout, FIRST_SCHEMA_ID, is_first_export=batch.is_first_export))


def assert_same(batch: FlowBatch, again: FlowBatch) -> None:
    assert again.schema == batch.schema
    assert len(again) == len(batch)
    assert again == batch
    assert again.is_first_export == batch.is_first_export


@given(ROWS, st.booleans())
def test_every_value_of_every_data_type_comes_back(rows: list, is_first: bool) -> None:
    batch = FlowBatch.from_rows(WIDE, rows)
    assert_same(batch, round_trip(batch))


near = st.integers(NOW - 2**31 + 10, NOW + 2**31 - 10)


@given(st.lists(st.tuples(near, st.integers(0, 10**9 - 1)).filter(lambda time: time[0] >= 0), max_size=5))
def test_nanoseconds_of_our_time_are_data_records_and_exact(times: list[tuple[int, int]]) -> None:
    schema = schema_of("flowStartNanoseconds", "flowStartMicroseconds")
    nanoseconds = [seconds * 10**9 + rest for seconds, rest in times]
    batch = FlowBatch.from_rows(schema, [(value, value // 1000) for value in nanoseconds])
    layout = RowLayout(schema)
    assert sum(rows for _, rows in at_once(layout.encode(batch, NOW))) == len(batch)
    assert_same(batch, round_trip(batch))


@given(st.lists(st.text(st.characters(), max_size=300), min_size=1, max_size=5))
def test_strings_come_back_with_their_surrogates(texts: list[str]) -> None:
    schema = schema_of("interfaceName")
    distinct = tuple(dict.fromkeys(texts))
    codes = b"".join(distinct.index(text).to_bytes(4, "little") for text in texts)
    batch = FlowBatch(schema, [DictionaryColumn(schema.elements[0], codes, distinct)])
    again = round_trip(batch)
    assert list(again.column("interfaceName")) == texts


@pytest.mark.parametrize("length", [0, 1, 254, 255, 256, 65_000, 65_511, 65_512, 65_536, 200_000])
def test_strings_of_any_length_come_back(length: int) -> None:
    batch = FlowBatch.from_columns(
        schema_of("interfaceName", "octetDeltaCount"), {"interfaceName": ["x" * length, "y"]}
    )
    assert_same(batch, round_trip(batch))


def test_lone_surrogates_and_replacement_characters_come_back() -> None:
    schema = schema_of("interfaceName")
    texts = ("\ud800", "\udfff\ud800", "\ufffd", "\0", "a\r\n,\"'")
    codes = b"".join(number.to_bytes(4, "little") for number in range(len(texts)))
    batch = FlowBatch(schema, [DictionaryColumn(schema.elements[0], codes, texts)])
    assert tuple(round_trip(batch).column("interfaceName")) == texts


@pytest.mark.parametrize("make", [every_data_type, hostile_flows, lambda: numbered_flows(1000)])
def test_the_kits_batches_come_back(make) -> None:
    batch = make()
    assert_same(batch, round_trip(batch))
    assert_same(batch.slice(0, 0), round_trip(batch.slice(0, 0)))


def test_a_schema_without_elements_comes_back() -> None:
    assert_same(FlowBatch(schema_of(), []), round_trip(FlowBatch(schema_of(), [])))


def test_more_fields_than_a_template_can_have_come_back() -> None:
    many = [REGISTRY.unknown(9, number) for number in range(9000)]
    schema = schema_of()
    from dataclasses import replace

    batch = FlowBatch.from_rows(replace(schema, elements=tuple(many)), [tuple(b"%d" % n for n in range(9000))])
    assert_same(batch, round_trip(batch))


@given(st.data())
def test_a_changed_octet_gives_rows_or_is_found(data) -> None:
    batch = FlowBatch.from_rows(WIDE, data.draw(ROWS))
    layout = RowLayout(WIDE)
    octets = bytearray(at_once(encode_piece(batch, layout, FIRST_SCHEMA_ID, export_time=NOW, sequence=0))[0])
    for _ in range(data.draw(st.integers(0, 3)) if octets else 0):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(octets)))
    try:
        again = at_once(decode_piece(bytes(octets[:end]), layout, FIRST_SCHEMA_ID, is_first_export=False))
    except DamagedError:
        return
    assert again.schema == WIDE


def test_a_segment_is_an_ipfix_file_with_a_mark(tmp_path) -> None:
    batch = numbered_flows(700)
    layout = RowLayout(batch.schema)
    data = encode_opening(lane="audit", instance_id="abc", export_time=NOW)
    assert is_spool_file(data)
    assert not is_spool_file(encode_schema(layout, FIRST_SCHEMA_ID, export_time=NOW, sequence=1))
    assert not is_spool_file(b"")
    data += encode_schema(layout, FIRST_SCHEMA_ID, export_time=NOW, sequence=1)
    data += at_once(encode_piece(batch, layout, FIRST_SCHEMA_ID, export_time=NOW, sequence=1))[0]
    (tmp_path / "segment.ipfix").write_bytes(data)
    decoder = Decoder(batch.schema.registry, mode="lenient")
    names: list[str] = []
    count = 0
    with open_capture(str(tmp_path / "segment.ipfix"), ports=None) as capture:
        for item in capture:
            for event in decoder.receive_message(item.payload, item.session, 0.0):
                if isinstance(event, DataSetReceived) and not event.template.is_options:
                    names = [field.element.name for field in event.template.fields]
                    for record in event.records:
                        by_name = dict(zip(names, record, strict=True))
                        assert by_name["sourcePodName"] == batch.column("sourcePodName")[count]
                        assert by_name["octetTotalCount"] == batch.column("octetTotalCount")[count]
                        count += 1
                assert "Malformed" not in type(event).__name__
                assert "Gap" not in type(event).__name__
    assert count == 700
    assert set(names) == set(batch.schema.names)
