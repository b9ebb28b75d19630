"""Messages, Sets and Template Records to octets (RFC 7011 section 3).

Strategy: functions make single Sets and Messages; ``Encoder`` is one Exporting Process's stream: it
packs records into Messages of bounded size and keeps the sequence number.

Invariant: no Message is larger than ``max_octets``; a call that raises leaves the sequence unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from flowjoin._model.errors import EncodeError
from flowjoin._model.information_element import Value
from flowjoin._model.template import Template
from flowjoin.wire.record_encoder import RecordEncoder

__all__ = [
    "MAX_MESSAGE_OCTETS",
    "Encoder",
    "encode_data_set",
    "encode_message",
    "encode_template_record",
    "encode_template_set",
    "encode_withdrawal_set",
]

MAX_MESSAGE_OCTETS: Final = 65_535
_MIN_MESSAGE_OCTETS: Final = 64  # room for a record at all

_VERSION: Final = 10
_MESSAGE_HEADER: Final = struct.Struct(">HHIII")
_SET_HEADER: Final = struct.Struct(">HH")
_TEMPLATE_SET, _OPTIONS_TEMPLATE_SET = 2, 3
_FIRST_DATA_SET: Final = 256
_ENTERPRISE_BIT: Final = 0x8000
_MODULUS: Final = 1 << 32


def encode_message(
    sets: Iterable[bytes], *, export_time: int, sequence_number: int = 0, observation_domain_id: int = 0
) -> bytes:
    """A whole Message.

    Raises:
        EncodeError: it would be larger than a Message can be, or a number of its header does not fit.
    """
    body = b"".join(sets)
    length = _MESSAGE_HEADER.size + len(body)
    if length > MAX_MESSAGE_OCTETS:
        raise EncodeError(f"a Message cannot have {length} octets")
    try:
        header = _MESSAGE_HEADER.pack(_VERSION, length, export_time, sequence_number, observation_domain_id)
    except struct.error as error:
        numbers = f"export time {export_time}, sequence number {sequence_number}, domain {observation_domain_id}"
        raise EncodeError(f"not all are unsigned 32-bit integers: {numbers}") from error
    return header + body


def encode_template_set(templates: Sequence[Template]) -> bytes:
    """A Template Set, or an Options Template Set; the Templates are all of one kind.

    Raises:
        EncodeError: more than a Set can hold, a reserved id, both kinds, or none.
    """
    if len({template.is_options for template in templates}) != 1:
        raise EncodeError("a Set has Templates of one kind, and one at least")
    set_id = _OPTIONS_TEMPLATE_SET if templates[0].is_options else _TEMPLATE_SET
    return _encode_set(set_id, map(encode_template_record, templates))


def encode_withdrawal_set(template_ids: Sequence[int] | None, *, is_options: bool = False) -> bytes:
    """Withdraw Templates by id, or all of the kind with None (RFC 7011 section 8.1; not over UDP).

    Raises:
        EncodeError: a reserved id, or more than a Set can hold.
    """
    set_id = _OPTIONS_TEMPLATE_SET if is_options else _TEMPLATE_SET
    if template_ids is None:
        return _encode_set(set_id, [struct.pack(">HH", set_id, 0)])
    return _encode_set(set_id, [struct.pack(">HH", _checked_id(template_id), 0) for template_id in template_ids])


def encode_data_set(template: Template, records: Iterable[Sequence[Value]]) -> bytes:
    """A Data Set of this Template's records (an Options Template's too).

    Raises:
        EncodeError: a value its field cannot carry, or more than a Set can hold.
    """
    return _encode_set(_checked_id(template.template_id), map(RecordEncoder(template).encode, records))


class Encoder:
    """The Messages of one Transport Session and observation domain."""

    def __init__(
        self, *, observation_domain_id: int = 0, max_octets: int = MAX_MESSAGE_OCTETS, sequence_number: int = 0
    ) -> None:
        """Begin a stream.

        Args:
            observation_domain_id: of every Message.
            max_octets: of a Message; over UDP what the path carries unfragmented.
            sequence_number: Data Records sent before.

        Raises:
            ValueError: ``max_octets`` is not from 64 to 65535.
        """
        if not _MIN_MESSAGE_OCTETS <= max_octets <= MAX_MESSAGE_OCTETS:
            raise ValueError(f"max_octets must be from {_MIN_MESSAGE_OCTETS} to {MAX_MESSAGE_OCTETS}, not {max_octets}")
        self._observation_domain_id = observation_domain_id
        self._room = max_octets - _MESSAGE_HEADER.size - _SET_HEADER.size
        self._sequence_number = sequence_number % _MODULUS
        self._encoders: dict[int, RecordEncoder] = {}

    @property
    def sequence_number(self) -> int:
        """Data Records in the Messages made, modulo 2**32: what the next Message's header says."""
        return self._sequence_number

    def encode_templates(self, templates: Iterable[Template], export_time: int) -> list[bytes]:
        """Messages that define these Templates, in order.

        Raises:
            EncodeError: a Template that fits into no Message, or a reserved id.
        """
        messages: list[bytes] = []
        for is_options, group in groupby(templates, key=lambda template: template.is_options):
            set_id = _OPTIONS_TEMPLATE_SET if is_options else _TEMPLATE_SET
            for part in self._parts(map(encode_template_record, group)):
                messages.append(self._message(_encode_set(set_id, part), export_time, self._sequence_number))
        return messages

    def encode_withdrawals(
        self, template_ids: Sequence[int] | None, export_time: int, *, is_options: bool = False
    ) -> list[bytes]:
        """Messages that withdraw Templates, all of the kind with None; only over ordered transports.

        Raises:
            EncodeError: a reserved id.
        """
        if template_ids is None:
            parts: list[Sequence[int] | None] = [None]
        else:
            step = self._room // 4
            parts = [template_ids[at : at + step] for at in range(0, len(template_ids), step)]
        sets = [encode_withdrawal_set(part, is_options=is_options) for part in parts]
        return [self._message(octets, export_time, self._sequence_number) for octets in sets]

    def encode_records(self, template: Template, records: Iterable[Sequence[Value]], export_time: int) -> list[bytes]:
        """Messages with these records, in order, each as full as it can be.

        Raises:
            EncodeError: a value its field cannot carry, or a record that fits into no Message; no
                record counts as sent then.
        """
        encoder = self._encoders.get(template.template_id)
        if encoder is None or encoder.template != template:
            _checked_id(template.template_id)
            encoder = self._encoders[template.template_id] = RecordEncoder(template)
        sequence_number = self._sequence_number
        messages: list[bytes] = []
        for part in self._parts(map(encoder.encode, records)):
            messages.append(self._message(_encode_set(template.template_id, part), export_time, sequence_number))
            sequence_number = (sequence_number + len(part)) % _MODULUS
        self._sequence_number = sequence_number
        return messages

    def _message(self, octets: bytes, export_time: int, sequence_number: int) -> bytes:
        return encode_message(
            [octets],
            export_time=export_time,
            sequence_number=sequence_number,
            observation_domain_id=self._observation_domain_id,
        )

    def _parts(self, pieces: Iterable[bytes]) -> list[list[bytes]]:
        """Cut what one Set would hold into Sets that fit, by true size."""
        parts: list[list[bytes]] = []
        room = 0
        for piece in pieces:
            if len(piece) > self._room:
                raise EncodeError(
                    f"a record of {len(piece)} octets does not fit into a Message with room for {self._room}"
                )
            if len(piece) > room or not parts:
                parts.append([])
                room = self._room
            parts[-1].append(piece)
            room -= len(piece)
        return parts


