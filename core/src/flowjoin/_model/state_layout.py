"""Where each element of a flow lies in its packed state: computed once, at start, from the schema.

A state is one fixed-size run of octets. The core's own counters lead, so that it reads and writes them as
one block; then come all other values; interned strings and octets, of which the state holds the number,
are last. Invariant: every element of the schema is in exactly one slot, or derived from one.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from flowjoin._model.flow_schema import FlowSchema
from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, InformationElement, MergeRule
from flowjoin._model.merge_rules import merge_rule

__all__ = ["Derivation", "Slot", "StateLayout", "Storage", "storage_of"]

_FORMATS: Final = {
    DataType.UNSIGNED8: "B",
    DataType.UNSIGNED16: "H",
    DataType.UNSIGNED32: "I",
    DataType.UNSIGNED64: "Q",
    DataType.SIGNED8: "b",
    DataType.SIGNED16: "h",
    DataType.SIGNED32: "i",
    DataType.SIGNED64: "q",
    DataType.FLOAT32: "d",
    DataType.FLOAT64: "d",
    DataType.BOOLEAN: "?",
    DataType.DATE_TIME_SECONDS: "I",
    DataType.DATE_TIME_MILLISECONDS: "Q",
    DataType.DATE_TIME_MICROSECONDS: "Q",
    DataType.DATE_TIME_NANOSECONDS: "Q",
    DataType.MAC_ADDRESS: "6s",
    DataType.IPV4_ADDRESS: "4s",
    DataType.IPV6_ADDRESS: "16s",
}


class Storage(enum.Enum):
    """What a slot holds."""

    NUMBER = "number"  # int, float or bool
    OCTETS = "octets"  # a fixed number of octets, as they are
    ADDRESS = "address"  # the packed octets of an IP or MAC address, text in batches
    INTERNED = "interned"  # the number of a string or of octets of any length


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One element's place."""

    element: InformationElement
    rule: MergeRule
    storage: Storage
    format: str
    offset: int


@dataclass(frozen=True, slots=True)
class Derivation:
    """An element that needs no slot: its value is a function of another's."""

    source: str
    function: Callable[[int], int]


def storage_of(element: InformationElement) -> tuple[Storage, str]:
    """How an element's value is stored, and its ``struct`` format."""
    code = _FORMATS.get(element.data_type)
    if code is None:
        if element.data_type is DataType.OCTET_ARRAY and element.length != VARIABLE_LENGTH:
            return Storage.OCTETS, f"{element.length}s"
        return Storage.INTERNED, "I"
    return (Storage.ADDRESS if code.endswith("s") else Storage.NUMBER), code


class StateLayout:
    """The places of one schema's elements.

    Attributes:
        schema: whose elements they are.
        struct: all slots, in state order.
        slots: by element name, in state order.
        derived: elements without a slot of their own.
        interned_offset: where the numbers of strings begin, which are last.
        interned_count: how many.
        interned: reads them all.
        source_positions: for each column of the schema, the position of its slot in ``struct``'s order.
    """

    def __init__(
        self,
        schema: FlowSchema,
        *,
        leading: Sequence[str] = (),
        derived: Mapping[str, Derivation] | None = None,
        hidden: Sequence[InformationElement] = (),
    ) -> None:
        """Compute.

        Args:
            schema: of the batches that are made from the states.
            leading: elements that come first, in this order.
            derived: elements computed from another's slot.
            hidden: further 64-bit counters, in no batch; they come after the leading ones.

        Raises:
            ConfigError: an element's merge rule cannot be followed.
        """
        self.schema = schema
        self.derived = dict(derived or {})
        stored = [element for element in schema.elements if element.name not in self.derived]
        first = [schema.elements[schema.position(name)] for name in leading]
        rest = [element for element in stored if element.name not in leading]
        in_order = [
            *first,
            *hidden,
            *(element for element in rest if storage_of(element)[0] is not Storage.INTERNED),
            *(element for element in rest if storage_of(element)[0] is Storage.INTERNED),
        ]
        self.slots: dict[str, Slot] = {}
        code = "<"
        for element in in_order:
            storage, letter = storage_of(element)
            rule = MergeRule.COMPUTED if element in hidden else merge_rule(element, schema.origin)
            offset = struct.calcsize(code)
            self.slots[element.name] = Slot(element=element, rule=rule, storage=storage, format=letter, offset=offset)
            code += letter
        self.struct = struct.Struct(code)
        self.interned_offset = next(
            (slot.offset for slot in self.slots.values() if slot.storage is Storage.INTERNED), self.struct.size
        )
        self.interned_count = (self.struct.size - self.interned_offset) // 4
        self.interned = struct.Struct(f"<{self.interned_count}I")
        order = {name: position for position, name in enumerate(self.slots)}
        self.source_positions = tuple(
            order[self.derived[name].source if name in self.derived else name] for name in schema.names
        )

    def offset(self, name: str) -> int:
        """Octets from the state's beginning to an element's value."""
        return self.slots[name].offset
