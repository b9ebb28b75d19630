"""Rows of any pieces: the compiled writer gives what joining lists gives."""

from __future__ import annotations

from typing import Any

import pytest
from compiled_kernel import require_compiled_kernel
from hypothesis import given
from hypothesis import strategies as st

from flowjoin._kernel.row_writing import encode_texts_plainly, write_rows_plainly
from flowjoin._model.column_building import column_of
from flowjoin._model.information_element import DataType, ElementId, InformationElement
from flowjoin.api.writers import (
    Chosen,
    Constant,
    Decimal,
    Dotted,
    Fixed,
    Hexadecimal,
    NetworkOrder,
    Piece,
    TextStyle,
    write_rows,
)

INTEGERS = {
    DataType.UNSIGNED8: (0, 2**8 - 1),
    DataType.UNSIGNED16: (0, 2**16 - 1),
    DataType.UNSIGNED32: (0, 2**32 - 1),
    DataType.UNSIGNED64: (0, 2**64 - 1),
    DataType.SIGNED8: (-(2**7), 2**7 - 1),
    DataType.SIGNED16: (-(2**15), 2**15 - 1),
    DataType.SIGNED32: (-(2**31), 2**31 - 1),
    DataType.SIGNED64: (-(2**63), 2**63 - 1),
    DataType.DATE_TIME_MILLISECONDS: (0, 2**64 - 1),
}
SHORT = st.binary(max_size=3)


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    require_compiled_kernel()


def element(data_type: DataType, length: int = 0) -> InformationElement:
    return InformationElement(name="any", element_id=ElementId(1), data_type=data_type, length=length)


@st.composite
def pieces(draw: st.DrawFn, rows: int) -> Piece:
    def values(of: st.SearchStrategy[Any]) -> list[Any]:
        if draw(st.booleans()):  # the same in every row
            return [draw(of)] * rows
        return draw(st.lists(of, min_size=rows, max_size=rows))

    kind = draw(st.sampled_from([Constant, Chosen, Decimal, Dotted, Fixed, Hexadecimal, NetworkOrder]))
    if kind is Constant:
        return Constant(draw(st.binary(max_size=300)))
    if kind is Chosen:
        texts = draw(st.lists(st.binary(max_size=3_000), min_size=1, max_size=5))
        codes = b"".join(code.to_bytes(4, "little") for code in values(st.integers(0, len(texts) - 1)))
        if draw(st.booleans()):
            return Chosen(memoryview(codes[::4]), texts)
        return Chosen(memoryview(codes or bytes(4)).cast("I")[:rows], texts)
    if kind is Dotted:
        addresses = values(st.sampled_from(["0.0.0.0", "1.22.133.255", "10.0.0.9"]))
        unset = draw(st.one_of(st.none(), SHORT))
        return Dotted(
            column_of(element(DataType.IPV4_ADDRESS), addresses), draw(SHORT), draw(SHORT), unset, draw(st.booleans())
        )  # type: ignore[arg-type]
    if kind is Fixed or kind is Hexadecimal:
        width = draw(st.integers(1, 20))
        octets = values(st.binary(min_size=width, max_size=width))
        packed: Any = column_of(element(DataType.OCTET_ARRAY, width), octets)
        return Fixed(packed) if kind is Fixed else Hexadecimal(packed, draw(SHORT), draw(SHORT))
    if kind is NetworkOrder and draw(st.booleans()):
        return NetworkOrder(column_of(element(DataType.FLOAT64), values(st.floats())))  # type: ignore[arg-type]
    data_type = draw(st.sampled_from(list(INTEGERS)))
    column: Any = column_of(element(data_type), values(st.integers(*INTEGERS[data_type])))
    return Decimal(column, draw(SHORT)) if kind is Decimal else NetworkOrder(column)


