import math
from array import array

import pytest
from batch_examples import OF_EACH_TYPE, REGISTRY, UUID

from flowjoin._model.column_building import column_of, default_column, join_columns
from flowjoin._model.columns import CodedValues, DictionaryColumn, NumberColumn, PackedColumn
from flowjoin._model.steps import at_once

OF_TYPE = {element.data_type.value: element for element in OF_EACH_TYPE if element is not UUID}


@pytest.mark.parametrize("element", OF_EACH_TYPE, ids=lambda element: element.name)
def test_defaults_fill_a_column_of_every_type(element):
    column = default_column(element, 3)
    assert column.tolist() == [element.default] * 3
    assert column == column_of(element, [element.default] * 3)
    assert default_column(element, 0).tolist() == []


@pytest.mark.parametrize(
    ("data_type", "bad"),
    [
        ("unsigned8", 256),
        ("unsigned8", -1),
        ("unsigned16", 2**16),
        ("unsigned64", 2**64),
        ("signed32", 2**31),
        ("signed8", -129),
        ("unsigned32", 1.0),
        ("unsigned32", "1"),
        ("unsigned32", True),
        ("unsigned32", None),
        ("dateTimeSeconds", 2**32),
        ("dateTimeNanoseconds", -1),
        ("boolean", 1),
        ("boolean", None),
        ("float32", 1e300),
        ("float32", "1"),
        ("float64", True),
        ("float64", 10**400),
        ("string", b"octets"),
        ("string", None),
        ("string", "\ud800"),
        ("string", ["unhashable"]),
        ("octetArray", "text"),
        ("octetArray", bytearray(b"mutable")),
        ("basicList", 7),
        ("ipv4Address", "10.0.0.256"),
        ("ipv4Address", "::1"),
        ("ipv4Address", b"\x0a\0\0\1"),
        ("ipv4Address", 167772161),
        ("ipv6Address", "10.0.0.1"),
        ("ipv6Address", "fe80::1%eth0"),
        ("macAddress", "00-00-00-00-00-00"),
    ],
)
def test_a_value_that_the_type_does_not_have_is_refused_by_name(data_type, bad):
    element = OF_TYPE[data_type]
    good = element.default
    for values in ([bad], [good, bad, good]):
        with pytest.raises(ValueError) as caught:
            column_of(element, values)
        assert str(caught.value).startswith(f"{element.name}: {str(repr(bad))[:50]}")
        assert str(caught.value).endswith(f" is no {data_type}")


@pytest.mark.parametrize("bad", [b"", bytes(15), bytes(17)])
def test_octets_of_a_fixed_size_are_refused_in_another(bad):
    with pytest.raises(ValueError, match=r"^aUUID: .* is no octetArray of 16 octets$"):
        column_of(UUID, [bytes(16), bad])


def test_a_refused_value_is_not_shown_whole():
    with pytest.raises(ValueError) as caught:
        column_of(OF_TYPE["unsigned8"], ["x" * 10_000])
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(("data_type", "values"), [("string", "web"), ("octetArray", b"web")])
def test_one_text_is_no_column(data_type, values):
    with pytest.raises(ValueError, match="a column is a sequence of values"):
        column_of(OF_TYPE[data_type], values)


def test_what_floats_cannot_be_missing_is_kept():
    values = [math.inf, -math.inf, 0.5, 7]
    assert column_of(OF_TYPE["float32"], values).tolist() == values
    assert math.isnan(column_of(OF_TYPE["float32"], [math.nan])[0])


def test_any_sequence_makes_a_column():
    element = OF_TYPE["unsigned16"]
    assert column_of(element, range(3)) == column_of(element, array("H", [0, 1, 2])) == column_of(element, (0, 1, 2))


def test_addresses_are_kept_canonical():
    assert column_of(OF_TYPE["ipv6Address"], ["2001:DB8:0::1"]).tolist() == ["2001:db8::1"]


def test_a_column_of_the_element_is_taken_as_it_is():
    column = default_column(OF_TYPE["string"], 2)
    assert column_of(OF_TYPE["string"], column) is column


def test_a_column_of_the_same_type_shares_its_buffers():
    source, destination = REGISTRY.by_name("sourceIPv4Address"), REGISTRY.by_name("destinationIPv4Address")
    column = column_of(source, ["192.0.2.1"])
    renamed = column_of(destination, column)
    assert renamed.element is destination
    assert isinstance(renamed, PackedColumn)
    assert renamed.buffer.obj is column.buffer.obj


def test_a_column_of_another_type_is_converted_by_value():
    column = column_of(OF_TYPE["unsigned16"], [1, 2])
    wider = column_of(OF_TYPE["unsigned64"], column)
    assert isinstance(wider, NumberColumn)
    assert wider.buffer.format == "Q"
    assert wider == [1, 2]
    with pytest.raises(ValueError, match="300 is no unsigned8"):
        column_of(OF_TYPE["unsigned8"], column_of(OF_TYPE["unsigned16"], [300]))
    with pytest.raises(ValueError, match="is no string"):
        column_of(OF_TYPE["string"], column_of(OF_TYPE["octetArray"], [b"a"]))


def test_coded_values_are_checked_once_each_and_merged():
    coded = CodedValues(array("I", [0, 1, 2, 2]), ["a", "b", "a"])
    column = column_of(OF_TYPE["string"], coded)
    assert isinstance(column, DictionaryColumn)
    assert column.dictionary == ("a", "b")
    assert column.tolist() == ["a", "b", "a", "a"]
    assert column_of(OF_TYPE["ipv4Address"], CodedValues(array("I", [0, 0]), ["192.0.2.1"])) == ["192.0.2.1"] * 2
    assert column_of(OF_TYPE["unsigned8"], CodedValues(array("I", [1, 0]), [5, 6])) == [6, 5]


def test_joined_dictionaries_are_merged():
    one = column_of(OF_TYPE["string"], ["a", "b"])
    two = column_of(OF_TYPE["string"], ["b", "c"])
    joined = at_once(join_columns([one, two]))
    assert isinstance(joined, DictionaryColumn)
    assert joined.dictionary == ("a", "b", "c")
    assert joined.tolist() == ["a", "b", "b", "c"]


def test_a_shared_dictionary_stays_shared():
    whole = column_of(OF_TYPE["string"], ["a", "b", "a", "b"])
    joined = at_once(join_columns([whole[2:], whole[:2]]))
    assert isinstance(joined, DictionaryColumn)
    assert isinstance(whole, DictionaryColumn)
    assert joined.dictionary is whole.dictionary
    assert joined == whole


@pytest.mark.parametrize(("rows", "distinct"), [(3, 2), (700, 3), (700, 200), (700, 600)])
def test_joined_rows_keep_their_strings_however_many_there_are(rows, distinct):
    texts = [f"pod-{row * 7 % distinct}" for row in range(rows)]
    parts = [column_of(OF_TYPE["string"], texts[shift:] + texts[:shift]) for shift in (0, 1, rows // 2)]
    joined = at_once(join_columns(parts))
    assert joined.tolist() == [text for part in parts for text in part]
    assert isinstance(joined, DictionaryColumn)
    assert len(joined.dictionary) == distinct
