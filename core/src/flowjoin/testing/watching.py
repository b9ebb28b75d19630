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

__all__ = ["CancelAt", "Held", "StepWatch"]


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
        descriptors = sorted(target for _, target in now.descriptors - self.descriptors)
        assert not descriptors, f"{when} sockets or files are open: {', '.join(descriptors)}"


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
            yield link.name, os.readlink(link)  # noqa: PTH115 - the text, which need not be a path
        except FileNotFoundError:
            continue  # the descriptor that listed the directory


class CancelAt(trio.abc.Instrument):
    """Cancels its scope when the task that made it has waited at so many checkpoints."""

    def __init__(self, checkpoint: int) -> None:
        self.scope = trio.CancelScope()
        self._checkpoint = checkpoint
        self._task = trio.lowlevel.current_task()
        self._steps = 0

    @property
    def was_requested(self) -> bool:
        return self.scope.cancel_called

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._steps += 1
            if self._steps == self._checkpoint:
                self.scope.cancel()

    def __enter__(self) -> CancelAt:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)


class StepWatch(trio.abc.Instrument):
    """Remembers the longest step of any task."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._began = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.perf_counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._began:
            self.longest = max(self.longest, time.perf_counter() - self._began)
