"""Templates, Data Sets and faults that tests of the decoder share."""

from __future__ import annotations

from wire_builders import template

from flowjoin._model.reasons import Reason
from flowjoin._model.template import Template
from flowjoin.wire import (
    Event,
    MalformedMessage,
    MalformedTemplate,
    RecordsDropped,
    encode_data_set,
    encode_template_set,
)

__all__ = ["NAMES", "OPTIONS", "OTHER_ID", "PORTS", "data", "defined", "error"]

PORTS = template("sourceTransportPort", "destinationTransportPort")
NAMES = template("interfaceName", "protocolIdentifier")
OPTIONS = template("observationDomainId", "exportedMessageTotalCount", scope=1)
OTHER_ID = template("protocolIdentifier", template_id=257)


def defined(*templates: Template) -> bytes:
    return encode_template_set(templates)


def data(*rows: tuple[int, int]) -> bytes:
    return encode_data_set(PORTS, rows)


def error(event: Event) -> tuple[Reason, int, tuple[str, ...]]:
    assert isinstance(event, MalformedMessage | MalformedTemplate | RecordsDropped)
    return event.error.reason, event.error.offset, event.error.path
