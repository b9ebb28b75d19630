"""Columns made from Python values, from nothing, and from other columns."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain, count
from operator import eq
from typing import Any, Final, NoReturn, TypeVar, cast

from flowjoin._model.address_text import pack_ipv4, pack_ipv6, pack_mac
from flowjoin._model.columns import (
    NUMBER_FORMATS,
    Buffer,
    CodedValues,
    Column,
    DictionaryColumn,
    NumberColumn,
    PackedColumn,
    factorise,
    is_packed,
)
from flowjoin._model.information_element import DataType, InformationElement, Value

__all__ = ["column_of", "default_column", "join_columns"]

ColumnT = TypeVar("ColumnT", NumberColumn, PackedColumn, DictionaryColumn)

_FLOATS: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
_PACKERS: Final[dict[DataType, Callable[[str], bytes]]] = {
    DataType.IPV4_ADDRESS: pack_ipv4,
    DataType.IPV6_ADDRESS: pack_ipv6,
    DataType.MAC_ADDRESS: pack_mac,
}
_OCTET_VALUES: Final = 256
# What joining costs, in codes that are written anew.
_PART_COST: Final = 32
_COPY_COST: Final = 4  # for each part
_COPIED_OCTETS: Final = 128  # at the price of one code
_SHOWN_CHARACTERS: Final = 60  # of a refused value: enough to find it by


def column_of(element: InformationElement, values: Sequence[Value]) -> Column:
    """The values as a column of the element; a column of equal data type and length is taken as it is.

    Raises:
        ValueError: a value that the element's data type does not have.
    """
    if isinstance(values, NumberColumn | PackedColumn | DictionaryColumn):
        own = values.element
        if own == element:
            return values
        if (own.data_type, own.length) == (element.data_type, element.length):
            return values.renamed(element)
    if isinstance(values, str | bytes):
        raise ValueError(f"{element.name}: a column is a sequence of values, not {type(values).__name__}")
    if element.data_type in NUMBER_FORMATS:
        return NumberColumn(element, _numbers(element, list(values)))
    codes, dictionary = _coded(element, values)
    if not is_packed(element):
        return DictionaryColumn(element, codes, dictionary)
    packed = [_packed(element, value) for value in dictionary]
    return PackedColumn(element, b"".join(map(packed.__getitem__, codes)))


def default_column(element: InformationElement, length: int) -> Column:
    """The element's default in every row."""
    if element.data_type in NUMBER_FORMATS:
        return NumberColumn(element, bytes(length * element.data_type.natural_length))
    if is_packed(element):
        return PackedColumn(element, bytes(length * element.length))
    return DictionaryColumn(element, bytes(length * 4), (element.default,) if length else ())


def join_columns(columns: Sequence[Column]) -> Generator[int, None, Column]:
    """The rows of all columns, which are of one element, in order; dictionaries are merged.

    It is done in steps; each gives what it cost: the time that so many codes take to be written anew.
    """
    first = columns[0]
    if isinstance(first, NumberColumn):
        joined = b"".join(column.buffer for column in _all_like(first, columns))
        yield _COPY_COST * len(columns) + len(joined) // _COPIED_OCTETS
        return NumberColumn(first.element, joined)
    if isinstance(first, PackedColumn):
        joined = b"".join(column.buffer for column in _all_like(first, columns))
        yield _COPY_COST * len(columns) + len(joined) // _COPIED_OCTETS
        return PackedColumn(first.element, joined)
    parts = _all_like(first, columns)
    if all(part.dictionary is first.dictionary for part in parts):
        joined = b"".join(part.codes for part in parts)
        yield _COPY_COST * len(columns) + len(joined) // _COPIED_OCTETS
        return DictionaryColumn(first.element, joined, first.dictionary)
    index = dict(zip(dict.fromkeys(chain.from_iterable(part.dictionary for part in parts)), count()))
    yield sum(len(part.dictionary) for part in parts)
    codes = bytearray()
    for part in parts:
        codes += _recoded(part.codes, list(map(index.__getitem__, part.dictionary)))
        yield _PART_COST + len(part.dictionary) + len(part.codes)
    return DictionaryColumn(first.element, codes, tuple(index))


def _recoded(codes: memoryview, numbers: Sequence[int]) -> Buffer:
    """Codes in the place of codes; without an object for each where they are few, as they mostly are."""
    if all(map(eq, numbers, count())):
        return codes
    if len(codes) < _OCTET_VALUES or max(numbers) >= _OCTET_VALUES:
        return array("I", map(numbers.__getitem__, codes.tolist()))
    lowest = slice(0 if sys.byteorder == "little" else codes.itemsize - 1, None, codes.itemsize)
    made = bytearray(codes.nbytes)
    made[lowest] = codes.tobytes()[lowest].translate(bytes(numbers) + bytes(_OCTET_VALUES - len(numbers)))
    return made


def _all_like(first: ColumnT, columns: Sequence[Column]) -> Sequence[ColumnT]:
    assert all(type(column) is type(first) for column in columns), "columns of one element have one form"
    return cast(Sequence[ColumnT], columns)


def _coded(element: InformationElement, values: Sequence[Value]) -> tuple[array[int], tuple[Value, ...]]:
    """Codes into distinct values of the Python type that the element has."""
    given = values.dictionary if isinstance(values, CodedValues) else values
    taken = str if element.data_type in _PACKERS or element.data_type is DataType.STRING else bytes
    if not all(issubclass(kind, taken) for kind in set(map(type, given))):
        _refuse(element, next(value for value in given if not isinstance(value, taken)))
    codes, distinct = factorise(given)
    if isinstance(values, CodedValues):
        codes = array("I", map(codes.__getitem__, values.codes.tolist()))
    if element.data_type is DataType.STRING:
        _check_unicode(element, distinct)
    return codes, distinct


def _check_unicode(element: InformationElement, values: Iterable[Value]) -> None:
    for value in values:
        try:
            str(value).encode()
        except UnicodeEncodeError:  # a lone surrogate, which no writer could write
            _refuse(element, value)


def _numbers(element: InformationElement, values: list[Any]) -> bytes | array[int] | array[float]:
    kinds = set(map(type, values))
    if element.data_type is DataType.BOOLEAN:
        if not kinds <= {bool}:
            _refuse(element, next(value for value in values if not isinstance(value, bool)))
        return bytes(values)
    taken = (int, float) if element.data_type in _FLOATS else int
    if bool in kinds or not all(issubclass(kind, taken) for kind in kinds):
        _refuse(element, next(value for value in values if isinstance(value, bool) or not isinstance(value, taken)))
    form = NUMBER_FORMATS[element.data_type]
    try:
        column = array(form, values)
    except OverflowError:
        _refuse(element, next(value for value in values if not _fits(form, value)))
    if form == "f" and any(map(math.isinf, column)):
        for value, kept in zip(values, column, strict=True):
            if math.isinf(kept) and not math.isinf(value):
                _refuse(element, value)
    return column


def _fits(form: str, value: Any) -> bool:
    try:
        array(form, [value])
    except OverflowError:
        return False
    return True


def _packed(element: InformationElement, value: Value) -> bytes:
    packer = _PACKERS.get(element.data_type)
    if packer is None:
        octets = cast(bytes, value)
        if len(octets) != element.length:
            _refuse(element, value, f" of {element.length} octets")
        return octets
    try:
        return packer(cast(str, value))
    except ValueError:
        _refuse(element, value)


def _refuse(element: InformationElement, value: object, size: str = "") -> NoReturn:
    shown = repr(value)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "…"
    raise ValueError(f"{element.name}: {shown} is no {element.data_type.value}{size}")
