"""``flowjoin run``, but each row has a mark, and what a spool removes lies in ``kept`` beside the spools.

    FLOWJOIN_SOAK_LIFE=1 python kept_flowjoin.py run -c FILE

So what was ever appended to a spool can be counted, and two rows are never alike: before a row is handed to the lanes,
its ``reverseOctetDeltaCount`` becomes a number that no other row of this life or another has.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from soak_books import first_mark

from flowjoin.__main__ import main
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.outlets import Outlets
from flowjoin._pipeline.spool.disk import Disk

__all__ = ["LIFE", "MARK"]

LIFE: Final = "FLOWJOIN_SOAK_LIFE"
MARK: Final = "reverseOctetDeltaCount"  # every destination has it, with 64 bits
_SPOOL: Final = "spool"
_GONE: Final = ".gone"


def keep(_disk: Disk, path: Path) -> None:
    """Instead of removing: a lane's segments go to ``kept/<lane>``; everything else is removed."""
    lane = path.parent
    if lane.parent.name != _SPOOL or path.suffix not in (".ipfix", ".index", _GONE):
        path.unlink(missing_ok=True)
        return
    place = lane.parent.parent / "kept" / lane.name
    place.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        path.rename(place / path.name.removesuffix(_GONE))


def marking(deliver: Callable[[Outlets, FlowBatch], None], life: int) -> Callable[[Outlets, FlowBatch], None]:
    """The same, of rows that are marked."""
    marks = itertools.count(first_mark(life))

    def deliver_marked(outlets: Outlets, batch: FlowBatch) -> None:
        deliver(outlets, batch.with_columns({MARK: list(itertools.islice(marks, len(batch)))}))

    return deliver_marked


if __name__ == "__main__":
    Disk.remove = keep  # type: ignore[method-assign]
    Outlets.deliver = marking(Outlets.deliver, int(os.environ[LIFE]))  # type: ignore[method-assign]
    sys.exit(main())
