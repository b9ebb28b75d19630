"""A batch as one block of ClickHouse's Native format, column by column; pure.

Strategy: numbers lie in a batch as ClickHouse wants them, so their buffers are sent as they are; a string is encoded
once per distinct value and then picked by code. There is no tuple per row and no object per number.

Invariant: the pieces that ``encode`` yields, joined, are one block of ``len(batch)`` rows.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, Literal, cast

from flowjoin.api import AddressFamily, DataType, FlowBatch
from flowjoin_clickhouse._columns import ADDRESSES, ANTREA_TYPES, type_of

__all__ = ["Buffer", "column_type", "encode"]

Buffer = bytes | memoryview

_UNSET: Final = {AddressFamily.IPV4: "0.0.0.0", AddressFamily.IPV6: "::"}  # noqa: S104 - nothing is bound
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"
_WIDTHS: Final = {"UInt8": "B", "UInt16": "H", "UInt32": "I", "UInt64": "Q"}


def column_type(batch: FlowBatch, name: str) -> str:
    """The type in which the column is sent; the server converts where the table has another."""
    return ANTREA_TYPES.get(name) or type_of(batch.schema.registry.by_name(name))


def encode(
    batch: FlowBatch, columns: Sequence[str], *, cluster_uuid: str, unset_addresses_empty: bool
) -> Iterator[list[Buffer]]:
    """The block, a column at a time, so that whoever iterates may let others run in between.

    Args:
        columns: names of Antrea's columns or of registered elements.
        unset_addresses_empty: an unset cluster address is empty instead of all zeroes.
    """
    yield [_varint(len(columns)), _varint(len(batch))]
    for name in columns:
        kind = column_type(batch, name)
        head = _text(name) + _text(kind)
        if name == "clusterUUID":
            data: Buffer = _text(cluster_uuid) * len(batch)
        elif name in ADDRESSES:
            unset = _UNSET[batch.schema.family] if unset_addresses_empty and name == "destinationClusterIP" else None
            data = _addresses(batch, ADDRESSES[name], unset)
        else:
            data = _values(batch, name, kind)
        yield [head, data]


def _addresses(batch: FlowBatch, role: str, unset: str | None) -> bytes:
    column = batch.address_text(cast("Literal['source', 'destination', 'destinationCluster']", role))
    codes, dictionary = column.distinct()  # type: ignore[attr-defined]  # a Column, which is a sequence of texts
    return _picked(codes, [_text("" if address == unset else address) for address in dictionary])


def _values(batch: FlowBatch, name: str, kind: str) -> Buffer:
    column = batch.column(name)
    data_type = column.element.data_type
    if kind == "String":
        codes, dictionary = column.distinct()
        return _picked(
            codes, [_octets(value) if isinstance(value, bytes) else _text(str(value)) for value in dictionary]
        )
    buffer: memoryview = column.buffer  # type: ignore[union-attr]  # numbers and packed values have one
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
    return b"".join(map(texts.__getitem__, codes.tolist()))


def _text(text: str) -> bytes:
    return _octets(text.encode("utf-8", "replace"))


def _octets(octets: bytes) -> bytes:
    return _varint(len(octets)) + octets


def _varint(number: int) -> bytes:
    """LEB128, as ClickHouse writes lengths."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)
