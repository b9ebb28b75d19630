"""What formats of lines share: a batch in slices that are short, and the texts of single values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flowjoin._kernel.row_writing import Piece, rows_per_slice, write_rows
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import ConfigError
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.information_element import DataType, InformationElement
from flowjoin.wire.text import text_of

__all__ = ["TIMES", "cut_into_slices", "plain_text", "refuse_unknown_elements", "write_in_chunks"]

TIMES: Final = frozenset(
    {
        DataType.DATE_TIME_SECONDS,
        DataType.DATE_TIME_MILLISECONDS,
        DataType.DATE_TIME_MICROSECONDS,
        DataType.DATE_TIME_NANOSECONDS,
    }
)


def refuse_unknown_elements(names: Iterable[str], registry: ElementRegistry, *, path: str = "elements") -> None:
    """See to it that every name is an Information Element.

    Args:
        path: the key whose list they stand in.

    Raises:
        ConfigError: one is not.
    """
    for index, name in enumerate(names):
        try:
            registry.by_name(name)
        except KeyError:
            raise ConfigError(
                f"there is no Information Element {name!r}; names are IANA's or Antrea's, such as octetDeltaCount",
                path=f"{path}[{index}]",
            ) from None


def cut_into_slices(batch: FlowBatch, rows: int) -> Iterable[FlowBatch]:
    """The batch in order, in batches of at most so many rows."""
    return (batch.slice(start, min(start + rows, len(batch))) for start in range(0, len(batch), rows))


def write_in_chunks(
    pieces: Sequence[Piece], rows: int, *, at_once: int, most_lines: int | None = None
) -> Iterable[bytes]:
    """Whole lines in order.

    Args:
        pieces: what a line consists of.
        rows: how many lines there are.
        at_once: how many are written in one step without compiled code.
        most_lines: that are given at once; None: what one step wrote.
    """
    step = rows_per_slice(at_once)
    for first in range(0, rows, step):
        octets, ends = write_rows(pieces, rows, first, min(first + step, rows))
        if most_lines is None:
            yield octets
            continue
        start = 0
        for last in range(most_lines, len(ends) + most_lines, most_lines):
            end = ends[min(last, len(ends)) - 1]
            yield octets[start:end]
            start = end


def plain_text(element: InformationElement, *, iso_times: bool) -> Callable[[object], str]:
    """How a value is written where no format asks for more: as flowjoin does, times as numbers unless ``iso_times``."""
    if element.data_type in TIMES and not iso_times:
        return str
    return lambda value: text_of(element, value)  # type: ignore[arg-type]  # values of the element
