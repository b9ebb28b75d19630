import json
import math
from array import array
from collections.abc import Iterator

import pytest
from batch_examples import OF_EACH_TYPE, REGISTRY, WIDE, schema_of

from flowjoin._model.columns import NumberColumn, PackedColumn
from flowjoin._model.flow_batch import FlowBatch, join_slowly
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema

SCHEMA = schema_of("sourceIPv4Address", "sourceTransportPort", "sourcePodName")
ROWS = [("10.0.0.1", 80, "web"), ("10.0.0.2", 443, "db"), ("10.0.0.1", 80, "web")]
BATCH = FlowBatch.from_rows(SCHEMA, ROWS)


def with_handles() -> FlowBatch:
    return FlowBatch(SCHEMA, [BATCH.column(name) for name in SCHEMA.names], id="a/1", handles=("h0", "h1", "h2"))


def test_rows_come_back_in_schema_order():
    assert list(BATCH.rows()) == ROWS
    assert len(BATCH) == 3


def test_columns_are_given_by_name_in_any_order():
    batch = FlowBatch.from_columns(
        SCHEMA,
        {"sourceTransportPort": [80, 443, 80], "sourcePodName": ["web", "db", "web"]}
        | {"sourceIPv4Address": ["10.0.0.1", "10.0.0.2", "10.0.0.1"]},
    )
    assert batch == BATCH
    assert batch.schema is SCHEMA


def test_an_element_that_is_not_given_has_its_default():
    batch = FlowBatch.from_columns(SCHEMA, {"sourceTransportPort": [80]})
    assert list(batch.rows()) == [("0.0.0.0", 80, "")]
    assert len(FlowBatch.from_columns(SCHEMA, {})) == 0


def test_a_name_outside_the_schema_is_refused():
    with pytest.raises(ValueError, match="octetDeltaCount is not an element of the schema"):
        FlowBatch.from_columns(SCHEMA, {"octetDeltaCount": [1]})


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="sourcePodName: 1 values for 2 rows"):
        FlowBatch.from_columns(SCHEMA, {"sourceTransportPort": [1, 2], "sourcePodName": ["a"]})


@pytest.mark.parametrize("row", [(), ("10.0.0.1", 80), ("10.0.0.1", 80, "a", 1)])
def test_a_row_of_another_length_is_refused_by_number(row):
    with pytest.raises(ValueError, match=f"row 1 has {len(row)} values for 3 elements"):
        FlowBatch.from_rows(SCHEMA, [ROWS[0], row])


def test_no_rows_are_an_empty_batch_with_all_columns():
    batch = FlowBatch.from_rows(WIDE, [])
    assert len(batch) == 0
    assert list(batch.rows()) == batch.to_dicts() == []
    assert all(batch.column(element.name).tolist() == [] for element in OF_EACH_TYPE)


def test_a_registered_element_outside_the_schema_is_its_default_in_every_row():
    assert BATCH.column("octetDeltaCount") == [0, 0, 0]
    assert BATCH.column("destinationIPv6Address") == ["::"] * 3
    assert BATCH.column("sourcePodUUID") == [bytes(16)] * 3


def test_an_unknown_name_is_a_key_error():
    with pytest.raises(KeyError, match="noSuchElement"):
        BATCH.column("noSuchElement")


def test_address_text_is_of_the_batch_s_family():
    assert BATCH.address_text("source") == ["10.0.0.1", "10.0.0.2", "10.0.0.1"]
    assert BATCH.address_text("destination") == ["0.0.0.0"] * 3
    six = FlowBatch.from_rows(schema_of("proxySnatIPv6", family=AddressFamily.IPV6), [("2001:db8::1",)])
    assert six.address_text("proxySnat") == ["2001:db8::1"]
    for role in ("source", "destination", "destinationCluster", "destinationService"):
        assert six.address_text(role) == ["::"]
    with pytest.raises(KeyError, match="nextHop"):
        six.address_text("nextHop")


