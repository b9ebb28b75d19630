"""Watches what trio does while a check runs: tasks and descriptors held, checkpoints passed, steps that take long."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trio

if sys.platform == "linux":
    import resource

__all__ = ["CancelAt", "Held", "StepWatch", "ThreadTime"]

_FILES_SECONDS = 5.0  # a file that is open for so long is left
_LOOK_SECONDS = 0.05
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, slots=True)
class Held:
    """Tasks and, where the system tells (Linux), open descriptors."""

    tasks: frozenset[trio.lowlevel.Task]
    descriptors: frozenset[tuple[str, str]]

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        root = trio.lowlevel.current_root_task()
        assert root is not None, "called from trio"
        return cls(frozenset(_tasks_below(root)), frozenset(_descriptors()))

    def check_nothing_more(self, when: str) -> None:
        now = Held.now()
        tasks = sorted(task.name for task in now.tasks - self.tasks)
        assert not tasks, f"{when} tasks are left: {', '.join(tasks)}"
        more = now.descriptors - self.descriptors
        deadline = time.monotonic() + _FILES_SECONDS
        # Threads of a database engine in this process open files and close them again, whatever we do.
        while more and not any(target.startswith("socket:") for _, target in more) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            more &= frozenset(_descriptors())
        assert not more, f"{when} sockets or files are open: {', '.join(sorted(target for _, target in more))}"


def _tasks_below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from _tasks_below(child)


def _descriptors() -> Iterator[tuple[str, str]]:
    if sys.platform != "linux":
        return
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(link)  # noqa: PTH115 - the text, which need not be a path
        except FileNotFoundError:
            continue  # the descriptor that listed the directory
        # A database engine in this process measures its own pool of threads; it opens these when a thread begins.
        if not target.startswith(f"/proc/{os.getpid()}/task/"):
            yield link.name, target


class CancelAt(trio.abc.Instrument):
    """Cancels its scope when the task that made it has waited at so many checkpoints."""

    def __init__(self, checkpoint: int) -> None:
        self.scope = trio.CancelScope()
        self._checkpoint = checkpoint
        self._task = trio.lowlevel.current_task()
        self._steps = 0
        self._requested_at = 0.0

    @property
    def seconds_since(self) -> float:
        """How long ago it cancelled, by trio's clock; 0 where it has not."""
        return trio.current_time() - self._requested_at if self.was_requested else 0.0

    @property
    def was_requested(self) -> bool:
        return self.scope.cancel_called

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._steps += 1
            if self._steps == self._checkpoint:
                self._requested_at = trio.current_time()
                self.scope.cancel()

    def __enter__(self) -> CancelAt:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTime:
    """What the clocks say of the calling thread, in seconds.

    Attributes:
        wall: on the wall.
        cpu: for which it ran.
        waited: for which it could have run, and the machine ran something else; None where the system does not tell.
        blocked: how often it gave up the processor of its own accord, in a call that sleeps or waits; None likewise.
    """

    wall: float
    cpu: float
    waited: float | None
    blocked: int | None

    @classmethod
    def now(cls) -> ThreadTime:
        waited = blocked = None
        if sys.platform == "linux":
            waited, blocked = _seconds_waited(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        return cls(wall=time.perf_counter(), cpu=time.thread_time(), waited=waited, blocked=blocked)

    def held_until(self, end: ThreadTime) -> float:
        """For how long the thread kept itself busy: it ran, or was blocked in a call.

        A busy machine makes any step long on the wall; what it gave to others is not the step's fault. Linux tells how
        long a thread waited for a processor: that is taken off the wall's time. Where its kernel does not, a thread
        that was never blocked is charged with the time for which it ran. In all other cases the wall's time counts.
        """
        wall = end.wall - self.wall
        if self.waited is not None and end.waited is not None:
            return wall - (end.waited - self.waited)
        if self.blocked is not None and self.blocked == end.blocked:
            return end.cpu - self.cpu
        return wall


def _seconds_waited() -> float | None:
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9  # proc(5): time on the processor, waiting for it, slices
    except (OSError, IndexError, ValueError):
        return None  # a kernel without these figures


class StepWatch(trio.abc.Instrument):
    """Remembers the longest step of any task, as ``ThreadTime.held_until`` measures it."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._began: ThreadTime | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = ThreadTime.now()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._began is not None:  # else it is the step in which the watch began
            self.longest = max(self.longest, self._began.held_until(ThreadTime.now()))
