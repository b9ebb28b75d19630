"""What goes over one connection: framed rows, and before them the Templates they need.

A Transport Session begins with every connection: its sequence starts at 0, and its collector knows no Template yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from flowjoin.wire import Template, encode_message, encode_template_set
from flowjoin_ipfix._rows import Unit

__all__ = ["IpfixSession", "JsonSession", "Session"]

_MESSAGE_HEADER_OCTETS: Final = 16
_SET_HEADER_OCTETS: Final = 4
_MODULUS: Final = 1 << 32


class Session(Protocol):
    """Makes what is sent, in the order it is sent."""

    def definitions(self, templates: Iterable[Template], *, again: bool = False) -> list[bytes]:
        """What must go before rows of these Templates: nothing for those that were sent, unless ``again``."""
        ...

    def framed(self, unit: Unit) -> bytes:
        """A unit as it is sent; ``sent`` says that it was."""
        ...

    def sent(self, unit: Unit) -> None: ...


class IpfixSession:
    """Messages of one Transport Session (RFC 7011), one Set in each, as Antrea's own collectors want it."""

    def __init__(self, observation_domain_id: int, export_time: Callable[[], int]) -> None:
        self._observation_domain_id = observation_domain_id
        self._export_time = export_time
        self._sequence_number = 0
        self._defined: set[int] = set()

    @staticmethod
    def room(limit: int) -> int:
        """Octets of Data Records in a Message of at most so many octets."""
        return limit - _MESSAGE_HEADER_OCTETS - _SET_HEADER_OCTETS

    @staticmethod
    def definition_octets(template: Template) -> int:
        """Octets of the Message that defines a Template."""
        return _MESSAGE_HEADER_OCTETS + len(encode_template_set([template]))

    def definitions(self, templates: Iterable[Template], *, again: bool = False) -> list[bytes]:
        wanted = [template for template in templates if again or template.template_id not in self._defined]
        messages = [self._message(encode_template_set([template])) for template in wanted]
        self._defined.update(template.template_id for template in wanted)
        return messages

    def framed(self, unit: Unit) -> bytes:
        header = unit.template_id.to_bytes(2, "big") + (len(unit.octets) + _SET_HEADER_OCTETS).to_bytes(2, "big")
        return self._message(header + unit.octets)

    def sent(self, unit: Unit) -> None:
        self._sequence_number = (self._sequence_number + unit.rows) % _MODULUS

    def _message(self, octets: bytes) -> bytes:
        return encode_message(
            [octets],
            export_time=self._export_time(),
            sequence_number=self._sequence_number,
            observation_domain_id=self._observation_domain_id,
        )


class JsonSession:
    """Lines, with nothing around them."""

    def definitions(self, templates: Iterable[Template], *, again: bool = False) -> list[bytes]:
        return []

    def framed(self, unit: Unit) -> bytes:
        return unit.octets

    def sent(self, unit: Unit) -> None:
        pass
