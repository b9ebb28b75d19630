"""How an exporter's word about a batch is taken: it may be any object, and is the plugin's own; pure."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import Final

from flowjoin._model.errors import PermanentExportError, said_by
from flowjoin._pipeline.lane_head import Part

__all__ = ["dead_letter_facts", "refused_rows", "wait_asked_for"]

_LONGEST_RETRY_AFTER: Final = 3600.0  # a destination that asks for a year is asked again sooner
_ROWS_NAMED: Final = 10  # of a batch's dead letters, in the log


def refused_rows(part: Part, exc: PermanentExportError) -> set[int] | None:
    """Indices of the rows that will never be taken; None where they are not those of the part."""
    rows: Collection[object] | None = exc.rows
    if rows is None:
        return set(range(len(part)))
    if not all(isinstance(row, int) and 0 <= row < len(part) for row in rows):
        return None
    return set(exc.rows or ())


def wait_asked_for(retry_after: object) -> float | None:
    """Seconds that the destination wants; a plugin may copy what it wrote, a text too: only a number is a wish."""
    if not isinstance(retry_after, int | float) or not isfinite(retry_after) or retry_after < 0:
        return None
    return min(retry_after, _LONGEST_RETRY_AFTER)


def dead_letter_facts(part: Part, refused: Collection[int], exc: Exception) -> dict[str, object]:
    """What the log says of a part's dead letters."""
    why: dict[str, object] = {"problem": said_by(exc)} if isinstance(exc, PermanentExportError) else {"exc_info": exc}
    return {"batch": part.id, "rows": len(refused), "first_rows": sorted(refused)[:_ROWS_NAMED], **why}
