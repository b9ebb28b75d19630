"""Rows to octets: what each field of a row is made of, and the rows joined.

Strategy: a format says once per batch what its rows consist of, one *piece* a field; then all rows are written
in one go, by a loop over octets where the compiled part was built, else by joining lists. Texts are made once
per distinct value; numbers and addresses have no Python object at all in the compiled form. Invariant: both
forms write the same octets.
"""

from __future__ import annotations

import enum
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, repeat
from types import ModuleType
from typing import Any, Final, TypeAlias

from flowjoin._model.address_text import ipv4_text
from flowjoin._model.columns import DictionaryColumn, NumberColumn, PackedColumn
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.information_element import DataType

__all__ = [
    "Chosen",
    "Constant",
    "Decimal",
    "Dotted",
    "Fixed",
    "Hexadecimal",
    "NetworkOrder",
    "Piece",
    "TextStyle",
    "chosen_of",
    "rows_per_slice",
    "texts_of",
    "write_rows",
    "write_rows_plainly",
]

_OCTET_VALUES: Final = 256
_LONG_FORM, _LONGEST = 255, 65_535  # RFC 7011 section 7
_NEEDS_QUOTES: Final = re.compile('[",\r\n]')
_LINE_BREAKS: Final = str.maketrans("\r\n", "  ")
_INTEGERS: Final = frozenset("BHIQbhiq")
_NUMBERS: Final = frozenset("BHIQbhiqfd")


@dataclass(frozen=True, slots=True)
class Constant:
    """The same octets in every row."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of some octet strings, by code.

    Attributes:
        codes: one a row, format ``I`` or ``B``.
        texts: what they stand for.
    """

    codes: memoryview
    texts: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Decimal:
    """An integer's decimal digits.

    Attributes:
        column: of integers or times.
        prefix: written before them.
    """

    column: NumberColumn
    prefix: bytes = b""


