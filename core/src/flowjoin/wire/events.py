"""What a Message turns into: the events of one Message, in wire order.

Nothing here raises and nothing is ``None``-or-error: what is wrong with a peer's bytes is an event too.
What every Message makes is a named tuple: agents send one record a Message, and a frozen dataclass takes four times as
long to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from flowjoin._model.errors import DecodeError
from flowjoin._model.information_element import Value
from flowjoin._model.reasons import Reason
from flowjoin._model.template import Template, TemplateId
from flowjoin._model.transport_session import ObservationDomainId, TransportSession

__all__ = [
    "DataSetReceived",
    "Event",
    "MalformedMessage",
    "MalformedTemplate",
    "MessageHeader",
    "MessageReceived",
    "RecordsDropped",
    "SequenceGap",
    "TemplateReceived",
    "TemplateWithdrawn",
    "UndecodableSet",
]


class MessageHeader(NamedTuple):
    """The header of an IPFIX Message (RFC 7011 section 3.1).

    Attributes:
        version: 10.
        length: octets, as the header says.
        export_time: seconds since the Unix epoch.
        sequence_number: Data Records sent before this Message, modulo 2**32.
        observation_domain_id: 0 when the Message as a whole has none.
    """

    version: int
    length: int
    export_time: int
    sequence_number: int
    observation_domain_id: ObservationDomainId


class MessageReceived(NamedTuple):
    """The first event of every Message whose header could be read."""

    session: TransportSession
    header: MessageHeader


@dataclass(frozen=True, slots=True)
class TemplateReceived:
    """A Template or Options Template was defined, redefined, or sent again (``is_refresh``: equal content)."""

    template: Template
    is_refresh: bool


@dataclass(frozen=True, slots=True)
class TemplateWithdrawn:
    """Templates were withdrawn (RFC 7011 section 8.1); all of the set's kind with ``template_id`` None.

    Over UDP withdrawals are ignored, and give no event.
    """

    template_id: TemplateId | None
    is_options: bool


class DataSetReceived(NamedTuple):
    """Data Records of one Set, decoded.

    Attributes:
        header: of the Message they came in (an early Message's own, when they had to wait).
        template: their Template; options records have ``template.is_options``.
        records: one tuple a record, one value a field, in Template order. A value is what
            ``flowjoin._model.information_element`` says of the field's element, but that addresses
            and MAC addresses are packed octets here (``wire.text_of`` makes the text); a field whose
            length its type does not allow is given as its octets (``wire.carries_octets``). Every
            integer is in its type's range, however long its field.
        was_held: these records came before their Template and have waited for it.
    """

    header: MessageHeader
    template: Template
    records: Sequence[tuple[Value, ...]]
    was_held: bool = False


@dataclass(frozen=True, slots=True)
class UndecodableSet:
    """A Data Set without its Template (held or not), or a Set with a reserved id."""

    set_id: int
    reason: Reason
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class RecordsDropped:
    """The rest of a Data Set could not be read (the records before the fault were given)."""

    error: DecodeError
    template_id: TemplateId


@dataclass(frozen=True, slots=True)
class MalformedTemplate:
    """A Template Record was refused; an earlier definition of its id is gone."""

    error: DecodeError
    template_id: TemplateId | None


@dataclass(frozen=True, slots=True)
class MalformedMessage:
    """The rest of the Message was dropped; what came before it counts.

    Over an ordered transport the caller closes the session then (RFC 7011 section 9.1): one end
    is broken, and on a new connection it sends its Templates again. Over UDP the next datagram is read.
    """

    error: DecodeError


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """Data Records that an original exporter sent and we did not see.

    ``lost`` is negative when records thought lost arrive after all (reordering is not loss), so that
    the sum over a session's gaps is what is missing now.
    """

    observation_domain_id: ObservationDomainId
    lost: int


Event: TypeAlias = (
    MessageReceived
    | TemplateReceived
    | TemplateWithdrawn
    | DataSetReceived
    | UndecodableSet
    | RecordsDropped
    | MalformedTemplate
    | MalformedMessage
    | SequenceGap
)
