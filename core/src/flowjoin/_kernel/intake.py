"""Messages to Data Sets with their plans; everything that is counted about Messages.

Invariant: a Message is read to its end or first fault before any of its records is handed on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from flowjoin._kernel.init_times import InitTimes
from flowjoin._kernel.interface import CompilePlan, KernelStatistics
from flowjoin._kernel.tally import Tally
from flowjoin._model.plan import Plan
from flowjoin._model.reasons import Reason
from flowjoin._model.template import Template
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.events import (
    DataSetReceived,
    MalformedMessage,
    MalformedTemplate,
    MessageReceived,
    RecordsDropped,
    SequenceGap,
    TemplateReceived,
    UndecodableSet,
)

__all__ = ["DataSet", "Intake", "Notices"]

RowsT = TypeVar("RowsT")

_MAXIMUM_PLANS = 4_096  # distinct Templates; beyond it all are compiled anew as their data comes


class DataSet(NamedTuple, Generic[RowsT]):
    """Records about flows, what was compiled for their Template, and what was told about their original exporter.

    Attributes:
        init_time: when it started, as an earlier options record of the session and domain says; 0 without one.
    """

    received: DataSetReceived
    rows: RowsT
    init_time: int = 0


class Notices:
    """What one call met that is worth a log line; of each session and reason once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[TransportSession, Reason], tuple[int, int]] = {}
        self._faulty: dict[TransportSession, None] = {}

    def add(self, session: TransportSession, reason: Reason, subject: int, domain: int) -> None:
        """Note a reason; ``subject`` is a Set's or a Template's id, 0 for a whole Message."""
        self._seen.setdefault((session, reason), (subject, domain))

    def distrust(self, session: TransportSession) -> None:
        """Note that an ordered stream cannot be read on."""
        self._faulty[session] = None

    @property
    def all(self) -> tuple[tuple[TransportSession, Reason, int, int], ...]:
        return tuple((session, reason, *where) for (session, reason), where in self._seen.items())

    @property
    def faulty(self) -> tuple[TransportSession, ...]:
        return tuple(self._faulty)