def _encode_set(set_id: int, pieces: Iterable[bytes]) -> bytes:
    body = b"".join(pieces)
    length = _SET_HEADER.size + len(body)
    if length > MAX_MESSAGE_OCTETS - _MESSAGE_HEADER.size:
        raise EncodeError(f"a Set of {length} octets fits into no Message")
    return _SET_HEADER.pack(set_id, length) + body


def _checked_id(template_id: int) -> int:
    if not _FIRST_DATA_SET <= template_id <= 0xFFFF:
        raise EncodeError(f"a Template id is from {_FIRST_DATA_SET} to 65535, not {template_id}")
    return template_id


def encode_template_record(template: Template) -> bytes:
    """A Template Record or an Options Template Record (RFC 7011 sections 3.4.1 and 3.4.2).

    Raises:
        EncodeError: a reserved id, too many fields, or records without an octet.
    """
    if len(template.fields) > 0xFFFF:
        raise EncodeError(f"Template {template.template_id} has {len(template.fields)} fields")
    parts = [struct.pack(">HH", _checked_id(template.template_id), len(template.fields))]
    if template.is_options:
        if not 1 <= template.scope_field_count <= len(template.fields):
            raise EncodeError(f"{template.scope_field_count} scope fields among {len(template.fields)}")
        parts.append(struct.pack(">H", template.scope_field_count))
    if template.minimum_record_length == 0:
        raise EncodeError(f"Template {template.template_id} has records without an octet")
    for field in template.fields:
        element_id, enterprise_number = field.element.element_id, field.element.enterprise_number
        if enterprise_number:
            parts.append(struct.pack(">HHI", element_id | _ENTERPRISE_BIT, field.length, enterprise_number))
        else:
            parts.append(struct.pack(">HH", element_id, field.length))
    return b"".join(parts)
