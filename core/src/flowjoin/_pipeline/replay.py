"""A capture through the whole pipeline, with the capture's own clock, as fast as it goes.

Strategy: time is that of the items, in ticks of one second as in a live run. Before an item everything is done that
its time makes due; a stretch in which nothing is due is one step. At the end the clock goes on until no flow is left.
Invariant: what comes out, and in which order, depends on the capture alone.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

import trio

from flowjoin._collector.capture import CaptureItem, SessionEnded
from flowjoin._kernel.interface import IngestResult
from flowjoin._model.errors import DecodeError
from flowjoin._model.transport_session import TransportSession

__all__ = ["Replay", "ReplayClock", "ReplayKernel"]

_ITEMS_PER_STEP: Final = 256  # read at once in a thread
_ITEMS_PER_SLICE: Final = 16  # between two checkpoints; a few milliseconds of work
_Ingest: TypeAlias = Callable[[Sequence[bytes | memoryview], Sequence[TransportSession], float], IngestResult]


class ReplayKernel(Protocol):
    """What is needed of the kernel beside ``ingest`` and ``expire``."""

    def next_expiry(self) -> float | None: ...
    def tick(self, now: float) -> Sequence[TransportSession]: ...
    def close_session(self, session: TransportSession) -> None: ...


class ReplayClock:
    """Ticks at whole seconds of capture time, never backwards."""

    def __init__(self) -> None:
        self._tick: int | None = None

    def ticks_until(self, time: float, next_expiry: Callable[[], float | None]) -> Iterator[float]:
        """The ticks up to and with ``time`` at which something can be due, in order.

        Args:
            next_expiry: asked again after each tick has been used.
        """
        last = math.floor(time)
        if self._tick is None:
            self._tick = last
        while self._tick < last:
            due = next_expiry()
            # One step over all seconds at which a live run would find nothing to do.
            self._tick = last if due is None or due > last else max(self._tick + 1, math.ceil(due))
            yield float(self._tick)

    def ticks_to_the_end(self, next_expiry: Callable[[], float | None]) -> Iterator[float]:
        """The ticks behind the last item, until nothing is due any more."""
        while (due := next_expiry()) is not None:
            self._tick = math.ceil(due) if self._tick is None else max(self._tick + 1, math.ceil(due))
            yield float(self._tick)


class Replay:
    """Feeds the items of one file to a kernel.

    Attributes:
        streams_refused: TCP sessions that were not listened to any further, as a live Collecting Process would have
            closed them.
    """

    def __init__(self, kernel: ReplayKernel, ingest: _Ingest, expire: Callable[[float], Awaitable[None]]) -> None:
        """Take the kernel and its surroundings.

        Args:
            kernel: of the pipeline.
            ingest: takes Messages in; what follows from the result's notices is its business.
            expire: delivers everything due at a time, waiting for lanes that are full.
        """
        self.streams_refused = 0
        self._kernel = kernel
        self._ingest = ingest
        self._expire = expire
        self._clock = ReplayClock()
        self._refused: set[TransportSession] = set()

    async def run(
        self, items: Iterator[CaptureItem], *, tell: Callable[[int], None] = lambda _items: None
    ) -> DecodeError | None:
        """Feed all items, then let every flow leave.

        Args:
            items: of a capture; read in a thread, because the file may be a pipe.
            tell: told of the number of items of each step.

        Returns:
            Why the file could not be read to its end; None when it could. What came before has been used.

        Raises:
            OSError: the file cannot be read.
        """
        fault: DecodeError | None = None
        is_over = False
        while not is_over:
            step, is_over, fault = await trio.to_thread.run_sync(_take, items, abandon_on_cancel=True)
            for index, item in enumerate(step):
                if index % _ITEMS_PER_SLICE == 0:
                    await trio.lowlevel.checkpoint()
                await self._feed(item)
            tell(len(step))
        for now in self._clock.ticks_to_the_end(self._kernel.next_expiry):
            await self._expire(now)
        return fault

    async def _feed(self, item: CaptureItem) -> None:
        for now in self._clock.ticks_until(item.time, self._kernel.next_expiry):
            self._kernel.tick(now)
            await self._expire(now)
        if isinstance(item, SessionEnded):
            self._refused.discard(item.session)
            self._kernel.close_session(item.session)
        elif item.session not in self._refused:
            result = self._ingest((item.payload,), (item.session,), item.time)
            for session in result.faulty:
                self._refuse(session)
            if result.is_due:
                await self._expire(item.time)

    def _refuse(self, session: TransportSession) -> None:
        if session.protocol == "file":
            return  # its Messages are framed soundly, and nobody would send a file again
        self._refused.add(session)
        self._kernel.close_session(session)
        self.streams_refused += 1


def _take(items: Iterator[CaptureItem]) -> tuple[list[CaptureItem], bool, DecodeError | None]:
    """The next items, whether they are the last, and why if the file is to blame."""
    taken: list[CaptureItem] = []
    try:
        for item in items:
            taken.append(item)
            if len(taken) == _ITEMS_PER_STEP:
                return taken, False, None
    except DecodeError as error:
        return taken, True, error
    return taken, True, None