@dataclass(frozen=True, slots=True)
class Dotted:
    """An IPv4 address as text.

    Attributes:
        column: of IPv4 addresses.
        prefix: written before it.
        suffix: written behind it.
        unset: written in the place of all three for 0.0.0.0; None for no such place.
        counted: an octet with the number of its digits and dots stands right before them.
    """

    column: PackedColumn
    prefix: bytes = b""
    suffix: bytes = b""
    unset: bytes | None = None
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of octets, as they are: addresses and octetArrays of fixed size."""

    column: PackedColumn


@dataclass(frozen=True, slots=True)
class Hexadecimal:
    """A fixed number of octets as lower-case hexadecimal digits.

    Attributes:
        column: of them.
        prefix: written before them.
        suffix: written behind them.
    """

    column: PackedColumn
    prefix: bytes = b""
    suffix: bytes = b""


@dataclass(frozen=True, slots=True)
class NetworkOrder:
    """A number or time in its natural width, its highest octet first."""

    column: NumberColumn


Piece: TypeAlias = Constant | Chosen | Decimal | Dotted | Fixed | Hexadecimal | NetworkOrder


class TextStyle(enum.IntEnum):
    """How a format writes a text."""

    PLAIN = 0  # as it is
    ONE_LINE = 1  # line breaks become spaces
    RFC4180 = 2  # quoted where it holds a comma, a quote or a line break
    JSON = 3  # a JSON string; what is not ASCII stays as it is
    IPFIX = 4  # its length before it, as RFC 7011 section 7 wants it
    NATIVE = 5  # its length before it, as ClickHouse's Native format has it (LEB128)


def texts_of(batch: FlowBatch, name: str, style: TextStyle, *, prefix: bytes = b"") -> Chosen:
    """A string element's values in UTF-8, each with what stands before it.

    Raises:
        ValueError: the element is no string, or a text is too long for IPFIX.
    """
    column = batch.column(name)
    if not isinstance(column, DictionaryColumn) or column.element.data_type is not DataType.STRING:
        raise ValueError(f"{name} is no string")
    compiled = _compiled()
    if compiled is None:
        return Chosen(column.codes, encode_texts_plainly(column.dictionary, prefix, style))
    return Chosen(column.codes, compiled.encode_texts(column.dictionary, prefix, style))


def encode_texts_plainly(values: Iterable[Any], prefix: bytes, style: TextStyle) -> list[bytes]:
    """Texts in a style, each with what stands before it: the reference of the compiled form."""
    texts = [_styled(value, style).encode() for value in values]
    if style is TextStyle.IPFIX:
        texts = [_ipfix_length(len(text)) + text for text in texts]
    elif style is TextStyle.NATIVE:
        texts = [_native_length(len(text)) + text for text in texts]
    return [prefix + text for text in texts]


def _ipfix_length(length: int) -> bytes:
    if length > _LONGEST:
        raise ValueError(f"{length} octets are more than a field can have")
    return bytes([length]) if length < _LONG_FORM else b"\xff" + length.to_bytes(2, "big")


def _native_length(length: int) -> bytes:
    made = bytearray()
    while length > 127:
        made.append(length & 127 | 128)
        length >>= 7
    made.append(length)
    return bytes(made)


def _styled(text: str, style: TextStyle) -> str:
    match style:
        case TextStyle.ONE_LINE:
            return text.translate(_LINE_BREAKS)
        case TextStyle.RFC4180 if _NEEDS_QUOTES.search(text):
            return '"' + text.replace('"', '""') + '"'
        case TextStyle.JSON:
            return json.dumps(text, ensure_ascii=False)
    return text


def chosen_of(batch: FlowBatch, name: str, function: Callable[[Any], str], *, prefix: bytes = b"") -> Chosen:
    """What the function makes of an element's values, in UTF-8, each with what stands before it.

    The function is called once per distinct value; of numbers of one octet maybe also for values that no row has.
    """
    column = batch.column(name)
    codes: memoryview
    values: Iterable[Any]
    if isinstance(column, DictionaryColumn):
        codes, values = column.codes, column.dictionary
    elif isinstance(column, NumberColumn) and column.buffer.format == "B" and len(column) >= _OCTET_VALUES:
        codes, values = column.buffer, range(_OCTET_VALUES)
    else:
        codes, values = column.distinct()
    texts = [prefix + function(value).encode() for value in values]
    compiled = _compiled()
    return Chosen(codes, texts if compiled is None else compiled.pack_texts(texts))


def rows_per_slice(rows_when_plain: int) -> int:
    """How many rows take about as long as so many without the compiled part."""
    return rows_when_plain if _compiled() is None else 16 * rows_when_plain


def write_rows(pieces: Sequence[Piece], rows: int, first: int = 0, last: int | None = None) -> tuple[bytes, array[int]]:
    """Rows, one behind the other, and where each ends (format ``Q``).

    Args:
        pieces: what a row consists of, in order.
        rows: how many there are; each piece has a value for each.
        first: the first one that is written.
        last: the one before which to end; None for all.

    Raises:
        ValueError: a piece of another length, or of a column that it cannot write.
        IndexError: a code that stands for nothing.
    """
    last = rows if last is None else last
    if not 0 <= first <= last <= rows:
        raise ValueError(f"rows {first} to {last} of {rows}")
    for piece in pieces:
        _check(piece, rows)
    compiled = _compiled()
    return (write_rows_plainly if compiled is None else compiled.write_rows)(pieces, rows, first, last)


def write_rows_plainly(pieces: Sequence[Piece], rows: int, first: int, last: int) -> tuple[bytes, array[int]]:
    """As ``write_rows``, whose checks were made: the reference of the compiled form."""
    if not pieces:
        return b"", array("Q", bytes(8 * (last - first)))
    columns = (islice(_texts(piece, rows), first, last) for piece in pieces)
    written = list(map(b"".join, zip(*columns, strict=True)))
    return b"".join(written), array("Q", accumulate(map(len, written)))


def _compiled() -> ModuleType | None:
    try:
        from flowjoin._kernel import _writers
    except ImportError:  # it was not built
        return None
    return _writers


def _check(piece: Piece, rows: int) -> None:
    match piece:
        case Constant():
            return
        case Chosen(codes, _):
            if codes.format not in ("I", "B") or len(codes) != rows:
                raise ValueError(f"{len(codes)} codes of format {codes.format!r} for {rows} rows")
            return
        case Decimal(column, _) | NetworkOrder(column):
            form = column.buffer.format
            if form not in (_INTEGERS if isinstance(piece, Decimal) else _NUMBERS):
                raise ValueError(f"{column.element.name}: no number that can be written so")
        case Dotted(packed):
            if packed.width != 4:
                raise ValueError(f"{packed.element.name}: no IPv4 addresses")
        case Fixed() | Hexadecimal():
            pass
    if len(piece.column) != rows:
        raise ValueError(f"{piece.column.element.name}: {len(piece.column)} values for {rows} rows")


def _texts(piece: Piece, rows: int) -> Iterable[bytes]:
    match piece:
        case Constant(octets):
            return repeat(octets, rows)
        case Chosen(codes, texts):
            return map(texts.__getitem__, codes.tolist())
        case Decimal(column, prefix):
            return (b"%b%d" % (prefix, number) for number in column.buffer.tolist())
        case Dotted(packed):
            return _dotted(piece, _cut(packed))
        case Fixed(packed):
            return _cut(packed)
        case Hexadecimal(packed, prefix, suffix):
            return (prefix + octets.hex().encode() + suffix for octets in _cut(packed))
        case NetworkOrder(column):
            size = column.buffer.itemsize
            octets = column.buffer.tobytes()
            return (octets[at : at + size][::-1] for at in range(0, len(octets), size))


def _cut(column: PackedColumn) -> Iterator[bytes]:
    octets, width = column.buffer.tobytes(), column.width
    return (octets[at : at + width] for at in range(0, len(octets), width))


def _dotted(piece: Dotted, addresses: Iterable[bytes]) -> Iterator[bytes]:
    for address in addresses:
        if piece.unset is not None and not any(address):
            yield piece.unset
        else:
            text = ipv4_text(address).encode()
            yield piece.prefix + bytes([len(text)] * piece.counted) + text + piece.suffix
