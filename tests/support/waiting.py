"""Waits for what tells nobody that it is so: looked at again and again, until a deadline that a slow machine meets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import trio

__all__ = ["PATIENCE", "until", "wait_until"]

T = TypeVar("T")

PATIENCE = 60.0


async def until(is_so: Callable[[], object], what: str = "it is so") -> None:
    """Let everybody else go on until it is so. The time counted is real, whatever clock trio has."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"in vain: {what}"
        await trio.sleep(0.005)


def wait_until(is_so: Callable[[], T], what: str = "it is so", *, patience: float = PATIENCE) -> T:
    """Let other threads and processes go on until it is so; gives what it gave at last."""
    deadline = time.monotonic() + patience
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.05)
    return found