def test_dicts_are_ready_for_json():
    names = ("aUUID", "aBasicList", "aFloat64", "aFloat32", "aBoolean", "aUnsigned64", "aIpv6Address")
    rows = [
        (bytes(range(16)), b"\xff", math.nan, -math.inf, True, 2**64 - 1, "::1"),
        (bytes(16), b"", 0.5, math.inf, False, 0, "::"),
    ]
    dicts = FlowBatch.from_rows(schema_of(*names), rows).to_dicts()
    assert json.loads(json.dumps(dicts, allow_nan=False)) == dicts
    assert dicts[0] == dict(
        zip(
            names,
            ("000102030405060708090a0b0c0d0e0f", "ff", "NaN", "-Infinity", True, 2**64 - 1, "::1"),
            strict=True,
        )
    )
    assert list(dicts[1].values()) == ["0" * 32, "", 0.5, "Infinity", False, 0, "::"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("sourcePodName", ["web", "db"]),
        ("sourceIPv4Address", ["10.0.0.1", "10.0.0.2"]),
        ("sourceTransportPort", [80, 443]),
        (["sourcePodName"], ["web", "db"]),
        (("sourcePodName", "sourceTransportPort"), [("web", 80), ("db", 443)]),
        (("sourcePodName", "octetDeltaCount"), [("web", 0), ("db", 0)]),
        ("octetDeltaCount", [0]),
    ],
)
def test_map_distinct_calls_once_per_distinct_value(names, expected):
    called = []
    column = BATCH.map_distinct(names, lambda value: called.append(value) or f"<{value}>")
    assert sorted(called, key=str) == sorted(expected, key=str)
    assert [expected.index(v) for v in called] == sorted(expected.index(v) for v in called)
    assert column.tolist() == [f"<{expected[i % len(expected)]}>" for i in (0, 1, 0)]


def test_map_distinct_does_not_call_for_values_that_a_slice_left_behind():
    called = []
    BATCH.slice(1, 2).map_distinct("sourcePodName", lambda value: called.append(value) or "")
    assert called == ["db"]


def test_map_distinct_of_no_rows_calls_nothing():
    assert len(BATCH.slice(0, 0).map_distinct(("sourcePodName", "sourceTransportPort"), pytest.fail)) == 0


def test_map_distinct_wants_a_name():
    with pytest.raises(ValueError, match="no element to map"):
        BATCH.map_distinct((), str)


def test_with_columns_replaces_and_appends():
    batch = BATCH.with_columns({"sourceNodeName": ["n1", "n2", "n1"], "sourceTransportPort": [1, 2, 3]})
    assert batch.schema.names == ("sourceIPv4Address", "sourceTransportPort", "sourcePodName", "sourceNodeName")
    assert list(batch.rows())[1] == ("10.0.0.2", 2, "db", "n2")
    assert list(BATCH.rows()) == ROWS
    assert batch.schema.origin is FlowOrigin.PLAIN


def test_with_columns_that_replaces_keeps_the_schema():
    assert BATCH.with_columns({"sourcePodName": ["", "", ""]}).schema is SCHEMA


def test_with_columns_takes_what_map_distinct_made():
    upper = BATCH.map_distinct("sourcePodName", str.upper)
    assert BATCH.with_columns({"sourcePodName": upper}).column("sourcePodName") == ["WEB", "DB", "WEB"]
    constant = BATCH.map_distinct("sourcePodName", lambda _: "192.0.2.7")
    assert BATCH.with_columns({"egressIP": constant}).column("egressIP").dictionary == ("192.0.2.7",)


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"sourceNodeName": ["n1"]}, ValueError, "sourceNodeName: 1 values for 3 rows"),
        ({"sourcePodName": []}, ValueError, "sourcePodName: 0 values for 3 rows"),
        ({"sourcePodName": ["", "", None]}, ValueError, "sourcePodName: None is no string"),
        ({"noSuchElement": ["", "", ""]}, KeyError, "noSuchElement"),
    ],
)
def test_with_columns_refuses_what_does_not_fit(columns, error, text):
    with pytest.raises(error, match=text):
        BATCH.with_columns(columns)


def test_id_first_export_and_handles_stay_with_the_rows():
    batch = FlowBatch(SCHEMA, with_handles()._columns, id="a/1", is_first_export=True, handles=("h0", "h1", "h2"))
    for same in (batch.with_columns({"sourceNodeName": [""] * 3}), batch.with_id("a/1")):
        assert (same.id, same.is_first_export, same.handles) == ("a/1", True, ("h0", "h1", "h2"))
    assert batch.with_id("b/2").id == "b/2"