@given(st.integers(0, 40).flatmap(lambda rows: st.tuples(st.just(rows), st.lists(pieces(rows), max_size=8))))
def test_both_writers_write_the_same(case: tuple[int, list[Piece]]) -> None:
    rows, given_pieces = case
    assert write_rows(given_pieces, rows) == write_rows_plainly(given_pieces, rows, 0, rows)
    part = rows // 3, rows - rows // 4
    assert write_rows(given_pieces, rows, *part) == write_rows_plainly(given_pieces, rows, *part)


@given(
    st.lists(st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('",\r\n\\\t\x7f\x00')))), SHORT
)
def test_both_write_texts_the_same_in_every_style(texts: list[str], prefix: bytes) -> None:
    from flowjoin._kernel._writers import encode_texts

    for style in TextStyle:
        assert encode_texts(texts, prefix, style) == encode_texts_plainly(texts, prefix, style)


def test_rows_of_very_different_lengths_are_written_whole() -> None:
    texts = [b"x" * length for length in (0, 1, 31, 32, 33, 127, 128, 129, 70_000)]
    for codes in (bytes(200) + bytes(range(9)) * 3, bytes([8]) * 20 + bytes(300), bytes(range(9)) * 40):
        piece = Chosen(memoryview(codes), texts)
        given_pieces: list[Piece] = [piece, Constant(b";"), piece]
        assert write_rows(given_pieces, len(codes)) == write_rows_plainly(given_pieces, len(codes), 0, len(codes))


def test_packed_texts_are_a_sequence_of_octets() -> None:
    from flowjoin._kernel._writers import pack_texts

    texts = [b"", b"one", b"x" * 1_000]
    packed = pack_texts(texts)
    assert (len(packed), list(packed), packed[1], packed == texts) == (3, texts, b"one", True)
    for at in (3, -1):
        with pytest.raises(IndexError):
            packed[at]


def test_every_number_of_few_digits_and_every_power_of_ten_is_written_right() -> None:
    numbers = [
        *range(20_000),
        *(10**power + more for power in range(5, 20) for more in (-1, 0, 1) if 10**power + more < 2**64),
    ]
    column: Any = column_of(element(DataType.UNSIGNED64), numbers)
    octets, ends = write_rows([Decimal(column), Constant(b"\n")], len(numbers))
    assert octets.decode().split() == list(map(str, numbers))
    assert ends[-1] == len(octets)


def test_lengths_are_written_as_either_format_has_them() -> None:
    from flowjoin._kernel._writers import encode_texts

    texts = ["x" * length for length in (0, 127, 128, 254, 255, 16_383, 16_384, 65_535)]
    for style in (TextStyle.IPFIX, TextStyle.NATIVE):
        assert encode_texts(texts, b"", style) == encode_texts_plainly(texts, b"", style)
    for encode in (encode_texts, encode_texts_plainly):
        with pytest.raises(ValueError):
            encode(["x" * 65_536], b"", TextStyle.IPFIX)


def test_rows_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError):
        write_rows([], 3, 2, 4)


def test_a_code_that_stands_for_nothing_is_refused() -> None:
    codes = memoryview((7).to_bytes(4, "little")).cast("I")
    with pytest.raises(IndexError):
        write_rows([Chosen(codes, [b"one"])], 1)


def test_pieces_that_do_not_fit_are_refused() -> None:
    column: Any = column_of(element(DataType.UNSIGNED8), [1, 2])
    floats: Any = column_of(element(DataType.FLOAT32), [1.0])
    wide: Any = column_of(element(DataType.IPV6_ADDRESS), ["::1"])
    for piece, rows in (
        (Decimal(column), 1),
        (Decimal(floats), 1),
        (Dotted(wide), 1),
        (Fixed(wide), 2),
        (Chosen(memoryview(bytes(8)).cast("I"), [b""]), 3),
        (Chosen(memoryview(bytes(8)).cast("Q"), [b""]), 1),
    ):
        with pytest.raises(ValueError):
            write_rows([piece], rows)
