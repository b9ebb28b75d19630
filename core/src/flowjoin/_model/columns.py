"""One element's values for all rows of a batch, packed.

Three forms, by data type: numbers (booleans and times too) in the data type's natural width and the
machine's byte order; values of a fixed number of octets (addresses, MAC addresses, octetArrays of fixed
size) side by side as on the wire; everything else as codes into a tuple of distinct values. Readers see a
sequence of Values; writers take ``buffer``, or ``codes`` and ``dictionary``, and need no object per row.

Invariant: whoever makes a column gives its buffers away; nothing writes to them again.
"""

from __future__ import annotations

import abc
import itertools
import sys
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, Self, TypeAlias, TypeVar, cast, overload

from flowjoin._model.address_text import ipv4_text, ipv6_text, mac_text
from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, InformationElement, Value

__all__ = [
    "NUMBER_FORMATS",
    "CodedValues",
    "Column",
    "DictionaryColumn",
    "NumberColumn",
    "PackedColumn",
    "factorise",
    "is_packed",
]

Buffer: TypeAlias = "bytes | bytearray | memoryview | array[int] | array[float]"

# The struct module's letters, which are also those of memoryview.cast and, but for '?', of array.
NUMBER_FORMATS: Final = {
    DataType.UNSIGNED8: "B",
    DataType.UNSIGNED16: "H",
    DataType.UNSIGNED32: "I",
    DataType.UNSIGNED64: "Q",
    DataType.SIGNED8: "b",
    DataType.SIGNED16: "h",
    DataType.SIGNED32: "i",
    DataType.SIGNED64: "q",
    DataType.FLOAT32: "f",
    DataType.FLOAT64: "d",
    DataType.BOOLEAN: "?",
    DataType.DATE_TIME_SECONDS: "I",
    DataType.DATE_TIME_MILLISECONDS: "Q",
    DataType.DATE_TIME_MICROSECONDS: "Q",
    DataType.DATE_TIME_NANOSECONDS: "Q",
}

_TEXTS: Final[dict[DataType, Callable[[bytes], str]]] = {
    DataType.IPV4_ADDRESS: ipv4_text,
    DataType.IPV6_ADDRESS: ipv6_text,
    DataType.MAC_ADDRESS: mac_text,
}


def is_packed(element: InformationElement) -> bool:
    """Whether the element's values stand side by side in a PackedColumn."""
    if element.data_type is DataType.OCTET_ARRAY:
        return element.length != VARIABLE_LENGTH
    return element.data_type in _TEXTS


class _Values(Sequence[Value]):
    """What all forms share, on top of ``tolist`` and ``take``."""

    __slots__ = ()

    @abc.abstractmethod
    def tolist(self) -> list[Value]:
        """All values, in one pass."""

    @abc.abstractmethod
    def take(self, indices: Sequence[int]) -> Self:
        """The rows of these numbers, each from 0 up to the length."""

    @abc.abstractmethod
    def distinct(self) -> tuple[memoryview, tuple[Value, ...]]:
        """Codes (format ``I``) into distinct values, each of which occurs."""

    @abc.abstractmethod
    def _value(self, index: int) -> Value: ...

    @abc.abstractmethod
    def _slice(self, start: int, stop: int) -> Self: ...

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Value | Self:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._slice(start, max(start, stop)) if step == 1 else self.take(range(start, stop, step))
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self._value(index % len(self))

    def __iter__(self) -> Iterator[Value]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | tuple):
            return self.tolist() == list(other)
        if isinstance(other, _Values):
            return self.tolist() == other.tolist()
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} values>"


