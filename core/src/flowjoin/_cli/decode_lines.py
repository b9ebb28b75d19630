"""The lines of ``flowjoin decode``: decoder events to values ready for JSON, and what they add up to.

The names and shapes are what other programs read; they change only together with the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from flowjoin._model.errors import DecodeError
from flowjoin._model.information_element import InformationElement, Value
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire.events import (
    DataSetReceived,
    Event,
    MalformedMessage,
    MalformedTemplate,
    MessageReceived,
    RecordsDropped,
    SequenceGap,
    TemplateReceived,
    UndecodableSet,
)
from flowjoin.wire.text import json_value

__all__ = ["DecodeLines", "Line"]

Line: TypeAlias = dict[str, Any]  # JSON is what it is: strings, numbers and lists of them

_FIRST_DATA_SET = 256  # RFC 7011 section 3.3.2


class DecodeLines:
    """Makes the lines of one input and counts as it goes."""

    def __init__(self) -> None:
        self._messages = 0
        self._records = 0
        self._option_records = 0
        self._sets_without_template = 0
        self._malformed_messages = 0
        self._malformed_templates = 0
        self._sequence_lost = 0
        self._reasons: Counter[str] = Counter()

    def lines_of(self, session: TransportSession, events: Iterable[Event]) -> Iterator[Line]:
        """A line for each Template and each record among the events of one Message."""
        observation_domain_id = 0
        for event in events:
            match event:
                case MessageReceived(header=header):
                    self._messages += 1
                    observation_domain_id = header.observation_domain_id
                case TemplateReceived(template=template):
                    yield {
                        "type": "options_template" if template.is_options else "template",
                        "version": template.version,
                        "session": str(session),
                        "observation_domain_id": observation_domain_id,
                        "template_id": template.template_id,
                        "fields": [[field.element.name, field.length] for field in template.fields],
                    }
                case DataSetReceived():
                    yield from self._record_lines(session, event)
                case UndecodableSet():
                    self._sets_without_template += event.set_id >= _FIRST_DATA_SET
                    self._reasons[event.reason.value] += 1
                case MalformedMessage(error=error):
                    self.count_malformed_message(error)
                case MalformedTemplate(error=error):
                    self._malformed_templates += 1
                    self._reasons[error.reason.value] += 1
                case RecordsDropped(error=error):
                    self._reasons[error.reason.value] += 1
                case SequenceGap(lost=lost):
                    self._sequence_lost += lost

    def count_malformed_message(self, error: DecodeError) -> None:
        """Count octets that were to be a Message and are none."""
        self._malformed_messages += 1
        self._reasons[error.reason.value] += 1

    def count_reason(self, reason: Reason) -> None:
        """Count what ended the reading of the file."""
        self._reasons[reason.value] += 1

    def counters(self) -> Line:
        """The last line."""
        return {
            "type": "counters",
            "messages": self._messages,
            "records": self._records,
            "option_records": self._option_records,
            "sets_without_template": self._sets_without_template,
            "malformed_messages": self._malformed_messages,
            "malformed_templates": self._malformed_templates,
            "sequence_lost": self._sequence_lost,
            "reasons": dict(sorted(self._reasons.items())),
        }

    def _record_lines(self, session: TransportSession, event: DataSetReceived) -> Iterator[Line]:
        template = event.template
        if template.is_options:
            self._option_records += len(event.records)
        else:
            self._records += len(event.records)
        elements = [field.element for field in template.fields]
        for record in event.records:
            yield {
                "type": "option_record" if template.is_options else "record",
                "version": template.version,
                "session": str(session),
                "observation_domain_id": event.header.observation_domain_id,
                "template_id": template.template_id,
                "elements": [_named_value(element, value) for element, value in zip(elements, record, strict=True)],
            }


def _named_value(element: InformationElement, value: Value) -> list[int | float | bool | str]:
    return [element.name, json_value(element, value)]
