from array import array

import pytest

from flowjoin._model.columns import CodedValues, DictionaryColumn, NumberColumn, PackedColumn
from flowjoin.wire.registry import default_registry

PORT = default_registry().by_name("sourceTransportPort")
OTHER_PORT = default_registry().by_name("destinationTransportPort")
FLAG = default_registry().by_name("dataRecordsReliability")
RATIO = default_registry().by_name("samplingProbability")
ADDRESS = default_registry().by_name("sourceIPv4Address")
ADDRESS6 = default_registry().by_name("sourceIPv6Address")
UUID = default_registry().by_name("sourcePodUUID")
NAME = default_registry().by_name("sourcePodName")

PORTS = NumberColumn(PORT, array("H", [80, 443, 80, 65535]))
FLAGS = NumberColumn(FLAG, b"\1\0\1\1")
ADDRESSES = PackedColumn(ADDRESS, bytes([10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 1, 0, 0, 0, 0]))
UUIDS = PackedColumn(UUID, bytes(16) + bytes(range(16)) + bytes(16) + b"\xff" * 16)
NAMES = DictionaryColumn(NAME, array("I", [0, 1, 0, 2]), ("web-0", "web-1", ""))

EVERY_FORM = pytest.mark.parametrize(
    ("column", "values"),
    [
        (PORTS, [80, 443, 80, 65535]),
        (FLAGS, [True, False, True, True]),
        (ADDRESSES, ["10.0.0.1", "10.0.0.2", "10.0.0.1", "0.0.0.0"]),
        (UUIDS, [bytes(16), bytes(range(16)), bytes(16), b"\xff" * 16]),
        (NAMES, ["web-0", "web-1", "web-0", ""]),
        (CodedValues(array("I", [0, 1, 2, 1]), ["a", "b", "a"]), ["a", "b", "a", "b"]),
    ],
    ids=lambda column: type(column).__name__,
)


@EVERY_FORM
def test_a_column_is_a_sequence_of_its_values(column, values):
    assert len(column) == 4
    assert column.tolist() == values
    assert list(column) == values
    assert [column[index] for index in range(4)] == values
    assert [column[index] for index in range(-4, 0)] == values
    assert list(map(type, column)) == list(map(type, values))
    assert column.index(values[1]) == 1
    assert values[3] in column
    assert "elsewhere" not in column
    assert list(reversed(column)) == values[::-1]


@EVERY_FORM
@pytest.mark.parametrize("index", [4, -5, 2**70])
def test_a_row_outside_is_an_index_error(column, values, index):
    with pytest.raises(IndexError):
        column[index]


@EVERY_FORM
@pytest.mark.parametrize(
    "part",
    [
        *(slice(None), slice(1, 3), slice(2, 2), slice(3, 1), slice(-2, None), slice(0, 99)),
        *(slice(None, None, 2), slice(None, None, -1), slice(3, 0, -2)),
    ],
    ids=str,
)
def test_a_slice_is_a_column_of_the_same_form(column, values, part):
    assert type(column[part]) is type(column)
    assert column[part].tolist() == values[part]


@EVERY_FORM
def test_take_gives_rows_in_the_order_asked(column, values):
    assert column.take([3, 0, 0]).tolist() == [values[3], values[0], values[0]]
    assert column.take([]).tolist() == []


@EVERY_FORM
def test_distinct_values_each_occur_and_stand_for_the_rows(column, values):
    for part, expected in ((column, values), (column[1:2], values[1:2]), (column[:0], [])):
        codes, dictionary = part.distinct()
        assert [dictionary[code] for code in codes] == expected
        assert len(dictionary) == len(set(dictionary)) == len(set(expected))


@EVERY_FORM
def test_columns_are_equal_by_value_and_equal_their_list(column, values):
    assert column == values
    assert column == tuple(values)
    assert column[:] == column
    assert column != values[:3]
    assert column[:3] != column
    assert column.take([1, 0, 2, 3]) != column
    assert column != 4


@EVERY_FORM
def test_a_representation_shows_no_data(column, values):
    assert repr(column).endswith("4 values>")
    assert "web" not in repr(column)
    assert "10.0" not in repr(column)


def test_forms_of_two_elements_are_equal_by_value():
    assert NumberColumn(OTHER_PORT, PORTS.buffer) == PORTS
    assert NumberColumn(default_registry().by_name("ingressInterface"), array("I", PORTS.tolist())) == PORTS
    assert DictionaryColumn(NAME, array("I", [1, 2, 1, 0]), ("", "web-0", "web-1")) == NAMES
    assert NAMES != PORTS
    assert PackedColumn(ADDRESS6, bytes(16)) != PackedColumn(UUID, bytes(16))


def test_not_a_number_equals_itself():
    column = NumberColumn(RATIO, array("d", [float("nan"), 1.0]))
    assert column == column[:]


@pytest.mark.parametrize("column", [PORTS, FLAGS, ADDRESSES, UUIDS])
def test_a_buffer_is_contiguous_and_read_only(column):
    assert column.buffer.readonly
    assert column.buffer.contiguous
    assert column[1:3].buffer.contiguous
    assert column.octets == column.buffer.nbytes


@pytest.mark.parametrize(
    ("element", "form"), [(PORT, "H"), (FLAG, "?"), (RATIO, "d"), (default_registry().by_name("flowEndSeconds"), "I")]
)
def test_an_empty_number_column_keeps_its_format(element, form):
    assert NumberColumn(element, b"").buffer.format == form
    assert NumberColumn(element, b"").tolist() == []


def test_a_slice_shares_its_buffer():
    assert PORTS[1:].buffer.obj is PORTS.buffer.obj
    assert ADDRESSES[1:].buffer.obj is ADDRESSES.buffer.obj
    assert NAMES[0:3].codes.obj is NAMES.codes.obj


def test_a_few_rows_of_a_large_batch_do_not_hold_all_of_its_strings():
    large = DictionaryColumn(NAME, array("I", range(1000)), [str(number) for number in range(1000)])
    assert large[10:12].dictionary == ("10", "11")
    assert large.take([5, 5]).dictionary == ("5",)
    assert large[:999].octets < large.octets


def test_addresses_have_codes_and_a_dictionary_of_text():
    assert ADDRESSES.dictionary == ("10.0.0.1", "10.0.0.2", "0.0.0.0")
    assert ADDRESSES.codes.tolist() == [0, 1, 0, 2]
    assert ADDRESSES.codes.format == "I"


def test_text_of_addresses_is_made_once():
    assert ADDRESSES.distinct() is ADDRESSES.distinct()


def test_a_dictionary_whole_in_use_is_given_as_it_is():
    assert NAMES.distinct()[1] is NAMES.dictionary


def test_values_can_go_under_another_element_of_the_same_type():
    for column in (PORTS, ADDRESSES, NAMES):
        other = column.renamed(OTHER_PORT if column is PORTS else column.element)
        assert other == column
        assert type(other) is type(column)


def test_columns_have_no_hash():
    with pytest.raises(TypeError):
        hash(PORTS)


def test_coded_values_are_mapped_once_per_code():
    asked = []
    values = CodedValues(array("I", [0, 1, 2, 1]), ["a", "b", "a"])
    mapped = values.map(lambda value: asked.append(value) or value.upper())
    assert mapped.tolist() == ["A", "B", "A", "B"]
    assert asked == ["a", "b", "a"]
    assert mapped.codes == values.codes
