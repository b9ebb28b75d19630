"""A segment's octets: an IPFIX File (RFC 5655) that any collector's tools can read; pure.

A segment begins with one Message of options: the mark by which a spool file is known wherever it is copied to. Each
piece of a batch is one or more Messages; a schema's Template comes in a Message before the first piece that needs it.
Rows that no Data Record can hold (a string of 100 KiB, a time in the year 9000) go as octets, in options records.

Invariant: ``decode_piece`` gives back the rows that ``encode_piece`` took, or raises ``DamagedError``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from flowjoin._model.columns import NUMBER_FORMATS, Column, DictionaryColumn, NumberColumn, PackedColumn, is_packed
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import FlowSchema
from flowjoin._model.information_element import (
    DataType,
    ElementId,
    EnterpriseNumber,
    InformationElement,
)
from flowjoin._model.template import FieldSpecifier, Template, TemplateId
from flowjoin._pipeline.spool.row_layout import DamagedError, RowLayout, UnfitError
from flowjoin.wire.encoder import encode_data_set, encode_message, encode_template_set

__all__ = [
    "FIRST_SCHEMA_ID",
    "decode_piece",
    "encode_opening",
    "encode_piece",
    "encode_schema",
    "is_spool_file",
    "stretches",
]

FIRST_SCHEMA_ID: Final = 258
_MARK_ID: Final = 256
_OCTETS_ID: Final = 257
_VERSION: Final = 1
_ENTERPRISE: Final = EnterpriseNumber(32473)  # RFC 5612: for those without a number of their own
_CHUNK: Final = 60_000
_STRETCH: Final = 128 * 1024
_MESSAGE_HEADER: Final = struct.Struct(">HHIII")
_SET_HEADER: Final = struct.Struct(">HH")
_HEADERS: Final = _MESSAGE_HEADER.size + _SET_HEADER.size
_COUNT: Final = struct.Struct("<I")


def _own(name: str, element_id: int, data_type: DataType) -> InformationElement:
    return InformationElement(
        name=name, element_id=ElementId(element_id), enterprise_number=_ENTERPRISE, data_type=data_type
    )


_SPOOL_VERSION: Final = _own("flowjoinSpoolVersion", 32701, DataType.UNSIGNED8)
_SPOOL_LANE: Final = _own("flowjoinSpoolLane", 32702, DataType.STRING)
_SPOOL_INSTANCE: Final = _own("flowjoinSpoolInstance", 32703, DataType.STRING)
_SPOOL_PART: Final = _own("flowjoinSpoolPart", 32704, DataType.UNSIGNED32)
_SPOOL_OCTETS: Final = _own("flowjoinSpoolOctets", 32705, DataType.OCTET_ARRAY)


def _options(template_id: int, *elements: InformationElement) -> Template:
    fields = tuple(FieldSpecifier(element, element.length) for element in elements)
    return Template(
        version=10, template_id=TemplateId(template_id), fields=fields, is_options=True, scope_field_count=1
    )


_MARK: Final = _options(_MARK_ID, _SPOOL_VERSION, _SPOOL_LANE, _SPOOL_INSTANCE)
_OCTETS: Final = _options(_OCTETS_ID, _SPOOL_PART, _SPOOL_OCTETS)
# Set id, then (behind its length) Template id, and behind two counts the scope field: the same in every segment.
_MARK_BEGINS: Final = struct.pack(">HHI", 0x8000 | _SPOOL_VERSION.element_id, 1, _ENTERPRISE)


def is_spool_file(start: bytes | memoryview) -> bool:
    """Whether an IPFIX File that begins so (34 octets at least) is a segment of a spool."""
    head = bytes(start[:34])
    return head[16:18] == b"\0\3" and head[20:22] == b"\1\0" and head[26:34] == _MARK_BEGINS


def encode_opening(*, lane: str, instance_id: str, export_time: int) -> bytes:
    """The first Message of a segment."""
    sets = [encode_template_set([_MARK, _OCTETS]), encode_data_set(_MARK, [(_VERSION, lane, instance_id)])]
    return encode_message(sets, export_time=export_time)


def encode_schema(layout: RowLayout, template_id: int, *, export_time: int, sequence: int) -> bytes:
    """A Message with the schema's Template; nothing for a schema that cannot have one."""
    if not layout.is_fit:
        return b""
    sets = [encode_template_set([layout.template(template_id)])]
    return encode_message(sets, export_time=export_time, sequence_number=sequence % (1 << 32))


