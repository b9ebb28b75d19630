"""Flows as CSV, with the columns of Antrea's flow log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowjoin.api import DataType, FlowBatch
from flowjoin.api.writers import (
    Chosen,
    Constant,
    Decimal,
    Dotted,
    NumberColumn,
    PackedColumn,
    Piece,
    TextStyle,
    chosen_of,
    rows_per_slice,
    texts_of,
)
from flowjoin_log._columns import ADDRESSES, TIMES, cut_into_slices, plain_text, written_lines
from flowjoin_log._pretty import PRETTY

__all__ = ["CsvWriter", "quote_nothing", "quote_rfc4180"]

_ROWS: Final = 256  # in a slice, written without compiled code: about 2 ms
_NEEDS_QUOTES: Final = re.compile('[",\r\n]')
_LINE_BREAKS: Final = str.maketrans("\r\n", "  ")
_UNSET: Final = "::"
_IPV4_OCTETS: Final = 4
_MAY_BE_UNSET: Final = frozenset({"destinationClusterIP", "destinationServiceIP"})
_TEXTS: Final = frozenset(
    {DataType.STRING, DataType.OCTET_ARRAY, DataType.BOOLEAN, DataType.FLOAT32, DataType.FLOAT64, *TIMES}
)


def quote_rfc4180(text: str) -> str:
    """The field as RFC 4180 section 2 wants it: quoted where it holds a comma, a quote or a line break."""
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def quote_nothing(text: str) -> str:
    """The field as it is, but for line breaks: one flow stays one line whatever an exporter sends."""
    return text.translate(_LINE_BREAKS)


class CsvWriter:
    """Renders batches as lines of CSV."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        quote: Callable[[str], str],
        pretty_print: bool,
        iso_times: bool,
        unset_addresses_empty: bool,
    ) -> None:
        """Remember the settings.

        Args:
            quote: makes a field of a text.
            unset_addresses_empty: an unset address of cluster or Service is empty instead of all zeroes.
        """
        self._columns = tuple(columns)
        self._quote = quote
        self._style = TextStyle.RFC4180 if quote is quote_rfc4180 else TextStyle.ONE_LINE
        self._pretty_print = pretty_print
        self._iso_times = iso_times
        self._unset_addresses_empty = unset_addresses_empty

    @property
    def header(self) -> bytes:
        """The line of column names."""
        return (",".join(self._columns) + "\n").encode()

    def render(self, batch: FlowBatch) -> Iterable[bytes]:
        """Whole lines, a slice of the batch at a time."""
        for part in cut_into_slices(batch, rows_per_slice(_ROWS)):
            pieces = [self._piece(part, name, b"," if at else b"") for at, name in enumerate(self._columns)]
            yield from written_lines([*pieces, Constant(b"\n")], len(part), at_once=_ROWS)

    def _piece(self, batch: FlowBatch, name: str, before: bytes) -> Piece:
        """One field of each line, with what stands before it."""
        side = ADDRESSES.get(name)
        if side is not None:
            return self._address(batch.address_text(side), name, before)  # type: ignore[arg-type]  # ADDRESSES holds its literals
        if self._pretty_print and name in PRETTY:
            return chosen_of(batch, name, PRETTY[name], prefix=before)
        element = batch.schema.registry.by_name(name)
        column = batch.column(name)
        if isinstance(column, NumberColumn) and (
            element.data_type not in _TEXTS or (element.data_type in TIMES and not self._iso_times)
        ):
            return Decimal(column, before)
        if element.data_type is DataType.STRING:
            return texts_of(batch, name, self._style, prefix=before)
        text, quote = plain_text(element, iso_times=self._iso_times), self._quote
        return chosen_of(batch, name, lambda value: quote(text(value)), prefix=before)

    def _address(self, addresses: object, name: str, before: bytes) -> Piece:
        is_empty_unset = self._unset_addresses_empty and name in _MAY_BE_UNSET
        assert isinstance(addresses, PackedColumn), "addresses have a fixed number of octets"
        if addresses.width == _IPV4_OCTETS:
            return Dotted(addresses, before, unset=before if is_empty_unset else None)
        codes, texts = addresses.distinct()
        unset = _UNSET if is_empty_unset else None
        return Chosen(codes, [before if text == unset else before + str(text).encode() for text in texts])
