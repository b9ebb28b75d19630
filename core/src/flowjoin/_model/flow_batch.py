"""Rows of one schema, in columns: what crosses every stage and plugin boundary."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from flowjoin._model.arrow import arrow_array, arrow_schema, arrow_stream
from flowjoin._model.column_building import column_of, default_column, join_columns
from flowjoin._model.columns import CodedValues, Column, factorise
from flowjoin._model.flow_schema import AddressFamily, FlowSchema
from flowjoin._model.information_element import DataType, Value
from flowjoin._model.steps import at_once

__all__ = ["AddressRole", "FlowBatch", "join_slowly"]

AddressRole: TypeAlias = Literal["source", "destination", "destinationCluster", "destinationService", "proxySnat"]

_ADDRESS_ELEMENTS: Final[dict[str, dict[AddressFamily, str]]] = {
    role: {AddressFamily.IPV4: name.replace("#", "4"), AddressFamily.IPV6: name.replace("#", "6")}
    for role, name in {
        "source": "sourceIPv#Address",
        "destination": "destinationIPv#Address",
        "destinationCluster": "destinationClusterIPv#",
        "destinationService": "destinationServiceIPv#",
        "proxySnat": "proxySnatIPv#",
    }.items()
}
_FLOATS: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64})
_STEP_COST: Final = 40_000  # of ``join_columns``: a millisecond, two where the processor is busy with other things


class FlowBatch:
    """Immutable rows of one schema; each batch owns its columns.

    Nothing is null: an element that a record does not have stands there with its default. Two batches
    are equal when schema and values are, whatever their ids.
    """

    __slots__ = ("__weakref__", "_columns", "_handles", "_id", "_is_first_export", "_length", "_octets", "_schema")

    def __init__(
        self,
        schema: FlowSchema,
        columns: Sequence[Column],
        *,
        id: str = "",
        is_first_export: bool = False,
        handles: Sequence[object] = (),
    ) -> None:
        """Take columns that are made already; others use ``from_columns`` or ``from_rows``.

        Args:
            schema: has as many elements, in this order.
            columns: of equal length, one form each as the element's data type wants.
            id: names these rows for ever; empty until a lane gives one.
            is_first_export: whether the flows of these rows are exported for the first time.
            handles: one per row or none, meant for the kernel that made the batch and nobody else.
        """
        assert len(columns) == len(schema.elements), "one column per element"
        self._schema = schema
        self._columns = tuple(columns)
        self._length = len(columns[0]) if columns else 0
        assert all(len(column) == self._length for column in columns), "columns of equal length"
        assert len(handles) in (0, self._length), "one handle per row"
        self._id = id
        self._is_first_export = is_first_export
        self._handles = handles
        self._octets: int | None = None

    @classmethod
    def from_columns(
        cls, schema: FlowSchema, columns: Mapping[str, Sequence[Value]], *, is_first_export: bool = False
    ) -> FlowBatch:
        """A batch of Python values by element name; an element that is not given has its default.

        Raises:
            ValueError: a name that is no column of the schema, columns of different lengths, or a value
                that its element's data type does not have.
        """
        for name in columns:
            if name not in schema:
                raise ValueError(f"{name} is not an element of the schema")
        length = len(next(iter(columns.values()))) if columns else 0
        return cls(
            schema,
            [
                _checked(column_of(element, columns[element.name]), length)
                if element.name in columns
                else default_column(element, length)
                for element in schema.elements
            ],
            is_first_export=is_first_export,
        )

    @classmethod
    def from_rows(cls, schema: FlowSchema, rows: Iterable[Sequence[Value]]) -> FlowBatch:
        """A batch of rows, each with a value per element in the schema's order.

        Raises:
            ValueError: a row with too few or too many values, or a value that its element's data type
                does not have.
        """
        rows = list(rows)
        for number, row in enumerate(rows):
            if len(row) != len(schema.elements):
                raise ValueError(f"row {number} has {len(row)} values for {len(schema.elements)} elements")
        values = zip(*rows, strict=True) if rows else ((),) * len(schema.elements)
        return cls(schema, list(map(column_of, schema.elements, values)))

    @staticmethod
    def concatenate(batches: Sequence[FlowBatch]) -> FlowBatch:
        """All rows in order, in one batch without id and without handles.

        It holds first exports if every batch does.

        Raises:
            ValueError: no batch, or batches of different schemas.
        """
        return at_once(join_slowly(batches))

    @property
    def schema(self) -> FlowSchema:
        return self._schema

    @property
    def id(self) -> str:
        """Names these rows for ever; empty until a lane gives one."""
        return self._id

    @property
    def is_first_export(self) -> bool:
        """Whether the flows of these rows are exported for the first time."""
        return self._is_first_export

    @property
    def handles(self) -> Sequence[object]:
        """The kernel's own, one per row or none."""
        return self._handles

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in the order of the schema's elements."""
        return self._columns

    @property
    def octets(self) -> int:
        """Octets held in memory, estimated."""
        if self._octets is None:  # asked for again and again, wherever rows are held
            self._octets = sum(column.octets for column in self._columns)
        return self._octets

    def __len__(self) -> int:
        return self._length

    def column(self, name: str) -> Column:
        """An element's values; the default in every row for a registered element outside the schema.

        Raises:
            KeyError: the registry does not have the element.
        """
        if name in self._schema:
            return self._columns[self._schema.position(name)]
        return default_column(self._schema.registry.by_name(name), self._length)

    def address_text(self, role: AddressRole) -> Sequence[str]:
        """Addresses of the batch's family in their role, as text.

        Raises:
            KeyError: no such role.
        """
        return self.column(_ADDRESS_ELEMENTS[role][self._schema.family])  # type: ignore[return-value]  # text: addresses

    def rows(self) -> Iterator[tuple[Value, ...]]:
        """Row by row, values in schema order."""
        return zip(*(column.tolist() for column in self._columns), strict=True)

    def to_dicts(self) -> list[dict[str, Value]]:
        """Row by row by element name, as JSON takes it.

        Octets are hexadecimal digits; NaN and the infinities, for which JSON has no number, are the
        strings ``NaN``, ``Infinity`` and ``-Infinity``.
        """
        names = self._schema.names
        columns = map(_json_values, self._columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def map_distinct(self, names: str | Sequence[str], function: Callable[[Any], Value]) -> CodedValues:
        """A column of what the function makes of each row's value, called once per distinct value.

        Args:
            names: one element, whose value the function gets, or several, of whose values it gets one
                tuple. Registered elements outside the schema are allowed.
            function: sync; its results go into ``with_columns``.

        Raises:
            KeyError: the registry does not have an element.
            ValueError: no name.
        """
        parts = [self.column(name).distinct() for name in ([names] if isinstance(names, str) else names)]
        if not parts:
            raise ValueError("no element to map")
        if len(parts) == 1:
            codes, values = parts[0]
            return CodedValues(codes, list(map(function, values)))
        joint, rows = factorise(list(zip(*(codes.tolist() for codes, _ in parts), strict=True)))
        dictionaries = [dictionary for _, dictionary in parts]
        keys = (tuple(map(_at, dictionaries, row)) for row in rows)
        return CodedValues(joint, list(map(function, keys)))

    def with_columns(self, columns: Mapping[str, Sequence[Value]]) -> FlowBatch:
        """The same rows with these elements replaced, or appended in the order given.

        Raises:
            KeyError: the registry does not have an element.
            ValueError: a column of another length, or a value that its element's data type does not have.
        """
        elements = list(self._schema.elements)
        made = list(self._columns)
        for name, values in columns.items():
            if name in self._schema:
                position = self._schema.position(name)
                made[position] = _checked(column_of(elements[position], values), self._length)
            else:
                element = self._schema.registry.by_name(name)
                elements.append(element)
                made.append(_checked(column_of(element, values), self._length))
        is_wider = len(elements) > len(self._schema.elements)
        schema = replace(self._schema, elements=tuple(elements)) if is_wider else self._schema
        return FlowBatch(schema, made, id=self._id, is_first_export=self._is_first_export, handles=self._handles)

    def with_id(self, id: str) -> FlowBatch:
        """The same rows under a name."""
        return FlowBatch(
            self._schema, self._columns, id=id, is_first_export=self._is_first_export, handles=self._handles
        )

    def slice(self, start: int, stop: int) -> FlowBatch:
        """Rows from start up to stop, as Python slices count; without id, for these are other rows."""
        return FlowBatch(
            self._schema,
            [column[start:stop] for column in self._columns],
            is_first_export=self._is_first_export,
            handles=self._handles[start:stop],
        )

    def take(self, indices: Sequence[int]) -> FlowBatch:
        """The rows of these numbers in this order, repeats allowed; without id.

        Raises:
            IndexError: a number below 0 or not below the length.
        """
        if indices and not 0 <= min(indices) <= max(indices) < self._length:
            raise IndexError(f"a row outside 0 to {self._length - 1}")
        return FlowBatch(
            self._schema,
            [column.take(indices) for column in self._columns],
            is_first_export=self._is_first_export,
            handles=[self._handles[index] for index in indices] if self._handles else (),
        )

    # The Arrow PyCapsule interface. A consumer that asks for another schema converts by itself, which the
    # interface allows. Capsules and what comes of them may outlive the batch.

    def __arrow_c_schema__(self) -> object:
        return arrow_schema(self._schema.elements)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return arrow_array(self._schema.elements, self._columns, self._length)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return arrow_stream(self._schema.elements, self._columns, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FlowBatch):
            return NotImplemented
        return self._schema == other._schema and self._columns == other._columns

    __hash__ = None  # type: ignore[assignment]  # equal by values, and those are many

    def __repr__(self) -> str:
        facts = [f"{self._schema.origin.value} IPv{self._schema.family}", f"{self._length} rows"]
        facts.append(f"{len(self._columns)} elements")
        if self._is_first_export:
            facts.append("first export")
        if self._id:
            facts.append(f"id {self._id!r}")
        return f"<FlowBatch: {', '.join(facts)}>"


def join_slowly(batches: Sequence[FlowBatch]) -> Generator[None, None, FlowBatch]:
    """As ``FlowBatch.concatenate``, in steps of a millisecond or two; to be iterated to its end.

    Raises:
        ValueError: no batch, or batches of different schemas.
    """
    if not batches:
        raise ValueError("no batch to concatenate")
    batches = tuple(batches)  # whoever gave them may change the list between two steps
    first = batches[0]
    if any(batch.schema != first.schema for batch in batches):
        raise ValueError("batches of different schemas cannot be concatenated")
    columns: list[Column] = []
    spent = 0
    for parts in zip(*(batch.columns for batch in batches), strict=True):
        joining = join_columns(parts)
        while True:
            try:
                spent += next(joining)
            except StopIteration as joined:
                columns.append(joined.value)
                break
            if spent >= _STEP_COST:
                spent = 0
                yield
    return FlowBatch(first.schema, columns, is_first_export=all(batch.is_first_export for batch in batches))


def _at(dictionary: tuple[Value, ...], code: int) -> Value:
    return dictionary[code]


def _checked(column: Column, length: int) -> Column:
    if len(column) != length:
        raise ValueError(f"{column.element.name}: {len(column)} values for {length} rows")
    return column


def _json_values(column: Column) -> list[Value]:
    values = column.tolist()
    if column.element.data_type in _FLOATS:
        return [_json_float(value) for value in values]
    if isinstance(column.element.default, bytes):
        return [bytes.hex(value) for value in values]  # type: ignore[arg-type]  # octets, as the default
    return values


def _json_float(value: Any) -> float | str:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
