"""Flows as CSV, with the columns of Antrea's S3 uploader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from flowjoin.api import AddressFamily, DataType, FlowBatch
from flowjoin_s3._columns import (
    ADDRESSES,
    CLUSTER_UUID,
    LABELS,
    TICKS_PER_SECOND,
    TIME_INSERTED,
    DistinctTexts,
    iso_time,
    plain_text,
)

__all__ = ["CsvWriter", "quote_label", "quote_nothing", "quote_rfc4180"]

_NEEDS_QUOTES: Final = re.compile('[",\r\n]')
_LINE_BREAKS: Final = str.maketrans("\r\n", "  ")
_UNSET: Final = {AddressFamily.IPV4: "0.0.0.0", AddressFamily.IPV6: "::"}  # noqa: S104 - nothing is bound
_MAY_BE_UNSET: Final = frozenset({"destinationClusterIP", "destinationServiceIP"})


def quote_rfc4180(text: str) -> str:
    """The field as RFC 4180 section 2 wants it: quoted where it holds a comma, a quote or a line break."""
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def quote_nothing(text: str) -> str:
    """The field as it is, but for line breaks: one flow stays one line whatever an exporter sends."""
    return text.translate(_LINE_BREAKS)


def quote_label(text: str) -> str:
    """Labels in single quotes, also where there are none; Antrea escapes nothing inside."""
    return f"'{text.translate(_LINE_BREAKS)}'"


class CsvWriter:
    """Renders the rows of one object, piece by piece, as lines of CSV."""

    rows: Final = 256  # that are rendered at a time: about 4 ms

    def __init__(
        self,
        columns: Sequence[str],
        *,
        is_quoted: bool,
        iso_times: bool,
        unset_addresses_empty: bool,
        cluster_uuid: str,
        header: bool,
    ) -> None:
        """Remember the settings.

        Args:
            is_quoted: as RFC 4180 says; else as Antrea does.
            unset_addresses_empty: an unset address of cluster or Service is empty instead of all zeroes.
        """
        self._columns = tuple(columns)
        self._quote = quote_rfc4180 if is_quoted else quote_nothing
        self._quote_label = quote_rfc4180 if is_quoted else quote_label
        self._iso_times = iso_times
        self._unset_addresses_empty = unset_addresses_empty
        self._cluster_uuid = cluster_uuid
        self._line = ",".join(["%s"] * len(self._columns)) + "\n"
        self._texts: dict[str, DistinctTexts] = {}
        self.header = (",".join(self._columns) + "\n").encode() if header else b""

    def render(self, part: FlowBatch, inserted_at: int) -> bytes:
        """Whole lines; ``inserted_at`` are the seconds of the column timeInserted."""
        columns = [self._fields(part, name, inserted_at) for name in self._columns]
        # zip: what is the same in each line repeats for ever; %s: a number becomes text where it stands
        return "".join(map(self._line.__mod__, zip(*columns, strict=False))).encode()

    def _fields(self, part: FlowBatch, name: str, inserted_at: int) -> Iterable[object]:
        side = ADDRESSES.get(name)
        if side is not None:
            addresses = part.address_text(side)  # type: ignore[arg-type]  # ADDRESSES holds its literals
            if self._unset_addresses_empty and name in _MAY_BE_UNSET:
                unset = _UNSET[part.schema.family]
                return ["" if address == unset else address for address in addresses]
            return addresses
        if name == CLUSTER_UUID:
            return repeat(self._cluster_uuid)
        if name == TIME_INSERTED:
            return repeat(iso_time(inserted_at, 1) if self._iso_times else str(inserted_at))
        data_type = part.schema.registry.by_name(name).data_type
        if data_type is DataType.STRING or data_type.default == b"":
            if name not in self._texts:
                quote, text = (
                    self._quote_label if name in LABELS else self._quote,
                    plain_text(data_type, iso_times=False),
                )
                self._texts[name] = DistinctTexts(lambda value: quote(text(value)))
            return self._texts[name].of(part.column(name))
        if data_type is DataType.BOOLEAN or (self._iso_times and data_type in TICKS_PER_SECOND):
            return part.map_distinct(name, plain_text(data_type, iso_times=True)).tolist()
        return part.column(name).tolist()
