"""The index beside a segment: one line a fact, each with its own checksum; pure.

A line is eight hexadecimal digits of CRC-32, a blank, and a JSON object. What the octets of a segment cannot say stands
here: which piece belongs to which batch, what a batch is called, where its rows end.

* ``head``: the instance and the lane, the segment's number.
* ``schema``: origin, family and elements behind a Template id.
* ``rows``: a piece of a batch: where it lies in the segment, its checksum. Its batch is still open.
* ``batch``: the batch of that group is closed: its ordinal, its id, its rows. Written before ``export`` sees it.

Invariant: any octets give lines or are counted as damaged; a damaged line costs what it says and nothing else.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema
from flowjoin._model.information_element import (
    DataType,
    ElementId,
    EnterpriseNumber,
    InformationElement,
    MergeRule,
)

__all__ = [
    "FORMAT",
    "MAX_LINE_OCTETS",
    "Batch",
    "Head",
    "Index",
    "Piece",
    "batch_line",
    "format_of",
    "head_line",
    "line_of",
    "read_index",
    "rows_line",
    "schema_line",
    "value_of",
]

MAX_LINE_OCTETS: Final = 8 * 1024 * 1024
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Head:
    """Whose segment it is."""

    instance_id: str
    lane: str
    segment: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a batch in one stretch of the segment."""

    offset: int
    length: int
    checksum: int
    rows: int
    template_id: int
    is_first_export: bool
    octets: int  # in memory, estimated
    written_at: float
    reason: str = ""  # why these rows are dead letters


@dataclass(frozen=True, slots=True)
class Batch:
    """A closed batch; ``ordinal`` counts in its segment, from 0."""

    ordinal: int
    epoch: int
    sequence: int
    rows: int
    pieces: tuple[Piece, ...]

    @property
    def is_whole(self) -> bool:
        """Whether no line of it was damaged."""
        return sum(piece.rows for piece in self.pieces) == self.rows

    @property
    def octets(self) -> int:
        """In memory, estimated."""
        return sum(piece.octets for piece in self.pieces)


@dataclass(slots=True)
class Index:
    """What an index says.

    Attributes:
        batches: closed, in order.
        open_groups: pieces whose batch was never closed, by group, in order of their first piece.
        damaged_lines: that could not be read.
    """

    head: Head | None = None
    schemas: dict[int, FlowSchema] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    open_groups: dict[int, list[Piece]] = field(default_factory=dict)
    damaged_lines: int = 0


def line_of(facts: object) -> bytes:
    """One line."""
    text = json.dumps(facts, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def value_of(line: bytes) -> Any:  # whatever JSON has
    """What a line says.

    Raises:
        ValueError: it is damaged.
    """
    text = line[9:].rstrip(b"\n")
    if not line.endswith(b"\n") or line[:9] != b"%08x " % zlib.crc32(text):
        raise ValueError("a damaged line")
    return json.loads(text)


def head_line(head: Head) -> bytes:
    return line_of({"t": "head", "v": FORMAT, "instance": head.instance_id, "lane": head.lane, "segment": head.segment})


def format_of(line: bytes) -> int | None:
    """Of the index that begins with that line; None where it does not say."""
    try:
        return int(value_of(line)["v"])
    except (ValueError, KeyError, TypeError):
        return None


def schema_line(template_id: int, schema: FlowSchema) -> bytes:
    return line_of(
        {
            "t": "schema",
            "k": template_id,
            "origin": schema.origin.value,
            "family": schema.family.value,
            "elements": [_element_facts(element) for element in schema.elements],
        }
    )


def rows_line(group: int, piece: Piece) -> bytes:
    facts = {
        "t": "rows",
        "g": group,
        "o": piece.offset,
        "l": piece.length,
        "c": piece.checksum,
        "n": piece.rows,
        "k": piece.template_id,
        "f": int(piece.is_first_export),
        "m": piece.octets,
        "at": round(piece.written_at, 3),
    }
    if piece.reason:
        facts["why"] = piece.reason
    return line_of(facts)


def batch_line(group: int, batch: Batch) -> bytes:
    return line_of(
        {"t": "batch", "g": group, "b": batch.ordinal, "e": batch.epoch, "q": batch.sequence, "n": batch.rows}
    )


def read_index(lines: Iterable[bytes], registry: ElementRegistry) -> Index:
    """Everything that undamaged lines say.

    Args:
        lines: each with its line feed.
        registry: of the schemas made.
    """
    index = Index()
    for line in lines:
        try:
            _take(index, value_of(line), registry)
        except (ValueError, KeyError, TypeError, AssertionError):
            index.damaged_lines += 1
    return index


def _take(index: Index, facts: Any, registry: ElementRegistry) -> None:
    match facts["t"]:
        case "head":
            index.head = Head(str(facts["instance"]), str(facts["lane"]), int(facts["segment"]))
        case "schema":
            index.schemas[facts["k"]] = _schema_of(facts, registry)
        case "rows":
            piece = Piece(
                offset=int(facts["o"]),
                length=int(facts["l"]),
                checksum=int(facts["c"]),
                rows=int(facts["n"]),
                template_id=int(facts["k"]),
                is_first_export=bool(facts["f"]),
                octets=int(facts["m"]),
                written_at=float(facts["at"]),
                reason=str(facts.get("why", "")),
            )
            index.open_groups.setdefault(int(facts["g"]), []).append(piece)
        case "batch":
            ordinal, epoch, sequence, rows = (int(facts[key]) for key in "beqn")
            pieces = index.open_groups.pop(int(facts["g"]), [])
            index.batches.append(Batch(ordinal, epoch, sequence, rows, tuple(pieces)))
        case other:
            raise ValueError(f"an unknown line {other}")


def _element_facts(element: InformationElement) -> list[object]:
    return [
        element.name,
        element.enterprise_number,
        element.element_id,
        element.data_type.value,
        element.length,
        element.semantics,
        element.units,
        element.merge_rule.value if element.merge_rule else "",
    ]


def _schema_of(facts: Any, registry: ElementRegistry) -> FlowSchema:
    return FlowSchema(
        origin=FlowOrigin(facts["origin"]),
        family=AddressFamily(facts["family"]),
        elements=tuple(_element_of(*row) for row in facts["elements"]),
        registry=registry,
    )


def _element_of(
    name: str, enterprise: int, number: int, data_type: str, length: int, semantics: str, units: str, rule: str
) -> InformationElement:
    return InformationElement(
        name=name,
        element_id=ElementId(number),
        enterprise_number=EnterpriseNumber(enterprise),
        data_type=DataType(data_type),
        length=length,
        semantics=semantics,
        units=units,
        merge_rule=MergeRule(rule) if rule else None,
    )