class CodedValues(_Values):
    """Values as codes into a tuple: what ``map_distinct`` gives.

    Attributes:
        codes: one number per row, read-only, format ``I``.
        dictionary: what the codes stand for; unlike a DictionaryColumn's it may repeat itself.
    """

    __slots__ = ("codes", "dictionary")

    def __init__(self, codes: Buffer, dictionary: Sequence[Value]) -> None:
        self.codes = _view(codes, "I")
        self.dictionary = tuple(dictionary)

    def __len__(self) -> int:
        return len(self.codes)

    def tolist(self) -> list[Value]:
        return list(map(self.dictionary.__getitem__, self.codes.tolist()))

    def map(self, function: Callable[[Any], Value]) -> CodedValues:
        """What the function makes of each row's value, called once per code."""
        return CodedValues(self.codes, list(map(function, self.dictionary)))

    def take(self, indices: Sequence[int]) -> Self:
        return self._with_codes(_picked(self.codes, indices))

    def distinct(self) -> tuple[memoryview, tuple[Value, ...]]:
        codes, values = factorise(self.tolist())
        return _view(codes, "I"), values

    def _value(self, index: int) -> Value:
        return self.dictionary[self.codes[index]]

    def _slice(self, start: int, stop: int) -> Self:
        return self._with_codes(self.codes[start:stop])

    def _with_codes(self, codes: Buffer) -> Self:
        return type(self)(codes, self.dictionary)


