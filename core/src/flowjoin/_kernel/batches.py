"""From packed states to batches: rows are gathered by schema, then turned into columns at once.

Invariant: batches come in the order of their first rows, rows in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowjoin._kernel.strings import Strings
from flowjoin._model.column_building import column_of
from flowjoin._model.columns import Column, PackedColumn
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.information_element import DataType, InformationElement
from flowjoin._model.state_layout import StateLayout, Storage, storage_of

__all__ = ["BatchMaker", "column_of_stored"]

Handle = tuple[int, int]  # a flow's handle and serial number


class BatchMaker:
    """Gathers the rows of one call, and makes its batches."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._groups: dict[tuple[int, bool], _Group] = {}
        self.rows = 0

    def add(self, layout: StateLayout, state: bytearray, *, is_first_export: bool, handle: Handle | None) -> None:
        """Take a flow's row as it is now; the state may change afterwards."""
        group = self._groups.get((id(layout), is_first_export))
        if group is None:
            group = self._groups[id(layout), is_first_export] = _Group(layout, self._strings)
        group.add(layout.struct.unpack(state), handle)
        self.rows += 1

    def batches(self) -> list[FlowBatch]:
        """Everything that was added."""
        return [group.batch(is_first_export=is_first) for (_, is_first), group in self._groups.items()]


class _Group:
    """Rows of one batch."""

    def __init__(self, layout: StateLayout, strings: Strings) -> None:
        self._layout = layout
        self._strings = strings
        self._rows: list[tuple[Any, ...]] = []  # struct gives Any
        self._handles: list[Handle | None] = []
        self._texts: list[tuple[str | bytes, ...]] = []

    def add(self, row: tuple[Any, ...], handle: Handle | None) -> None:
        # Texts are taken now: what only this flow holds is gone when the flow leaves.
        numbers = row[len(row) - self._layout.interned_count :]
        self._texts.append(tuple(map(self._strings.__getitem__, numbers)))
        self._rows.append(row[: len(row) - self._layout.interned_count])
        self._handles.append(handle)

    def batch(self, *, is_first_export: bool) -> FlowBatch:
        layout = self._layout
        stored = [*zip(*self._rows, strict=True), *zip(*self._texts, strict=True)]
        columns = []
        for element, position in zip(layout.schema.elements, layout.source_positions, strict=True):
            values = stored[position]
            if element.name in layout.derived:
                values = tuple(map(layout.derived[element.name].function, values))
            columns.append(column_of_stored(element, values))
        return FlowBatch(layout.schema, columns, is_first_export=is_first_export, handles=self._handles)


def column_of_stored(element: InformationElement, values: Sequence[Any]) -> Column:
    """A column of values as records and states have them: addresses packed, the empty string for empty octets."""
    storage, _ = storage_of(element)
    if storage in (Storage.ADDRESS, Storage.OCTETS):
        return PackedColumn(element, b"".join(values))
    if storage is Storage.INTERNED and element.data_type is not DataType.STRING:
        return column_of(element, [value or b"" for value in values])
    return column_of(element, values)
