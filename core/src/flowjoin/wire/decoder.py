"""IPFIX Messages to events (RFC 7011).

Strategy: walk the Sets by their lengths, in wire order, over one ``bytes``; Templates change the
session's store as they pass, Data Sets are decoded a Set at a time by their Template's decoder.
Sessions are all state there is; time comes in as an argument.

Invariant: any octets give events, never an exception, and one call takes time and memory in
proportion to the Message and the early data that its Templates release (both bounded).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Final

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin._model.template import TemplateId
from flowjoin._model.transport_session import ObservationDomainId, TransportSession
from flowjoin.wire.budget import Budget
from flowjoin.wire.encoder import encode_template_record
from flowjoin.wire.events import (
    DataSetReceived,
    Event,
    MalformedMessage,
    MalformedTemplate,
    MessageHeader,
    MessageReceived,
    RecordsDropped,
    SequenceGap,
    TemplateReceived,
    TemplateWithdrawn,
    UndecodableSet,
)
from flowjoin.wire.held import HeldSet, HeldSets
from flowjoin.wire.limits import DecoderLimits, DecoderStatistics
from flowjoin.wire.remembered import RememberedTemplate
from flowjoin.wire.sequence import SequenceTracker
from flowjoin.wire.template_records import CompiledTemplate, Mode, TemplateReader, record_end
from flowjoin.wire.template_store import TemplateKey, TemplateStore

__all__ = ["Decoder", "SessionState"]

IPFIX_VERSION: Final = 10
_MESSAGE_HEADER: Final = struct.Struct(">HHIII")
_SET_HEADER: Final = struct.Struct(">HH")
_TEMPLATE_HEADER: Final = struct.Struct(">HH")
_TEMPLATE_SET, _OPTIONS_TEMPLATE_SET = 2, 3
_FIRST_DATA_SET: Final = 256  # RFC 7011 section 3.3.2


class SessionState:
    """What one Transport Session has told.

    Attributes:
        compiled: what another reader of the same session's plain Data Sets remembers of it.
    """

    __slots__ = ("compiled", "held", "last_message", "remembered", "sequences", "templates")

    def __init__(self, templates: TemplateStore, held: HeldSets | None) -> None:
        self.compiled: object = None
        self.templates = templates
        self.held = held  # None over ordered transports
        self.remembered: set[TemplateKey] = set()  # not sent again yet
        self.sequences: dict[int, SequenceTracker] = {}
        self.last_message = 0.0


class _Message:
    """One Message while it is read."""

    __slots__ = ("data", "events", "header", "now", "records", "session")

    def __init__(self, data: bytes, header: MessageHeader, session: SessionState, now: float) -> None:
        self.data = data
        self.header = header
        self.session = session
        self.now = now
        self.events: list[Event] = []
        self.records: int | None = 0  # Data Records in it; None: some could not be counted


class Decoder:
    """Decodes Messages of any number of Transport Sessions."""

    def __init__(
        self, registry: ElementRegistry, *, mode: Mode = "lenient", limits: DecoderLimits | None = None
    ) -> None:
        """Begin without sessions.

        Args:
            registry: the elements known by number.
            mode: ``strict`` refuses Templates with an element outside the registry; ``lenient`` gives
                such fields as octets.
            limits: what peers may make it hold.
        """
        self._limits = limits or DecoderLimits()
        self._reader = TemplateReader(registry, mode=mode, max_fields=self._limits.fields_per_template)
        self._sessions: dict[TransportSession, SessionState] = {}
        self._held_octets = Budget(self._limits.held_octets)
        self._fields = Budget(self._limits.fields)
        self._domains = Budget(self._limits.domains)
        self._held_sets_expired = 0
        self._templates_expired = 0
        self._next_expiry = math.inf  # never later than the first thing that ends
        self._shortest_life = min(self._limits.template_lifetime, self._limits.held_seconds, self._limits.idle_timeout)

    def receive_message(
        self, data: bytes | bytearray | memoryview, session: TransportSession, now: float
    ) -> list[Event]:
        """Decode one datagram, or one Message of a stream, to its end or its first fault.

        Octets after the length in the header are ignored. Values are copies: the buffer may be reused.

        Args:
            data: the Message; it is not kept.
            session: where it came from.
            now: monotonic seconds, the same clock as ``expire``.
        """
        octets = bytes(data)
        if len(octets) < _MESSAGE_HEADER.size:
            return [MalformedMessage(_short_header(octets))]
        version, length, export_time, sequence_number, domain = _MESSAGE_HEADER.unpack_from(octets)
        if version != IPFIX_VERSION:
            return [MalformedMessage(DecodeError(Reason.VERSION_UNSUPPORTED, offset=0))]
        if length < _MESSAGE_HEADER.size:
            return [MalformedMessage(DecodeError(Reason.MESSAGE_LENGTH_INVALID, offset=2))]
        state = self._sessions.get(session) or self._open_session(session)
        if state is None:
            return [MalformedMessage(DecodeError(Reason.SESSION_LIMIT, offset=0))]
        state.last_message = now
        header = MessageHeader(
            version=version,
            length=length,
            export_time=export_time,
            sequence_number=sequence_number,
            observation_domain_id=ObservationDomainId(domain),
        )
        message = _Message(octets, header, state, now)
        message.events.append(MessageReceived(session, header))
        fault = self._read_sets(message)
        if fault is not None:
            message.records = None
            message.events.append(MalformedMessage(fault))
        self._follow_sequence(message)
        if state.held is not None and now + self._shortest_life < self._next_expiry:
            self._next_expiry = now + self._shortest_life
        return message.events

    @property
    def templates_expired(self) -> int:
        """Templates that ended because they were not sent again in time, so far."""
        return self._templates_expired

    def state_of(self, session: TransportSession) -> SessionState | None:
        """What is known of a session; None if it has no state (yet, or any more)."""
        return self._sessions.get(session)

    def close_session(self, session: TransportSession) -> None:
        """Forget a session: its Templates, its sequence, its held data. Unknown ones are no fault."""
        state = self._sessions.pop(session, None)
        if state is None:
            return
        state.templates.clear()
        self._domains.give_back(len(state.sequences))
        if state.held is not None:
            self._held_sets_expired += state.held.expire(math.inf)

    def expire(self, now: float) -> list[TransportSession]:
        """End UDP Templates not sent again in time and held data grown too old; give the idle UDP sessions.

        Those have been forgotten.
        """
        if now < self._next_expiry:
            return []
        idle: list[TransportSession] = []
        self._next_expiry = math.inf
        for session, state in self._sessions.items():
            if state.held is None:
                continue
            end = state.last_message + self._limits.idle_timeout
            if end <= now:
                idle.append(session)
                continue
            self._templates_expired += state.templates.expire(now)
            self._held_sets_expired += state.held.expire(now)
            self._next_expiry = min(self._next_expiry, end, state.templates.next_end(), state.held.next_end())
        for session in idle:
            self.close_session(session)
        return idle

    def remembered_templates(self, now: float) -> list[RememberedTemplate]:
        """The Templates of UDP sessions, to be kept for the next run."""
        found: list[RememberedTemplate] = []
        for session, state in self._sessions.items():
            if state.held is None:
                continue
            for (version, domain, _), compiled, end in state.templates.items():
                age = 0.0 if end == math.inf else max(0.0, now + self._limits.template_lifetime - end)
                found.append(
                    RememberedTemplate(
                        session=session,
                        observation_domain_id=domain,
                        version=version,
                        is_options=compiled.template.is_options,
                        record=encode_template_record(compiled.template),
                        age=age,
                    )
                )
        return found

    def remember_templates(self, templates: Iterable[RememberedTemplate], now: float) -> int:
        """Put Templates of an earlier run in force, until they are sent again or grow too old; gives how many.

        What cannot be read, is too old or finds no room is left out; so is what a session has said already.
        """
        count = 0
        for each in sorted(templates, key=lambda template: -template.age):
            if each.session.is_ordered or each.age >= self._limits.template_lifetime:
                continue
            record = each.record
            if len(record) < 6 or record_end(record, 0, len(record), is_options=each.is_options) != len(record):
                continue
            try:
                compiled = self._reader.read(record, 0, len(record), version=each.version, is_options=each.is_options)
            except DecodeError:
                continue
            state = self._sessions.get(each.session) or self._open_session(each.session)
            key = (each.version, each.observation_domain_id, int(compiled.template.template_id))
            if state is None or state.templates.get(key, now) is not None:
                continue
            if key[2] < _FIRST_DATA_SET or not state.templates.define(key, compiled, now - each.age):
                continue
            state.last_message = now
            state.remembered.add(key)
            self._next_expiry = min(self._next_expiry, state.templates.next_end(), now + self._shortest_life)
            count += 1
        return count

    def statistics(self) -> DecoderStatistics:
        """What is held now."""
        held = [state.held for state in self._sessions.values() if state.held is not None]
        return DecoderStatistics(
            sessions=len(self._sessions),
            templates=sum(len(state.templates) for state in self._sessions.values()),
            templates_remembered=sum(len(state.remembered) for state in self._sessions.values()),
            held_sets=sum(map(len, held)),
            held_octets=self._held_octets.taken,
            held_sets_expired=self._held_sets_expired,
            templates_expired=self._templates_expired,
        )

    def _open_session(self, session: TransportSession) -> SessionState | None:
        limits = self._limits
        if len(self._sessions) >= limits.sessions:
            return None
        if session.is_ordered:
            state = SessionState(TemplateStore(self._fields, limit=limits.templates_per_session), None)
        else:
            state = SessionState(
                TemplateStore(self._fields, limit=limits.templates_per_session, lifetime=limits.template_lifetime),
                HeldSets(self._held_octets, limit=limits.held_octets_per_session),
            )
        self._sessions[session] = state
        return state

    def _read_sets(self, message: _Message) -> DecodeError | None:
        data, length = message.data, message.header.length
        end = min(length, len(data))
        # A Message cut short has one fault, its length; the whole Sets before the cut count.
        is_cut = length > len(data)
        at = _MESSAGE_HEADER.size
        while at < end:
            if end - at < _SET_HEADER.size:
                return DecodeError(Reason.MESSAGE_TOO_SHORT if is_cut else Reason.SET_TOO_SHORT, offset=at)
            set_id, set_length = _SET_HEADER.unpack_from(data, at)
            if set_length < _SET_HEADER.size:
                return DecodeError(Reason.SET_TOO_SHORT, offset=at + 2, path=(f"set {set_id}",))
            start, stop = at + _SET_HEADER.size, at + set_length
            if stop > end:
                if set_id in (_TEMPLATE_SET, _OPTIONS_TEMPLATE_SET):
                    # What is left of a Template redefines it all the same: the earlier one must not live on.
                    self._read_template_set(message, start, end, is_options=set_id == _OPTIONS_TEMPLATE_SET)
                reason = Reason.MESSAGE_TOO_SHORT if is_cut else Reason.SET_TOO_LONG
                return DecodeError(reason, offset=at + 2, path=(f"set {set_id}",))
            if set_id >= _FIRST_DATA_SET:
                self._read_data_set(message, set_id, start, stop)
            elif set_id in (_TEMPLATE_SET, _OPTIONS_TEMPLATE_SET):
                self._read_template_set(message, start, stop, is_options=set_id == _OPTIONS_TEMPLATE_SET)
            else:
                message.events.append(UndecodableSet(set_id, Reason.SET_ID_RESERVED))
            at = stop
        return DecodeError(Reason.MESSAGE_TOO_SHORT, offset=len(data)) if is_cut else None

    def _read_data_set(self, message: _Message, set_id: int, start: int, stop: int) -> None:
        header, session = message.header, message.session
        key = (header.version, header.observation_domain_id, set_id)
        compiled = session.templates.get(key, message.now)
        if compiled is not None:
            records, fault = compiled.records.decode(message.data, start, stop, header.export_time)
            message.events.append(DataSetReceived(header, compiled.template, records))
            if fault is not None:
                message.records = None
                message.events.append(_records_dropped(compiled, fault))
            elif message.records is not None:
                message.records += len(records)
            return
        message.records = None
        reason, is_held = Reason.TEMPLATE_UNKNOWN, False
        if session.held is not None:
            until = message.now + self._limits.held_seconds
            is_held = session.held.hold(key, HeldSet(header, message.data[start:stop], start, until))
            if not is_held:
                reason = Reason.HELD_LIMIT
        message.events.append(UndecodableSet(set_id, reason, is_held))

    def _read_template_set(self, message: _Message, at: int, end: int, *, is_options: bool) -> None:
        data, events, templates = message.data, message.events, message.session.templates
        version, domain = message.header.version, message.header.observation_domain_id
        while end - at >= _TEMPLATE_HEADER.size:  # a shorter rest is padding
            template_id, field_count = _TEMPLATE_HEADER.unpack_from(data, at)
            if template_id == 0 and not any(data[at:end]):
                return  # longer padding than RFC 7011 section 3.3.1 allows, seen in the field
            kind = _OPTIONS_TEMPLATE_SET if is_options else _TEMPLATE_SET
            path = (f"set {kind}", f"template {template_id}")
            if field_count == 0 and (template_id >= _FIRST_DATA_SET or template_id == kind):
                self._withdraw(message, template_id, is_options=is_options)
                at += _TEMPLATE_HEADER.size  # RFC 7011 section 8.1: without a Scope Field Count
                continue
            if template_id < _FIRST_DATA_SET:  # whatever this is, what follows cannot be trusted
                error = DecodeError(Reason.TEMPLATE_ID_RESERVED, offset=at, path=path)
                events.append(MalformedTemplate(error, TemplateId(template_id)))
                return
            key = (version, domain, template_id)
            record_stop = record_end(data, at, end, is_options=is_options)
            try:
                if record_stop is None:
                    raise DecodeError(Reason.TEMPLATE_TRUNCATED, offset=at, path=path)
                compiled = self._reader.read(data, at, record_stop, version=version, is_options=is_options)
                earlier = templates.get(key, message.now)
                message.session.remembered.discard(key)
                if not templates.define(key, compiled, message.now):
                    raise DecodeError(Reason.TEMPLATE_LIMIT, offset=at, path=path)
            except DecodeError as error:
                templates.remove(key)
                events.append(MalformedTemplate(error, TemplateId(template_id)))
            else:
                is_refresh = earlier is not None and earlier.template == compiled.template
                events.append(TemplateReceived(compiled.template, is_refresh))
                self._release_held(message, compiled)
            if record_stop is None:
                return
            at = record_stop

    def _withdraw(self, message: _Message, template_id: int, *, is_options: bool) -> None:
        session, header = message.session, message.header
        if session.held is not None:
            return  # RFC 7011 section 8.4: not used over UDP, where it could overtake data or be forged
        if template_id < _FIRST_DATA_SET:
            session.templates.remove_all(header.version, header.observation_domain_id, is_options=is_options)
            message.events.append(TemplateWithdrawn(None, is_options))
        else:
            session.templates.remove((header.version, header.observation_domain_id, template_id))
            message.events.append(TemplateWithdrawn(TemplateId(template_id), is_options))

    def _release_held(self, message: _Message, compiled: CompiledTemplate) -> None:
        if message.session.held is None:
            return
        template = compiled.template
        key = (template.version, message.header.observation_domain_id, template.template_id)
        waiting, expired = message.session.held.take(key, message.now)
        self._held_sets_expired += expired
        for held in waiting:
            header = held.header
            records, fault = compiled.records.decode(held.octets, 0, len(held.octets), header.export_time)
            message.events.append(DataSetReceived(header, template, records, was_held=True))
            if fault is not None:
                message.events.append(_records_dropped(compiled, held.offset + fault))

    def _follow_sequence(self, message: _Message) -> None:
        domain = message.header.observation_domain_id
        lost = self.follow_sequence(message.session, domain, message.header.sequence_number, message.records)
        if lost:
            message.events.append(SequenceGap(ObservationDomainId(domain), lost))

    def follow_sequence(self, state: SessionState, domain: int, sequence_number: int, records: int | None) -> int:
        """Take a Message's sequence number and Data Records; give the records newly lost."""
        sequences = state.sequences
        tracker = sequences.get(domain)
        if tracker is None:
            if len(sequences) >= self._limits.domains_per_session:
                del sequences[next(iter(sequences))]
            elif not self._domains.take(1):
                return 0
            tracker = sequences[domain] = SequenceTracker()
        elif len(sequences) > 1:
            sequences[domain] = sequences.pop(domain)  # at the end: the first is the one quiet longest
        return tracker.receive(sequence_number, records)


def _short_header(data: bytes) -> DecodeError:
    if len(data) >= 2 and int.from_bytes(data[:2], "big") != IPFIX_VERSION:
        return DecodeError(Reason.VERSION_UNSUPPORTED, offset=0)
    return DecodeError(Reason.MESSAGE_TOO_SHORT, offset=len(data))


def _records_dropped(compiled: CompiledTemplate, offset: int) -> RecordsDropped:
    template_id = compiled.template.template_id
    error = DecodeError(Reason.RECORD_TRUNCATED, offset=offset, path=(f"set {template_id}",))
    return RecordsDropped(error, template_id)