def encode_piece(
    batch: FlowBatch, layout: RowLayout, template_id: int, *, export_time: int, sequence: int
) -> Generator[None, None, tuple[bytes, int]]:
    """The Messages of a batch's rows, and how many Data Records they have; in steps.

    Args:
        sequence: Data Records of the segment before them (RFC 7011 section 3.1).
    """
    try:
        if not layout.is_fit:
            raise UnfitError("no Template")
        sets = yield from layout.encode(batch, export_time)
    except UnfitError:
        whole = _raw_octets(batch)
        records = [(at // _CHUNK, whole[at : at + _CHUNK]) for at in range(0, len(whole), _CHUNK)]
        sets = [(encode_data_set(_OCTETS, [record])[_SET_HEADER.size :], 1) for record in records]
        template_id = _OCTETS_ID
    pieces: list[bytes] = []
    count = 0
    for body, rows in sets:
        length = _HEADERS + len(body)
        pieces.append(_MESSAGE_HEADER.pack(10, length, export_time, (sequence + count) % (1 << 32), 0))
        pieces.append(_SET_HEADER.pack(template_id, length - _MESSAGE_HEADER.size))
        pieces.append(body)
        count += rows
    return b"".join(pieces), count


def stretches(data: bytes) -> Iterator[bytes]:
    """The Messages of a piece in stretches that are decoded within milliseconds, each by itself.

    Raises:
        DamagedError: they are no Messages.
    """
    start = at = 0
    for _, set_id, body in _sets(data):
        is_continued = set_id == _OCTETS_ID and body[:4] != bytes(4)
        if at - start >= _STRETCH and not is_continued:
            yield data[start:at]
            start = at
        at += _HEADERS + len(body)
    if at > start:
        yield data[start:at]


def decode_piece(
    data: bytes, layout: RowLayout, template_id: int, *, is_first_export: bool
) -> Generator[None, None, FlowBatch]:
    """The rows of these Messages; in steps.

    Raises:
        DamagedError: they are not what ``encode_piece`` wrote.
    """
    parts: list[FlowBatch] = []
    for set_id, group in groupby(_sets(data), key=itemgetter(1)):
        found = list(group)
        bodies = [body for _, _, body in found]
        if set_id == _OCTETS_ID:
            parts += [_from_raw_octets(whole, layout.schema) for whole in _wholes(bodies)]
        elif set_id == template_id:
            parts.append((yield from layout.decode(bodies, found[0][0], is_first_export=False)))
        else:
            raise DamagedError("a Set of another Template")
    if not parts:
        parts.append((yield from layout.decode([], 0, is_first_export=False)))
    joined = parts[0] if len(parts) == 1 else FlowBatch.concatenate(parts)
    return FlowBatch(layout.schema, joined.columns, is_first_export=is_first_export)


def _wholes(bodies: Sequence[bytes]) -> list[bytes]:
    """What options records carry, put together: the part that is number 0 begins another."""
    wholes: list[list[bytes]] = []
    for body in bodies:
        if len(body) < 5:
            raise DamagedError("no part of a batch")
        if body[:4] == bytes(4):
            wholes.append([])
        if not wholes:
            raise DamagedError("the first part of a batch is not there")
        wholes[-1].append(body[7:] if body[4] == 255 else body[5:])
    return list(map(b"".join, wholes))


def _sets(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at < len(data):
        if at + _HEADERS > len(data):
            raise DamagedError("a Message is cut")
        version, length, export_time, _, _ = _MESSAGE_HEADER.unpack_from(data, at)
        set_id, set_length = _SET_HEADER.unpack_from(data, at + _MESSAGE_HEADER.size)
        if version != 10 or set_length != length - _MESSAGE_HEADER.size or at + length > len(data) or length < _HEADERS:
            raise DamagedError("no Message with one Set")
        yield export_time, set_id, data[at + _HEADERS : at + length]
        at += length


def _raw_octets(batch: FlowBatch) -> bytes:
    """Every column as it lies in memory, in the machine's byte order; for rows that fit nowhere else."""
    parts: list[bytes] = []
    for column in batch.columns:
        if isinstance(column, DictionaryColumn):
            values = [
                value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
                for value in column.dictionary
            ]
            assert all(isinstance(value, bytes) for value in values), "a dictionary has str or bytes"
            parts += [column.codes.tobytes(), _COUNT.pack(len(values))]
            for value in values:
                assert isinstance(value, bytes)
                parts += [_COUNT.pack(len(value)), value]
        else:
            parts.append(column.buffer.tobytes())
    return json.dumps([len(batch.columns), len(batch)]).encode() + b"\n" + b"".join(parts)


def _from_raw_octets(data: bytes, schema: FlowSchema) -> FlowBatch:
    head, _, rest = data.partition(b"\n")
    try:
        count, rows = map(int, json.loads(head))
    except (ValueError, TypeError):
        raise DamagedError("no columns") from None
    if count != len(schema.elements) or not 0 <= rows <= len(data):
        raise DamagedError("another number of columns than was written")
    taken = 0

    def take(octets: int) -> bytes:
        nonlocal taken
        taken += octets
        if taken > len(rest):
            raise DamagedError("a column is cut")
        return rest[taken - octets : taken]

    columns: list[Column] = []
    for element in schema.elements:
        if element.data_type in NUMBER_FORMATS:
            columns.append(NumberColumn(element, take(rows * element.data_type.natural_length)))
        elif is_packed(element):
            columns.append(PackedColumn(element, take(rows * element.length)))
        else:
            columns.append(_raw_texts(element, take(rows * 4), take))
    if taken != len(rest):
        raise DamagedError("octets behind the last column")
    return FlowBatch(schema, columns)


def _raw_texts(element: InformationElement, codes: bytes, take: Callable[[int], bytes]) -> DictionaryColumn:
    count: int = _COUNT.unpack(take(4))[0]
    values = [take(_COUNT.unpack(take(4))[0]) for _ in range(count)]
    view = memoryview(codes).cast("I") if codes else ()
    if any(code >= count for code in view):
        raise DamagedError("a code of no value")
    if element.data_type is not DataType.STRING:
        return DictionaryColumn(element, codes, values)
    try:
        return DictionaryColumn(element, codes, [value.decode("utf-8", "surrogatepass") for value in values])
    except UnicodeDecodeError:
        raise DamagedError("a string that is none") from None