class Intake(Generic[RowsT]):
    """Decodes, counts and compiles."""

    def __init__(
        self, decoder: Decoder, compile_plan: CompilePlan, compile_rows: Callable[[Template, Plan], RowsT], tally: Tally
    ) -> None:
        """Take the decoder, and what is made of a Template: its plan, then what the kernel wants of the plan."""
        self._decoder = decoder
        self.remembered_templates = decoder.remembered_templates
        self.remember_templates = decoder.remember_templates
        self._compile_plan = compile_plan
        self._compile_rows = compile_rows
        self._tally = tally
        self._rows: dict[Template, RowsT | None] = {}  # sessions with equal Templates share it
        self._rows_by_identity: dict[int, tuple[Template, RowsT | None]] = {}  # hashing a Template takes long
        self._init_times = InitTimes()
        self._messages = 0
        self._octets = 0
        self._templates = 0
        self._option_records = 0
        self._sets_without_template = 0
        self._sets_held = 0
        self._malformed_messages = 0
        self._malformed_templates = 0
        self._sequence_lost = 0
        self._reasons: dict[str, int] = {}

    def receive(
        self, message: bytes | memoryview, session: TransportSession, now: float, notices: Notices
    ) -> list[DataSet[RowsT]]:
        """Read one Message; its Data Sets about flows in wire order."""
        self._octets += len(message)
        data_sets: list[DataSet[RowsT]] = []
        domain = 0
        for event in self._decoder.receive_message(message, session, now):
            match event:
                case DataSetReceived():
                    rows = self.rows_of(event.template)
                    if rows is None:
                        self._option_records += len(event.records)
                        self._init_times.note(session, event)
                    elif event.records:
                        self._tally.records_received += len(event.records)
                        data_sets.append(DataSet(event, rows, self._init_times.of(session, domain)))
                case MessageReceived():
                    self._messages += 1
                    domain = event.header.observation_domain_id
                case TemplateReceived():
                    self._templates += 1
                case SequenceGap():
                    self._sequence_lost += event.lost
                case UndecodableSet():
                    self._sets_without_template += event.set_id >= 256
                    self._sets_held += event.is_held
                    self._note(notices, session, event.reason, event.set_id, domain)
                case RecordsDropped():
                    self._note(notices, session, event.error.reason, event.template_id, domain)
                case MalformedTemplate():
                    self._malformed_templates += 1
                    self._note(notices, session, event.error.reason, event.template_id or 0, domain)
                case MalformedMessage():
                    self._malformed_messages += 1
                    self._note(notices, session, event.error.reason, 0, domain)
                    if session.is_ordered:
                        notices.distrust(session)
                case _:  # a withdrawal: the decoder has forgotten the Template
                    pass
        return data_sets

    def close_session(self, session: TransportSession) -> None:
        """Forget a session."""
        self._decoder.close_session(session)
        self._init_times.forget(session)

    def tick(self, now: float) -> list[TransportSession]:
        """Expire Templates and silent sessions."""
        silent = self._decoder.expire(now)
        for session in silent:
            self._init_times.forget(session)
        return silent

    def statistics(self, *, held: int, waiting: int, strings_dropped: int) -> KernelStatistics:
        """The snapshot of these counters and the tally's."""
        tally, decoded = self._tally, self._decoder.statistics()
        return KernelStatistics(
            messages=self._messages,
            octets=self._octets,
            templates=self._templates,
            templates_remembered=decoded.templates_remembered,
            option_records=self._option_records,
            sets_without_template=self._sets_without_template,
            sets_held=self._sets_held,
            held_sets_expired=decoded.held_sets_expired,
            templates_expired=decoded.templates_expired,
            malformed_messages=self._malformed_messages,
            malformed_templates=self._malformed_templates,
            sequence_lost=self._sequence_lost,
            reasons=dict(self._reasons),
            records_received=tally.records_received,
            records_created=tally.records_created,
            records_merged=tally.records_merged,
            records_older=tally.records_older,
            records_rejected=dict(tally.records_rejected),
            flows_created=tally.flows_created,
            flows_exported_last=tally.flows_exported_last,
            flows_given_up=tally.flows_given_up,
            flows_restored=tally.flows_restored,
            flows_evicted=tally.flows_evicted,
            flows_held=held,
            flows_waiting=waiting,
            rows=tally.rows,
            counters_clamped=tally.counters_clamped,
            times_clamped=tally.times_clamped,
            elements_dropped=dict(tally.elements_dropped),
            elements_absent=dict(tally.elements_absent),
            strings_dropped=strings_dropped,
            http_vals_replaced=tally.http_vals_replaced,
        )

    def init_time_of(self, session: TransportSession, domain: int) -> int:
        """When a session's original exporter started, as an options record of the domain said; 0 without one."""
        return self._init_times.of(session, domain)

    def count(self, messages: int, octets: int, sequence_lost: int) -> None:
        """Count Messages that were read elsewhere."""
        self._messages += messages
        self._octets += octets
        self._sequence_lost += sequence_lost

    def rows_of(self, template: Template) -> RowsT | None:
        """What was compiled for a Template; None if its records are no flows."""
        known = self._rows_by_identity.get(id(template))
        if known is not None:  # the Template is held there, so that its identity is no other's
            return known[1]
        if template not in self._rows:
            if len(self._rows) >= _MAXIMUM_PLANS:
                self._rows.clear()
            plan = self._compile_plan(template)
            self._rows[template] = None if plan is None else self._compile_rows(template, plan)
        if len(self._rows_by_identity) >= _MAXIMUM_PLANS:
            self._rows_by_identity.clear()
        rows = self._rows[template]
        self._rows_by_identity[id(template)] = (template, rows)
        return rows

    def _note(self, notices: Notices, session: TransportSession, reason: Reason, subject: int, domain: int) -> None:
        self._reasons[reason.value] = self._reasons.get(reason.value, 0) + 1
        notices.add(session, reason, subject, domain)
