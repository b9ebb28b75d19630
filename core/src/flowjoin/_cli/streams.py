"""Standard streams that are closed, or cannot be written."""

from __future__ import annotations

import os
import sys

__all__ = ["forget_output", "open_closed_streams"]


def open_closed_streams() -> None:
    """Give a closed standard stream to /dev/null, or the next file that is opened gets its number, and our lines."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:  # the lowest number that is free: in this order mostly the same
            os.dup2(opened, descriptor)
            os.close(opened)
        setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8"))


def forget_output() -> None:
    """Let Python, which flushes at exit, not meet again what cannot be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
