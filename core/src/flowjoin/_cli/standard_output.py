"""Standard output as a destination: a run that has no other ends when its reader has enough (``| head``)."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Sequence
from typing import Final

import trio

from flowjoin._config.endpoint import Endpoint
from flowjoin._config.model import ExporterEntry
from flowjoin._config.nodes import ScalarNode
from flowjoin._config.plugin_settings import BoundPlugin
from flowjoin.api import ExporterType

__all__ = ["watch_reader", "writes_to_standard_output"]

_STANDARD_OUTPUT: Final = 1
_NAMES: Final = frozenset({"-", "/dev/stdout"})


def writes_to_standard_output(exporter: BoundPlugin[ExporterEntry, ExporterType]) -> bool:
    """Whether one of an exporter's settings is how programs name standard output."""
    nodes = (entry.value for entry in exporter.entry.settings.node.entries)
    return any(isinstance(node, ScalarNode) and node.text in _NAMES for node in nodes)


async def watch_reader(_addresses: Sequence[Endpoint]) -> None:
    """Wait until nobody reads standard output any more; for ever where that cannot be told.

    Raises:
        BrokenPipeError: nobody does.
    """
    if not _is_writing_end_of_a_pipe(_STANDARD_OUTPUT):
        await trio.sleep_forever()
    # To those who want to read from a pipe's writing end Linux tells one thing, that nobody reads (poll(2): POLLERR).
    await trio.lowlevel.wait_readable(_STANDARD_OUTPUT)
    raise BrokenPipeError


def _is_writing_end_of_a_pipe(descriptor: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        return is_pipe and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    except OSError:
        return False  # started without standard output
