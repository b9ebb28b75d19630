"""Flows as CSV, with the columns of Antrea's flow log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowjoin.api import AddressFamily, DataType, FlowBatch
from flowjoin_log._columns import ADDRESSES, TIMES, cut_into_slices, plain_text
from flowjoin_log._pretty import PRETTY

__all__ = ["CsvWriter", "quote_nothing", "quote_rfc4180"]

_ROWS: Final = 256  # in a slice: about 2 ms
_NEEDS_QUOTES: Final = re.compile('[",\r\n]')
_LINE_BREAKS: Final = str.maketrans("\r\n", "  ")
_UNSET: Final = {AddressFamily.IPV4: "0.0.0.0", AddressFamily.IPV6: "::"}  # noqa: S104 - nothing is bound
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
        self._pretty_print = pretty_print
        self._iso_times = iso_times
        self._unset_addresses_empty = unset_addresses_empty

    @property
    def header(self) -> bytes:
        """The line of column names."""
        return (",".join(self._columns) + "\n").encode()

    def render(self, batch: FlowBatch) -> Iterable[bytes]:
        """Whole lines, a slice of the batch at a time."""
        for part in cut_into_slices(batch, _ROWS):
            columns = [self._fields(part, name) for name in self._columns]
            lines = map(",".join, zip(*columns, strict=True))
            yield ("\n".join(lines) + "\n").encode()

    def _fields(self, batch: FlowBatch, name: str) -> Iterable[str]:
        side = ADDRESSES.get(name)
        if side is not None:
            addresses = batch.address_text(side)  # type: ignore[arg-type]  # ADDRESSES holds its literals
            if self._unset_addresses_empty and name in _MAY_BE_UNSET:
                unset = _UNSET[batch.schema.family]
                return ["" if address == unset else address for address in addresses]
            return addresses
        if self._pretty_print and name in PRETTY:
            return batch.map_distinct(name, PRETTY[name])  # type: ignore[return-value]  # names are str
        element = batch.schema.registry.by_name(name)
        if element.data_type in _TEXTS or isinstance(element.default, bytes):
            text, quote = plain_text(element, iso_times=self._iso_times), self._quote
            return batch.map_distinct(name, lambda value: quote(text(value)))  # type: ignore[return-value]
        return map(str, batch.column(name))
