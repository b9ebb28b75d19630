"""``flowjoin run``, but what a spool removes lies in ``kept`` beside the spools: what was ever appended can be counted.

python kept_flowjoin.py run -c FILE
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from flowjoin.__main__ import main
from flowjoin._pipeline.spool.disk import Disk

_SPOOL = "spool"
_GONE = ".gone"


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


if __name__ == "__main__":
    Disk.remove = keep  # type: ignore[method-assign]
    sys.exit(main())
