"""What enrichers gave for a batch, into the flows: only where a flow has the element's default.

Invariant: all values are checked before the first is stored; a bad one changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from flowjoin._kernel.later_records import Place
from flowjoin._kernel.strings import Strings
from flowjoin._model.column_building import column_of
from flowjoin._model.columns import Column, PackedColumn
from flowjoin._model.information_element import MergeRule, Value
from flowjoin._model.schemas import UNKNOWN_DIRECTION
from flowjoin._model.state_layout import StateLayout

__all__ = ["EnrichedColumns"]

_FILLABLE: Final = {MergeRule.FIRST, MergeRule.LATEST, MergeRule.FILL}


class EnrichedColumns:
    """Columns by element name, one value a row.

    Attributes:
        columns: where each element has its place, and its values as states have them.
    """

    def __init__(self, layout: StateLayout, rows: int, columns: Mapping[str, Sequence[Value]]) -> None:
        """Check.

        Raises:
            ValueError: a column of an element that flows have no place for, or that records alone tell, of
                another length, or with a value that its element's data type does not have.
        """
        self.columns: list[tuple[Place, list[Value]]] = []
        for name, values in columns.items():
            slot = layout.slots.get(name)
            if slot is None:
                raise ValueError(f"{name}: flows have no place for it, as no enricher declared to add it")
            if slot.rule not in _FILLABLE:
                raise ValueError(f"{name}: records alone tell it (merge rule {slot.rule.value})")
            column = column_of(slot.element, values)
            if len(column) != rows:
                raise ValueError(f"{name}: {len(column)} values for {rows} rows")
            place = Place(0, slot)
            if name == "flowDirection":
                place.zero = UNKNOWN_DIRECTION
            self.columns.append((place, _stored(column)))

    def fill(self, row: int, state: bytearray, strings: Strings) -> None:
        """Store one row's values where the flow's own are empty."""
        for place, values in self.columns:
            if place.is_empty(state):
                place.write(state, values[row], strings)


def _stored(column: Column) -> list[Value]:
    """A column's values as states have them: addresses packed."""
    if not isinstance(column, PackedColumn):
        return column.tolist()
    octets, size = bytes(column.buffer), column.element.length
    return [octets[at : at + size] for at in range(0, len(octets), size)]
