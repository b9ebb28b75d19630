"""What a Collecting Process needs from the rest of the program: the pipeline gives it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from flowjoin._kernel.interface import IngestResult
from flowjoin._model.transport_session import TransportSession
from flowjoin.api._types import Logger

__all__ = ["Ingest", "Intake"]

Ingest: TypeAlias = Callable[[Sequence[bytes | memoryview], Sequence[TransportSession], float], IngestResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Where Messages go.

    Attributes:
        ingest: takes whole Messages, each with its session, and the time; never blocks.
        close_session: forget a connection's Templates; called once for each connection that ended.
        wait_until_ready: returns when more may come. Connections wait for it before each read, and again before
            they hand over what they read, so that a slow pipeline slows the peers down and loses nothing; UDP
            cannot wait.
        log: what repeats is thinned out by the logger.
    """

    ingest: Ingest
    close_session: Callable[[TransportSession], None]
    wait_until_ready: Callable[[], Awaitable[None]]
    log: Logger