class _ElementColumn(_Values):
    __slots__ = ()
    element: InformationElement  # each form has the slot: two bases with slots cannot be joined

    @property
    @abc.abstractmethod
    def octets(self) -> int:
        """Octets held, estimated."""

    @abc.abstractmethod
    def renamed(self, element: InformationElement) -> Self:
        """The same values under another element of equal data type and length."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.element.name}: {len(self)} values>"


class NumberColumn(_ElementColumn):
    """Numbers, booleans and times.

    Attributes:
        buffer: the values, read-only, in the format that ``NUMBER_FORMATS`` has for the data type.
    """

    __slots__ = ("buffer", "element")

    def __init__(self, element: InformationElement, buffer: Buffer) -> None:
        self.element = element
        self.buffer = _view(buffer, NUMBER_FORMATS[element.data_type])

    def __len__(self) -> int:
        return len(self.buffer)

    def tolist(self) -> list[Value]:
        return cast("list[Value]", self.buffer.tolist())

    def take(self, indices: Sequence[int]) -> Self:
        return type(self)(self.element, _picked(self.buffer, indices))

    def distinct(self) -> tuple[memoryview, tuple[Value, ...]]:
        codes, values = factorise(self.buffer.tolist())
        return _view(codes, "I"), values

    @property
    def octets(self) -> int:
        return self.buffer.nbytes

    def renamed(self, element: InformationElement) -> Self:
        return type(self)(element, self.buffer)

    def __eq__(self, other: object) -> bool:
        # Octet by octet: NaN equals itself, and there is no object per value.
        if isinstance(other, NumberColumn) and other.buffer.format == self.buffer.format:
            return _same_octets(self.buffer, other.buffer)
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # as above

    def _value(self, index: int) -> Value:
        value: Value = self.buffer[index]
        return value

    def _slice(self, start: int, stop: int) -> Self:
        return type(self)(self.element, self.buffer[start:stop])


class PackedColumn(_ElementColumn):
    """Values of a fixed number of octets.

    Attributes:
        buffer: the values side by side in network byte order, read-only, format ``B``.
        width: octets of each.
    """

    __slots__ = ("_distinct", "buffer", "element", "width")

    def __init__(self, element: InformationElement, buffer: Buffer) -> None:
        self.element = element
        self.buffer = _view(buffer, "B")
        self.width = element.length
        self._distinct: tuple[memoryview, tuple[Value, ...]] | None = None
        assert len(self.buffer) % self.width == 0, "whole values"

    def __len__(self) -> int:
        return len(self.buffer) // self.width

    @property
    def codes(self) -> memoryview:
        """Codes into ``dictionary``, format ``I``."""
        return self.distinct()[0]

    @property
    def dictionary(self) -> tuple[Value, ...]:
        """The distinct values: addresses as text."""
        return self.distinct()[1]

    def tolist(self) -> list[Value]:
        codes, dictionary = self.distinct()
        return list(map(dictionary.__getitem__, codes.tolist()))

    def take(self, indices: Sequence[int]) -> Self:
        width, octets = self.width, self.buffer.tobytes()
        return type(self)(self.element, b"".join([octets[i * width : i * width + width] for i in indices]))

    def distinct(self) -> tuple[memoryview, tuple[Value, ...]]:
        # An address is turned to text once per distinct value and then remembered, because exporters
        # of one batch ask again. Two threads at once do the same work twice and agree.
        if self._distinct is None:
            name = _TEXTS.get(self.element.data_type, bytes)
            if self.width == 4 and self.buffer:
                # Numbers hash faster than octets do, and most addresses are IPv4.
                codes, numbers = factorise(self.buffer.cast("I").tolist())
                values = tuple(number.to_bytes(4, sys.byteorder) for number in numbers)
            else:
                width, octets = self.width, self.buffer.tobytes()
                codes, values = factorise([octets[at : at + width] for at in range(0, len(octets), width)])
            self._distinct = _view(codes, "I"), tuple(map(name, values))
        return self._distinct

    @property
    def octets(self) -> int:
        return self.buffer.nbytes

    def renamed(self, element: InformationElement) -> Self:
        return type(self)(element, self.buffer)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedColumn) and other.element.data_type is self.element.data_type:
            return self.width == other.width and _same_octets(self.buffer, other.buffer)
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # as above

    def _value(self, index: int) -> Value:
        packed = self.buffer[index * self.width : (index + 1) * self.width].tobytes()
        return _TEXTS.get(self.element.data_type, bytes)(packed)

    def _slice(self, start: int, stop: int) -> Self:
        return type(self)(self.element, self.buffer[start * self.width : stop * self.width])


class DictionaryColumn(CodedValues, _ElementColumn):
    """Strings and octets of variable length.

    Attributes:
        codes: one number per row, below the dictionary's length; read-only, format ``I``.
        dictionary: distinct values; after a slice some may be in no row.
    """

    __slots__ = ("element",)

    def __init__(self, element: InformationElement, codes: Buffer, dictionary: Sequence[Value]) -> None:
        super().__init__(codes, dictionary)
        self.element = element

    def distinct(self) -> tuple[memoryview, tuple[Value, ...]]:
        given = self.codes.tolist()
        used = sorted(set(given))
        if len(used) == len(self.dictionary):
            return self.codes, self.dictionary
        new = dict(zip(used, range(len(used)), strict=True))
        codes = array("I", map(new.__getitem__, given))
        return _view(codes, "I"), tuple(map(self.dictionary.__getitem__, used))

    @property
    def octets(self) -> int:
        return self.codes.nbytes + sum(map(len, self.dictionary))  # type: ignore[arg-type]  # str or bytes here

    def renamed(self, element: InformationElement) -> Self:
        return type(self)(element, self.codes, self.dictionary)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DictionaryColumn) and self.dictionary == other.dictionary:
            return _same_octets(self.codes, other.codes)
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # as above

    def _with_codes(self, codes: Buffer) -> Self:
        column = type(self)(self.element, codes, self.dictionary)
        # A few rows of a large batch must not hold all of its strings.
        return type(self)(self.element, *column.distinct()) if len(column) < len(self.dictionary) else column


Column: TypeAlias = NumberColumn | PackedColumn | DictionaryColumn


def _view(buffer: Buffer, form: str) -> memoryview:
    view = memoryview(buffer)
    if view.format != form:
        # An empty view cannot be cast.
        octets = view.cast("B") if view.nbytes else memoryview(bytes(8))
        view = octets.cast(form)[: view.nbytes]  # type: ignore[call-overload]  # a format known only when running
    return view.toreadonly()


def _same_octets(one: memoryview, other: memoryview) -> bool:
    return _view(one, "B") == _view(other, "B")


def _picked(view: memoryview, indices: Sequence[int]) -> Buffer:
    form = view.format
    if form == "?":
        return bytes(map(view.tobytes().__getitem__, indices))
    # To copy the octets and index an array is faster than to index the memoryview.
    values = array(form)
    values.frombytes(view.tobytes())
    return array(form, map(values.__getitem__, indices))


T = TypeVar("T", bound=Hashable)


def factorise(values: Sequence[T]) -> tuple[array[int], tuple[T, ...]]:
    """Codes into the distinct values, which stand in order of their first row."""
    index = dict(zip(dict.fromkeys(values), itertools.count()))
    return array("I", map(index.__getitem__, values)), tuple(index)
