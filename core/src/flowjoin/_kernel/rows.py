"""From a decoded record to a row: a value for every element a kind of flow takes, in the kind's own order.

Strategy: a record is followed by the defaults of what its Template lacks, and one ``itemgetter`` picks from
both. Invariant: a row has the kind's order and length, whatever the Template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from flowjoin._model.information_element import DataType, InformationElement, Value
from flowjoin._model.plan import Plan

__all__ = ["Pick", "Row", "RowReader", "packed_default"]

# What a record holds depends on its Template, which the plan was compiled for: hence Any.
Row: TypeAlias = tuple[Any, ...]
Pick: TypeAlias = Callable[[Row], Row]

_PACKED_DEFAULTS = {DataType.IPV4_ADDRESS: bytes(4), DataType.IPV6_ADDRESS: bytes(16), DataType.MAC_ADDRESS: bytes(6)}


def packed_default(element: InformationElement) -> Value:
    """An element's default as it is in records and states: addresses packed."""
    return _PACKED_DEFAULTS.get(element.data_type, element.default)


class RowReader:
    """Picks a row of the given elements out of each record of one Template."""

    __slots__ = ("_defaults", "_pick")

    def __init__(
        self, elements: Sequence[InformationElement], plan: Plan, defaults: Mapping[str, Value] | None = None
    ) -> None:
        """Compile.

        Args:
            elements: in the row's order; at least two.
            plan: of the Template.
            defaults: values other than the elements' own defaults, for fields the Template lacks.
        """
        moved = {move.element: move.field_index for move in plan.moves}
        given = defaults or {}
        absent: dict[str, Value] = {}
        for element in elements:
            if element.name not in moved:
                absent[element.name] = given.get(element.name, packed_default(element))
        at = {name: position - len(absent) for position, name in enumerate(absent)}
        self._defaults = tuple(absent.values())
        # negative positions count from the end of record + defaults: a record's length need not be known
        self._pick: Pick = itemgetter(*(moved[e.name] if e.name in moved else at[e.name] for e in elements))

    def __call__(self, record: Row) -> Row:
        return self._pick(record + self._defaults)
