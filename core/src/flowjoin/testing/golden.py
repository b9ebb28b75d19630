"""Files that hold what a test must produce, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["UPDATE_VARIABLE", "compare_with_golden_file"]

UPDATE_VARIABLE: Final = "FLOWJOIN_UPDATE_GOLDEN"


def compare_with_golden_file(path: Path, produced: bytes) -> None:
    """See to it that the file holds exactly these octets.

    With ``FLOWJOIN_UPDATE_GOLDEN=1`` the file is written instead; look at the difference before you commit it.

    Raises:
        AssertionError: the file holds something else, or is not there.
    """
    if os.environ.get(UPDATE_VARIABLE) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(produced)
        return
    if not path.exists():
        raise AssertionError(f"there is no {path}; {UPDATE_VARIABLE}=1 writes it")
    expected = path.read_bytes()
    if produced != expected:
        at = next(
            (i for i, (new, old) in enumerate(zip(produced, expected, strict=False)) if new != old),
            min(len(produced), len(expected)),
        )
        raise AssertionError(
            f"{path.name} differs at octet {at} (line {expected[:at].count(10) + 1}): expected "
            f"{expected[max(0, at - 20) : at + 40]!r}, produced {produced[max(0, at - 20) : at + 40]!r}"
        )