def test_other_rows_have_no_id_and_their_own_handles():
    assert (with_handles().slice(1, 3).id, list(with_handles().slice(1, 3).handles)) == ("", ["h1", "h2"])
    assert (with_handles().take([2, 0]).id, list(with_handles().take([2, 0]).handles)) == ("", ["h2", "h0"])
    joined = FlowBatch.concatenate([with_handles(), with_handles().slice(0, 1)])
    assert (joined.id, list(joined.handles)) == ("", [])


def test_take_refuses_rows_outside():
    for indices in ([3], [0, -1]):
        with pytest.raises(IndexError, match="a row outside 0 to 2"):
            BATCH.take(indices)
    assert len(BATCH.slice(0, 0).take([])) == 0


def test_concatenate_joins_rows_of_one_schema():
    assert FlowBatch.concatenate([BATCH.slice(0, 1), BATCH.slice(1, 1), BATCH.slice(1, 3)]) == BATCH


@pytest.mark.parametrize(("pieces", "is_large"), [(2, False), (60, True)])
def test_a_large_batch_is_joined_in_steps_and_is_the_same(pieces: int, is_large: bool):
    given = [
        FlowBatch.from_rows(SCHEMA, [("10.0.0.1", port, f"pod-{piece}-{port}") for port in range(1000)])
        for piece in range(pieces)
    ]
    expected = FlowBatch.from_rows(SCHEMA, [row for batch in given for row in batch.rows()])
    joined: list[FlowBatch] = []

    def join() -> Iterator[None]:
        joined.append((yield from join_slowly(given)))

    steps = 0
    for _ in join():
        steps += 1
        given.append(BATCH)  # comes too late
    assert joined == [expected]
    assert (steps > 2) is is_large


def test_concatenate_of_first_exports_and_others_is_no_first_export():
    first = FlowBatch.from_columns(SCHEMA, {"sourceTransportPort": [1]}, is_first_export=True)
    assert FlowBatch.concatenate([first, first]).is_first_export
    assert not FlowBatch.concatenate([first, BATCH]).is_first_export


def test_concatenate_refuses_nothing_and_different_schemas():
    with pytest.raises(ValueError, match="no batch"):
        FlowBatch.concatenate([])
    with pytest.raises(ValueError, match="different schemas"):
        FlowBatch.concatenate([BATCH, FlowBatch.from_rows(schema_of("sourceIPv4Address"), [("10.0.0.1",)])])


def test_octets_grow_with_rows_and_with_strings():
    assert BATCH.octets == 3 * (4 + 2 + 4) + len("web") + len("db")
    assert FlowBatch.from_rows(SCHEMA, []).octets == 0


def test_equality_is_by_schema_and_values():
    assert BATCH.with_id("a/1") == BATCH
    assert BATCH.slice(0, 2) != BATCH
    family = FlowSchema(origin=SCHEMA.origin, family=AddressFamily.IPV6, elements=SCHEMA.elements, registry=REGISTRY)
    assert FlowBatch.from_rows(family, ROWS) != BATCH
    assert BATCH != ROWS
    with pytest.raises(TypeError):
        hash(BATCH)


def test_a_representation_names_the_batch_and_no_data():
    assert repr(BATCH) == "<FlowBatch: plain IPv4, 3 rows, 3 elements>"
    first = FlowBatch(SCHEMA, with_handles()._columns, id="a/1", is_first_export=True)
    assert repr(first) == "<FlowBatch: plain IPv4, 3 rows, 3 elements, first export, id 'a/1'>"


def test_a_batch_cannot_be_changed():
    for name in ("id", "schema", "is_first_export", "handles", "octets"):
        with pytest.raises(AttributeError):
            setattr(BATCH, name, "")
    with pytest.raises(TypeError):
        BATCH.column("sourceTransportPort").buffer[0] = 1


def test_packed_columns_make_a_batch_without_values():
    columns = [
        PackedColumn(SCHEMA.elements[0], bytes([10, 0, 0, 1])),
        NumberColumn(SCHEMA.elements[1], array("H", [80])),
        BATCH.column("sourcePodName")[:1],
    ]
    assert FlowBatch(SCHEMA, columns) == BATCH.slice(0, 1)
