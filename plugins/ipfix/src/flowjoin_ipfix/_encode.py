"""Flows as Data Records, column by column.

Neighbouring fields of fixed length are packed by one ``struct`` call a row; a string or any other value without a
packer is encoded once per distinct value of the batch; the pieces of a row are then joined. No Python code runs for
a single field of a single row.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from struct import Struct
from typing import Any, Final

from flowjoin.api import VARIABLE_LENGTH, DataType, EncodeError, FlowBatch
from flowjoin.wire import FieldSpecifier, RecordEncoder, Template, TemplateId
from flowjoin_ipfix._rows import WrittenRows, written_rows

__all__ = ["DataRecordEncoder"]

_NUMBERS: Final = {
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
    DataType.DATE_TIME_SECONDS: "I",
    DataType.DATE_TIME_MILLISECONDS: "Q",
}
_BOOLEANS: Final = (2, 1)  # false, true: RFC 7011 section 6.1.5
_SHORT_FORM_LIMIT: Final = 255  # RFC 7011 section 7
_NO_ID: Final = TemplateId(0)
_PREFIXES: Final = tuple(bytes([length]) for length in range(_SHORT_FORM_LIMIT))

# Values of a run of fixed fields, one column each; or None for a field that is encoded per distinct value.
_Read = Callable[[FlowBatch], Sequence[Any]]


class DataRecordEncoder:
    """Writes the Data Records of one Template."""

    def __init__(self, template: Template, room: int) -> None:
        """Plan the work.

        Args:
            room: octets that a record may have.
        """
        self._room = room
        self._runs: list[tuple[Struct, list[_Read]] | _Distinct] = []
        letters, reads = ">", list[_Read]()
        for field in template.fields:
            packer = _packer(field)
            if packer is not None:
                letters += packer[0]
                reads.append(packer[1])
                continue
            if reads:
                self._runs.append((Struct(letters), reads))
                letters, reads = ">", []
            self._runs.append(_Distinct(field))
        if reads:
            self._runs.append((Struct(letters), reads))

    def write(self, batch: FlowBatch) -> WrittenRows:
        """Every row's record; what cannot be encoded or is too long is refused."""
        refused: dict[int, str] = {}
        pieces: list[Iterable[bytes]] = []
        constant = b""  # neighbouring fields with one value in the whole batch
        for run in self._runs:
            if isinstance(run, _Distinct):
                codes, values = run.encoded(batch, refused)
                if len(values) == 1:
                    constant += values[0]
                    continue
                piece: Iterable[bytes] = map(values.__getitem__, codes)
            else:
                packer, reads = run
                piece = map(packer.pack, *[read(batch) for read in reads])
            if constant:
                pieces.append(repeat(constant, len(batch)))
                constant = b""
            pieces.append(piece)
        if constant or not pieces:
            pieces.append(repeat(constant, len(batch)))
        return written_rows(list(map(b"".join, zip(*pieces, strict=True))), refused, self._room)


class _Distinct:
    """A field whose values are encoded one by one, each distinct one once."""

    def __init__(self, field: FieldSpecifier) -> None:
        self._name = field.element.name
        self._is_text = field.element.data_type is DataType.STRING and field.length == VARIABLE_LENGTH
        self._encoder = RecordEncoder(Template(version=10, template_id=_NO_ID, fields=(field,)))

    def encoded(self, batch: FlowBatch, refused: dict[int, str]) -> tuple[list[int], list[bytes]]:
        """Codes into the encoded values; rows with a value that cannot be encoded are added to ``refused``."""
        codes_view, values = batch.column(self._name).distinct()
        codes = codes_view.tolist()
        if self._is_text:
            try:
                return codes, [
                    _PREFIXES[len(octets)] + octets
                    for octets in map(str.encode, values)  # type: ignore[arg-type]  # strings, as the element says
                ]
            except IndexError:
                pass  # a long one is among them
        encoded, impossible = [], dict[int, str]()
        for code, value in enumerate(values):
            try:
                encoded.append(self._encoder.encode((value,)))
            except EncodeError as exc:
                impossible[code] = str(exc)
                encoded.append(b"")
        if impossible:
            for row, code in enumerate(codes):
                if code in impossible:
                    refused.setdefault(row, impossible[code])
        return codes, encoded


def _packer(field: FieldSpecifier) -> tuple[str, _Read] | None:
    """The ``struct`` letters of a field of fixed length, and what reads its column; None if it has none."""
    name, data_type = field.element.name, field.element.data_type
    if field.length != field.element.length or field.length == VARIABLE_LENGTH:
        return None
    if data_type in _NUMBERS:
        return _NUMBERS[data_type], lambda batch: batch.column(name).tolist()
    match data_type:
        case DataType.BOOLEAN:
            return "B", lambda batch: list(map(_BOOLEANS.__getitem__, batch.column(name).tolist()))
        case DataType.IPV4_ADDRESS:
            return "I", lambda batch: _words(_packed(batch, name))
        case DataType.IPV6_ADDRESS | DataType.MAC_ADDRESS | DataType.OCTET_ARRAY:
            width = field.length
            return f"{width}s", lambda batch: _cut(_packed(batch, name), width)
    return None


def _packed(batch: FlowBatch, name: str) -> memoryview:
    column: Any = batch.column(name)  # the form with ``buffer``, because the element has a fixed number of octets
    buffer: memoryview = column.buffer
    return buffer


def _words(octets: memoryview) -> list[int]:
    words = array("I")
    words.frombytes(octets)
    if sys.byteorder == "little":
        words.byteswap()
    return words.tolist()


def _cut(octets: memoryview, width: int) -> list[bytes]:
    data = octets.tobytes()
    return [data[at : at + width] for at in range(0, len(data), width)]
