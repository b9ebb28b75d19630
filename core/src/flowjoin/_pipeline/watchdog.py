"""A thread that names what blocks trio's thread, and ends the process where nothing else can.

A plugin that computes or waits without awaiting stops everything: collectors, lanes, signals. One that shields itself
while it closes keeps a process alive that was told to end. Neither can be interrupted from inside; so the process ends
with 1, the spool as it is after any other sudden end: whole.

Code that holds Python's global lock all the while stops this thread too; then the last resort ends the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Final

import trio

from flowjoin._pipeline.last_resort import LastResort
from flowjoin._pipeline.stall import LOOK_SECONDS, StallWatch, Verdict
from flowjoin.api._types import Logger

__all__ = ["EXIT_STALLED", "PluginNames", "Watchdog", "plugin_package"]

EXIT_STALLED: Final = 1
_SAYING_SECONDS: Final = 10.0  # standard error may be what everybody waits for; or the machine is busy
_OWN_PACKAGE: Final = "flowjoin"

PluginNames = Callable[[], Mapping[str, str]]


class Watchdog:
    """Watches the thread it is made in."""

    def __init__(
        self,
        *,
        stall_seconds: float,
        plugins: PluginNames,
        is_saving: Callable[[], bool],
        last_words: Callable[[], None],
        log: Logger,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        """Nothing is watched before ``start``.

        Args:
            stall_seconds: the loop may be blocked so long.
            plugins: by the module or package of its code, what a plugin is called.
            is_saving: whether rows are being written down.
            last_words: prints what is to be known, before the end.
            log: of the core.
            end: ends the process, whatever its threads do.
        """
        self._watch = StallWatch(stall_seconds)
        self._last_resort = LastResort(stall_seconds)
        self._plugins = plugins
        self._is_saving = is_saving
        self._last_words = last_words
        self._log = log
        self._end = end
        self._watched = threading.get_ident()
        self._beats = 0
        self._is_over = threading.Event()
        self._root: trio.lowlevel.Task | None = None
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def allow(self, seconds: float | None) -> None:
        """What is going on may take so long; None: as long as it likes."""
        self._watch.allow(seconds)

    async def run(self) -> None:
        """Show that the loop turns, until cancelled."""
        self._root = trio.lowlevel.current_root_task()
        with self._last_resort.running():
            self._thread.start()
            try:
                while True:
                    self._beats += 1
                    await trio.sleep(LOOK_SECONDS)
            finally:
                self._is_over.set()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(LOOK_SECONDS):
            self._last_resort.put_off()
            now = time.monotonic()
            verdict = self._watch.look(self._beats, now - before, is_saving=self._is_saving())
            before = now
            self._act(verdict)

    def _act(self, verdict: Verdict) -> None:
        seconds = round(self._watch.blocked, 1)
        match verdict:
            case Verdict.NAME:
                culprit, stack = self._culprit()
                _say(lambda: self._log.error("loop_blocked", plugin=culprit, seconds=seconds, stack=stack))
            case Verdict.FREE:
                _say(lambda: self._log.warning("loop_free", seconds=seconds))
            case Verdict.STALLED:
                culprit, stack = self._culprit()
                problem = "nothing moved for limits.stall; the process ends, what is spooled stays"
                self._finish(lambda: self._log.error("loop_stalled", plugin=culprit, problem=problem, stack=stack))
            case Verdict.OVERDUE:
                names = ", ".join(self._unfinished())
                problem = "it does not close within shutdownGracePeriod; the process ends, what is spooled stays"
                self._finish(lambda: self._log.error("close_overdue", plugin=names, problem=problem))

    def _finish(self, explain: Callable[[], object]) -> None:
        _say(explain)
        _say(self._last_words)
        self._end(EXIT_STALLED)

    def _culprit(self) -> tuple[str, str]:
        """Whose code runs, and the stack; the plugin nearest to what blocks."""
        frame = sys._current_frames().get(self._watched)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        return next(self._plugins_in(_outwards(frame)), ""), stack

    def _unfinished(self) -> list[str]:
        """The plugins in whose code some task waits."""
        tasks = [self._root] if self._root is not None else []
        found: dict[str, None] = {}
        for task in tasks:
            for nursery in task.child_nurseries:
                tasks.extend(nursery.child_tasks)
            found.update(dict.fromkeys(self._plugins_in(frame for frame, _ in task.iter_await_frames())))
        return list(found)

    def _plugins_in(self, frames: Iterable[FrameType]) -> Iterator[str]:
        plugins = self._plugins()
        for frame in frames:
            module = str(frame.f_globals.get("__name__", ""))
            name = plugins.get(module) or plugins.get(module.partition(".")[0])
            if name is not None:
                yield name


def plugin_package(module: str) -> str:
    """What tells a plugin's code: its top package, or the module of one that is the core's own."""
    top = module.partition(".")[0]
    return module if top == _OWN_PACKAGE else top


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _say(speak: Callable[[], object]) -> None:
    """In a thread, for some time: what it writes to may be what is blocked."""
    speaker = threading.Thread(target=speak, name="watchdog speaks", daemon=True)
    speaker.start()
    speaker.join(_SAYING_SECONDS)
