"""From a decoded record to a row: a value for every element a kind of flow takes, in the kind's own order.

Strategy: a record is followed by the defaults of what its Template lacks, and one ``itemgetter`` picks from
both. Invariant: a row has the kind's order and length, whatever the Template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

from flowjoin._model.information_element import DataType, InformationElement, Value
from flowjoin._model.plan import Plan

__all__ = ["Row", "RowReader", "packed_default", "positions_of"]

# What a record holds depends on its Template, which the plan was compiled for: hence Any.
Row: TypeAlias = tuple[Any, ...]

_NTP_TIMES: Final = {DataType.DATE_TIME_MICROSECONDS, DataType.DATE_TIME_NANOSECONDS}
_PACKED_DEFAULTS: Final = {
    DataType.IPV4_ADDRESS: bytes(4),
    DataType.IPV6_ADDRESS: bytes(16),
    DataType.MAC_ADDRESS: bytes(6),
}


def packed_default(element: InformationElement) -> Value:
    """An element's default as it is in records and states: addresses packed."""
    return _PACKED_DEFAULTS.get(element.data_type, element.default)


def positions_of(plan: Plan) -> dict[str, int]:
    """The fields of a Template's records, by the names under which the flow takes them."""
    return {move.element: move.field_index for move in plan.moves}


class RowReader:
    """Picks a row of the given elements out of each record of one Template."""

    __slots__ = ("_defaults", "_pick", "_signed_times")

    def __init__(
        self,
        elements: Sequence[InformationElement],
        positions: Mapping[str, int],
        defaults: Mapping[str, Value] | None = None,
    ) -> None:
        """Compile.

        Args:
            elements: in the row's order; at least two.
            positions: of the fields that the Template has, by element name.
            defaults: values other than the elements' own defaults, for fields the Template lacks.
        """
        given = defaults or {}
        absent: dict[str, Value] = {}
        for element in elements:
            if element.name not in positions:
                absent[element.name] = given.get(element.name, packed_default(element))
        at = {name: position - len(absent) for position, name in enumerate(absent)}
        self._defaults = tuple(absent.values())
        # negative positions count from the end of record + defaults: a record's length need not be known
        self._pick: Callable[[Row], Row] = itemgetter(
            *(positions[e.name] if e.name in positions else at[e.name] for e in elements)
        )
        # An NTP stamp may lie before 1970, which no column can hold.
        self._signed_times = [at for at, element in enumerate(elements) if element.data_type in _NTP_TIMES]

    def __call__(self, record: Row) -> Row:
        row = self._pick(record + self._defaults)
        if not self._signed_times:
            return row
        values = list(row)
        for at in self._signed_times:
            values[at] = max(values[at], 0)
        return tuple(values)
