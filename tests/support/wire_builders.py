"""Short ways to write Messages and ask for events in the tests of the wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowjoin._model.information_element import Value
from flowjoin._model.template import FieldSpecifier, Template, TemplateId
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire import DataSetReceived, Decoder, Event, default_registry, encode_message

UDP = TransportSession(protocol="udp", peer="192.0.2.1", peer_port=50001)
TCP = TransportSession(protocol="tcp", peer="192.0.2.1", peer_port=50001, serial=1)


def template(*fields: str | tuple[str, int], template_id: int = 256, scope: int = 0) -> Template:
    """A Template of registered elements, by name, or by name and length; with ``scope`` an Options Template."""
    specifiers = []
    for item in fields:
        name, length = item if isinstance(item, tuple) else (item, None)
        element = default_registry().by_name(name)
        specifiers.append(FieldSpecifier(element, element.length if length is None else length))
    return Template(
        version=10,
        template_id=TemplateId(template_id),
        fields=tuple(specifiers),
        is_options=scope > 0,
        scope_field_count=scope,
    )


def raw_set(set_id: int, body: bytes | str) -> bytes:
    octets = bytes.fromhex(body) if isinstance(body, str) else body
    return set_id.to_bytes(2, "big") + (4 + len(octets)).to_bytes(2, "big") + octets


def message(*sets: bytes, sequence: int = 0, domain: int = 1, export_time: int = 1_700_000_000) -> bytes:
    return encode_message(sets, export_time=export_time, sequence_number=sequence, observation_domain_id=domain)


def receive(
    decoder: Decoder,
    *sets: bytes,
    session: TransportSession = UDP,
    now: float = 0.0,
    sequence: int = 0,
    domain: int = 1,
) -> list[Event]:
    """The events of one Message, without the first, which says that it came."""
    return decoder.receive_message(message(*sets, sequence=sequence, domain=domain), session, now)[1:]


def records(events: Iterable[Event]) -> list[tuple[Value, ...]]:
    return [record for event in events if isinstance(event, DataSetReceived) for record in event.records]


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]
