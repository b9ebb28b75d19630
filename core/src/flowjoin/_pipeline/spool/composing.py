"""The octets and lines that go to a segment next; pure.

Strategy: rows are encoded in slices, so that whoever calls can let others work between two. A piece is all the rows
that one call adds to one open batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import FlowSchema
from flowjoin._pipeline.spool.index import Batch, Head, Piece, batch_line, head_line, rows_line, schema_line
from flowjoin._pipeline.spool.row_layout import RowLayout
from flowjoin._pipeline.spool.segment_format import FIRST_SCHEMA_ID, encode_opening, encode_piece, encode_schema

__all__ = ["Composer"]

_SLICE_ROWS: Final = 1024  # four milliseconds, in three steps
_LAST_SCHEMA_ID: Final = 65_535


class Composer:
    """What one segment gets, from its first octet on.

    Attributes:
        octets: of the segment and its index together, with what is not taken yet.
        lines: in the index.
    """

    def __init__(self, head: Head, wall: float) -> None:
        """Begin a segment."""
        self._wall = wall
        # It grows where it is, and is given away as it is: to join what is encoded would take milliseconds more.
        self._data = bytearray(encode_opening(lane=head.lane, instance_id=head.instance_id, export_time=int(wall)))
        self._lines = [head_line(head)]
        self._offset = len(self._data)
        self.octets = self._offset + len(self._lines[0])
        self.lines = 1
        self._records = 1  # the mark
        self._ids: dict[FlowSchema, int] = {}
        self._layouts: dict[FlowSchema, RowLayout] = {}
        self._open: dict[int, list[Piece]] = {}
        self._ordinal = 0

    @property
    def schemas(self) -> dict[int, FlowSchema]:
        """The schemas of the segment by Template id."""
        return {template_id: schema for schema, template_id in self._ids.items()}

    @property
    def has_room_for_schemas(self) -> bool:
        return FIRST_SCHEMA_ID + len(self._ids) < _LAST_SCHEMA_ID

    def take(self) -> tuple[bytearray, bytes]:
        """The octets and the lines since the last call."""
        taken = self._data, b"".join(self._lines)
        self._data, self._lines = bytearray(), []
        return taken

    def add(self, group: int, rows: FlowBatch, wall: float, *, reason: str = "") -> Iterator[None]:
        """Add rows to an open batch; to be iterated to its end."""
        self._wall = wall
        template_id = self._ids.get(rows.schema)
        if template_id is None:
            template_id = self._add_schema(rows.schema)
            yield
        layout = self._layouts[rows.schema]
        offset, checksum = self._offset, 0
        for start in range(0, len(rows), _SLICE_ROWS):
            part = rows if len(rows) <= _SLICE_ROWS else rows.slice(start, start + _SLICE_ROWS)
            octets, records = yield from encode_piece(
                part, layout, template_id, export_time=int(wall), sequence=self._records
            )
            checksum = zlib.crc32(octets, checksum)
            self._records += records
            self._add_octets(octets)
            yield
        piece = Piece(
            offset=offset,
            length=self._offset - offset,
            checksum=checksum,
            rows=len(rows),
            template_id=template_id,
            is_first_export=rows.is_first_export,
            octets=rows.octets,
            written_at=wall,
            reason=reason,
        )
        self._open.setdefault(group, []).append(piece)
        self._add_line(rows_line(group, piece))

    def close(self, group: int, epoch: int, sequence: int) -> Batch:
        """The open batch is complete."""
        pieces = tuple(self._open.pop(group))
        batch = Batch(self._ordinal, epoch, sequence, sum(piece.rows for piece in pieces), pieces)
        self._ordinal += 1
        self._add_line(batch_line(group, batch))
        return batch

    def _add_schema(self, schema: FlowSchema) -> int:
        template_id = self._ids[schema] = FIRST_SCHEMA_ID + len(self._ids)
        layout = self._layouts[schema] = RowLayout(schema)
        self._add_octets(encode_schema(layout, template_id, export_time=int(self._wall), sequence=self._records))
        self._add_line(schema_line(template_id, schema))
        return template_id

    def _add_octets(self, octets: bytes) -> None:
        self._data += octets
        self._offset += len(octets)
        self.octets += len(octets)

    def _add_line(self, line: bytes) -> None:
        self._lines.append(line)
        self.octets += len(line)
        self.lines += 1
