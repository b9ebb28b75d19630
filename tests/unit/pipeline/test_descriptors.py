from __future__ import annotations

import resource

import pytest
from pipeline_fakes import MemoryLog

from flowjoin._pipeline.descriptors import raise_open_files


class System:
    """Stands where the system's limits are."""

    def __init__(self, soft: int, hard: int, *, is_refusing: bool = False) -> None:
        self.limits = (soft, hard)
        self.is_refusing = is_refusing

    def get(self, _which: int) -> tuple[int, int]:
        return self.limits

    def set(self, _which: int, limits: tuple[int, int]) -> None:
        if self.is_refusing:
            raise ValueError("not allowed to raise maximum limit")
        self.limits = limits


@pytest.mark.parametrize(
    ("system", "soft", "events"),
    [
        (System(1024, 524_288), 524_288, []),
        (System(524_288, 524_288), 524_288, []),
        (System(1024, resource.RLIM_INFINITY), resource.RLIM_INFINITY, []),
        (System(1024, 4096), 4096, ["open_files_limited"]),
        (System(1024, 524_288, is_refusing=True), 1024, ["open_files_not_raised", "open_files_limited"]),
    ],
)
def test_the_soft_limit_is_raised_and_sessions_beyond_it_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, system: System, soft: int, events: list[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", system.get)
    monkeypatch.setattr(resource, "setrlimit", system.set)
    log = MemoryLog()
    raise_open_files(10_000, log)

    assert system.limits[0] == soft
    assert log.events("warning") == events
