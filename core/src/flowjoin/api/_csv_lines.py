"""Flows as CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from flowjoin._kernel.row_writing import (
    Chosen,
    Constant,
    Decimal,
    Dotted,
    Piece,
    TextStyle,
    chosen_of,
    rows_per_slice,
    texts_of,
)
from flowjoin._model.columns import NumberColumn, PackedColumn
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.information_element import DataType
from flowjoin.api._line_slices import TIMES, cut_into_slices, plain_text, write_in_chunks

__all__ = ["ADDRESS_COLUMNS", "CsvLines"]

# One column for both address families, and what it is to ``FlowBatch.address_text``.
ADDRESS_COLUMNS: Final = {
    "sourceIP": "source",
    "destinationIP": "destination",
    "destinationClusterIP": "destinationCluster",
    "destinationServiceIP": "destinationService",
}

_ROWS: Final = 256  # in a slice, written without compiled code: about 2 ms
_NEEDS_QUOTES: Final = re.compile('[",\r\n]')
_LINE_BREAKS: Final = str.maketrans("\r\n", "  ")
_UNSET: Final = "::"
_IPV4_OCTETS: Final = 4
_MAY_BE_UNSET: Final = frozenset({"destinationClusterIP", "destinationServiceIP"})
_TEXTS: Final = frozenset(
    {DataType.STRING, DataType.OCTET_ARRAY, DataType.BOOLEAN, DataType.FLOAT32, DataType.FLOAT64, *TIMES}
)


class CsvLines:
    """Renders batches as lines of CSV, each ended by LF.

    Invariant: one flow is one line (of RFC 4180's grammar where fields are quoted), whatever its sender wrote.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        is_quoted: bool,
        iso_times: bool = False,
        unset_addresses_empty: bool = True,
        words: Mapping[str, Callable[[Any], str]] | None = None,
        single_quoted: Collection[str] = (),
        constants: Mapping[str, str] | None = None,
        most_lines: int | None = None,
    ) -> None:
        """Remember the settings.

        Args:
            columns: names of Information Elements, of ``ADDRESS_COLUMNS`` and of ``constants``.
            is_quoted: fields that need it are quoted as RFC 4180 section 2 says; else line breaks become spaces, and
                that is all.
            iso_times: times as ISO 8601; else numbers in their unit.
            unset_addresses_empty: an unset address of cluster or Service is empty instead of all zeroes.
            words: what is written for the values of a column, instead of themselves; never quoted.
            single_quoted: string columns that stand between single quotes, empty ones too, where ``is_quoted`` is off.
            constants: columns that are the same in each line.
            most_lines: that ``render`` gives at once; None: as many as it likes.
        """
        self._columns = tuple(columns)
        self._is_quoted = is_quoted
        self._style = TextStyle.RFC4180 if is_quoted else TextStyle.ONE_LINE
        self._iso_times = iso_times
        self._unset_addresses_empty = unset_addresses_empty
        self._words = dict(words or {})
        self._single_quoted = frozenset() if is_quoted else frozenset(single_quoted)
        self._most_lines = most_lines
        self._constants = {name: self._field(text).encode() for name, text in (constants or {}).items()}

    @property
    def header(self) -> bytes:
        """The line of column names."""
        return (",".join(self._columns) + "\n").encode()

    def render(self, batch: FlowBatch) -> Iterable[bytes]:
        """Whole lines, a slice of the batch at a time: between two there is time for others.

        Raises:
            KeyError: the batch's registry does not have a column's element.
        """
        for part in cut_into_slices(batch, rows_per_slice(_ROWS)):
            pieces: list[Piece] = []
            for at, name in enumerate(self._columns):
                pieces += self._pieces(part, name, b"," if at else b"")
            pieces.append(Constant(b"\n"))
            yield from write_in_chunks(pieces, len(part), at_once=_ROWS, most_lines=self._most_lines)

    def _pieces(self, batch: FlowBatch, name: str, before: bytes) -> Sequence[Piece]:
        """One field of each line, with what stands before it."""
        if name in self._constants:
            return [Constant(before + self._constants[name])]
        if name in self._single_quoted:
            return [texts_of(batch, name, self._style, prefix=before + b"'"), Constant(b"'")]
        return [self._piece(batch, name, before)]

    def _piece(self, batch: FlowBatch, name: str, before: bytes) -> Piece:
        role = ADDRESS_COLUMNS.get(name)
        if role is not None:
            return self._address(batch.address_text(role), name, before)  # type: ignore[arg-type]  # its literals
        if name in self._words:
            return chosen_of(batch, name, self._words[name], prefix=before)
        element = batch.schema.registry.by_name(name)
        column = batch.column(name)
        if isinstance(column, NumberColumn) and (
            element.data_type not in _TEXTS or (element.data_type in TIMES and not self._iso_times)
        ):
            return Decimal(column, before)
        if element.data_type is DataType.STRING:
            return texts_of(batch, name, self._style, prefix=before)
        text = plain_text(element, iso_times=self._iso_times)
        return chosen_of(batch, name, lambda value: self._field(text(value)), prefix=before)

    def _address(self, addresses: object, name: str, before: bytes) -> Piece:
        is_empty_unset = self._unset_addresses_empty and name in _MAY_BE_UNSET
        assert isinstance(addresses, PackedColumn), "addresses have a fixed number of octets"
        if addresses.width == _IPV4_OCTETS:
            return Dotted(addresses, before, unset=before if is_empty_unset else None)
        codes, texts = addresses.distinct()
        unset = _UNSET if is_empty_unset else None
        return Chosen(codes, [before if text == unset else before + str(text).encode() for text in texts])

    def _field(self, text: str) -> str:
        if not self._is_quoted:
            return text.translate(_LINE_BREAKS)
        return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text
