"""Flows as Data Records: what each field of a row is made of, for the core's compiled writer.

Numbers and addresses are written from their columns as they lie there; a string or any other value is encoded once
per distinct value of the batch. No Python code runs for a single field of a single row.
"""

from __future__ import annotations

from typing import Final

from flowjoin.api import VARIABLE_LENGTH, DataType, EncodeError, FlowBatch, Value
from flowjoin.api.writers import (
    Chosen,
    Constant,
    Fixed,
    NetworkOrder,
    NumberColumn,
    PackedColumn,
    Piece,
    TextStyle,
    texts_of,
    write_rows,
)
from flowjoin.wire import FieldSpecifier, RecordEncoder, Template, TemplateId
from flowjoin_ipfix._rows import WrittenRows, written_rows

__all__ = ["DataRecordEncoder"]

_BOOLEANS: Final = (b"\2", b"\1")  # false, true: RFC 7011 section 6.1.5
_FRACTIONS: Final = frozenset({DataType.DATE_TIME_MICROSECONDS, DataType.DATE_TIME_NANOSECONDS})
_NO_ID: Final = TemplateId(0)


class DataRecordEncoder:
    """Writes the Data Records of one Template."""

    def __init__(self, template: Template, room: int) -> None:
        """Plan the work.

        Args:
            room: octets that a record may have.
        """
        self._room = room
        self._fields = [(field, _value_encoder(field)) for field in template.fields]

    def write(self, batch: FlowBatch) -> WrittenRows:
        """Every row's record; what cannot be encoded or is too long is refused."""
        refused: dict[int, str] = {}
        pieces: list[Piece] = []
        constant = b""  # neighbouring fields with one value in the whole batch
        for field, encoder in self._fields:
            piece = _piece(batch, field, encoder, refused)
            if isinstance(piece, Chosen) and len(piece.texts) == 1:
                constant += piece.texts[0]
                continue
            if constant:
                pieces.append(Constant(constant))
                constant = b""
            pieces.append(piece)
        pieces.append(Constant(constant))
        octets, ends = write_rows(pieces, len(batch))
        return written_rows(octets, ends, refused, self._room)


def _value_encoder(field: FieldSpecifier) -> RecordEncoder:
    return RecordEncoder(Template(version=10, template_id=_NO_ID, fields=(field,)))


def _piece(batch: FlowBatch, field: FieldSpecifier, encoder: RecordEncoder, refused: dict[int, str]) -> Piece:
    """One field of each record; rows with a value that cannot be encoded are added to ``refused``."""
    element = field.element
    column = batch.column(element.name)
    if field.length == element.length != VARIABLE_LENGTH:
        if isinstance(column, PackedColumn):
            return Fixed(column)
        if isinstance(column, NumberColumn) and element.data_type is DataType.BOOLEAN:
            return Chosen(column.buffer.cast("B"), _BOOLEANS)
        if isinstance(column, NumberColumn) and element.data_type not in _FRACTIONS:
            return NetworkOrder(column)
    elif element.data_type is DataType.STRING and field.length == VARIABLE_LENGTH:
        try:
            return texts_of(batch, element.name, TextStyle.IPFIX)
        except ValueError:
            pass  # one is too long: see which
    codes, values = column.distinct()
    return Chosen(codes, _encoded(codes, values, encoder, refused))


def _encoded(
    codes: memoryview, values: tuple[Value, ...], encoder: RecordEncoder, refused: dict[int, str]
) -> list[bytes]:
    encoded, impossible = [], dict[int, str]()
    for code, value in enumerate(values):
        try:
            encoded.append(encoder.encode((value,)))
        except EncodeError as exc:
            impossible[code] = str(exc)
            encoded.append(b"")
    if impossible:
        for row, code in enumerate(codes.tolist()):
            if code in impossible:
                refused.setdefault(row, impossible[code])
    return encoded
