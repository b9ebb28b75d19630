"""A batch as one block of ClickHouse's Native format, column by column; pure.

Strategy: numbers lie in a batch as ClickHouse wants them, so their buffers are sent as they are; a string is encoded
once per distinct value, and the core's writers pick it by code and write IPv4 addresses. There is no tuple per row
and no object per number.

Invariant: the pieces that ``encode`` yields, joined, are one block of ``len(batch)`` rows.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, Protocol, TypeAlias, cast

from flowjoin.api import AddressFamily, DataType, FlowBatch, InformationElement
from flowjoin.api.writers import Chosen, Dotted, PackedColumn, rows_per_slice, write_rows
from flowjoin_clickhouse._columns import ADDRESSES, ANTREA_TYPES, type_of

__all__ = ["Buffer", "column_type", "encode"]

Buffer: TypeAlias = bytes | memoryview


class Column(Protocol):
    """What is read of a batch's column; only the forms that have a ``buffer`` are asked for it."""

    @property
    def element(self) -> InformationElement: ...
    @property
    def buffer(self) -> memoryview: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> Column: ...
    def distinct(self) -> tuple[memoryview, tuple[object, ...]]: ...


_UNSET: Final = {AddressFamily.IPV4: "0.0.0.0", AddressFamily.IPV6: "::"}  # noqa: S104 - nothing is bound
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"
_SLICE: Final = 8192  # rows; the slowest column, of addresses that are all different, takes 20 ms for them
_LENGTHS: Final = [bytes((length,)) for length in range(128)]
_WIDTHS: Final = {"UInt8": "B", "UInt16": "H", "UInt32": "I", "UInt64": "Q"}


def column_type(batch: FlowBatch, name: str) -> str:
    """The type in which the column is sent; the server converts where the table has another."""
    return ANTREA_TYPES.get(name) or type_of(batch.schema.registry.by_name(name))


def encode(
    batch: FlowBatch, columns: Sequence[str], *, cluster_uuid: str, unset_addresses_empty: bool
) -> Iterator[list[Buffer]]:
    """The block, a few milliseconds' work at a time, so that whoever iterates may let others run in between.

    Args:
        columns: names of Antrea's columns or of registered elements.
        unset_addresses_empty: an unset cluster address is empty instead of all zeroes.
    """
    head: list[Buffer] = [_varint(len(columns)), _varint(len(batch))]
    for name in columns:
        kind = column_type(batch, name)
        head.append(_text(name) + _text(kind))
        if name == "clusterUUID":
            parts: Iterable[Buffer] = [_text(cluster_uuid) * len(batch)]
        elif name in ADDRESSES:
            unset = _UNSET[batch.schema.family] if unset_addresses_empty and name == "destinationClusterIP" else None
            parts = _addresses(batch, name, unset)
        elif kind == "String":
            parts = _texts(cast("Column", batch.column(name)))
        else:
            parts = [_numbers(cast("Column", batch.column(name)), kind)]
        for part in parts:
            yield [*head, part]
            head = []


def _addresses(batch: FlowBatch, name: str, unset: str | None) -> Iterator[Buffer]:
    role = cast("Literal['source', 'destination', 'destinationCluster']", ADDRESSES[name])
    return (_address_texts(part, unset) for part in _slices(cast("Column", batch.address_text(role))))


def _texts(column: Column) -> Iterator[Buffer]:
    for part in _slices(column):
        codes, dictionary = part.distinct()
        yield _picked(codes, list(map(_any_text, dictionary)))


def _slices(column: Column) -> Iterator[Column]:
    size = rows_per_slice(_SLICE)
    return (column[start : start + size] for start in range(0, len(column), size))


def _address_texts(column: Column, unset: str | None) -> bytes:
    if isinstance(column, PackedColumn) and column.element.data_type is DataType.IPV4_ADDRESS:
        # Most addresses are these, and each is new: no text of them is made on the way to octets.
        piece = Dotted(column, unset=None if unset is None else _octets(b""), counted=True)
        return write_rows([piece], len(column))[0]
    codes, dictionary = column.distinct()
    return _picked(codes, [_text("" if address == unset else str(address)) for address in dictionary])


def _numbers(column: Column, kind: str) -> Buffer:
    buffer, data_type = column.buffer, column.element.data_type
    if data_type is DataType.IPV6_ADDRESS:
        return buffer  # network byte order, in ClickHouse too
    if data_type is DataType.IPV4_ADDRESS:
        return _little_endian(buffer.cast("I"), is_big_endian=True)
    if (wanted := _WIDTHS.get(kind)) and wanted != buffer.format:
        # an element that someone defined with another width than Antrea's column
        mask = (1 << 8 * array(wanted).itemsize) - 1
        buffer = memoryview(array(wanted, [int(value) & mask for value in buffer]))
    return _little_endian(buffer, is_big_endian=_IS_BIG_ENDIAN)


def _little_endian(buffer: memoryview, *, is_big_endian: bool) -> Buffer:
    if not is_big_endian or buffer.itemsize == 1:
        return buffer
    values = array("BHIQ"[(1, 2, 4, 8).index(buffer.itemsize)])
    values.frombytes(buffer.tobytes())
    values.byteswap()
    return values.tobytes()


def _picked(codes: memoryview, texts: Sequence[bytes]) -> bytes:
    if len(texts) == 1:
        return texts[0] * len(codes)
    return write_rows([Chosen(codes, texts)], len(codes))[0]


def _any_text(value: object) -> bytes:
    return _octets(value) if isinstance(value, bytes) else _text(str(value))


def _text(text: str) -> bytes:
    return _octets(text.encode("utf-8", "replace"))


def _octets(octets: bytes) -> bytes:
    if len(octets) < 128:
        return _LENGTHS[len(octets)] + octets
    return _varint(len(octets)) + octets


def _varint(number: int) -> bytes:
    """LEB128, as ClickHouse writes lengths."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)
