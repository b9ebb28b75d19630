"""Templates: what a Data Record's octets mean (RFC 7011 section 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from flowjoin._model.information_element import VARIABLE_LENGTH, InformationElement

__all__ = ["FieldSpecifier", "Template", "TemplateId"]

TemplateId = NewType("TemplateId", int)


@dataclass(frozen=True, slots=True)
class FieldSpecifier:
    """One field of a Template.

    Attributes:
        element: the registry's row, or one made for an unknown element: named
            ``<enterprise>/<id>``, data type octetArray.
        length: octets in each record; VARIABLE_LENGTH when each record says.
        is_known: whether the registry has the element.
    """

    element: InformationElement
    length: int
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Template:
    """A Template or Options Template Record; equal content compares equal, so plans are shared.

    Attributes:
        version: 10 for IPFIX, 9 for NetFlow v9.
        template_id: 256 and above.
        fields: in wire order, repeats kept.
        is_options: whether this is an Options Template Record.
        scope_field_count: how many leading fields of an Options Template are scope.
    """

    version: int
    template_id: TemplateId
    fields: tuple[FieldSpecifier, ...]
    is_options: bool = False
    scope_field_count: int = 0

    @property
    def minimum_record_length(self) -> int:
        """Octets of the shortest record: a variable-length field takes one at least (RFC 7011 section 7)."""
        return sum(1 if field.length == VARIABLE_LENGTH else field.length for field in self.fields)
