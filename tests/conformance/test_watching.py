from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest
import trio

from flowjoin.testing import watching
from flowjoin.testing.watching import Held, StepWatch, ThreadTime


def at(wall: float, cpu: float, waited: float | None = None, blocked: int | None = None) -> ThreadTime:
    return ThreadTime(wall=wall, cpu=cpu, waited=waited, blocked=blocked)


@pytest.mark.parametrize(
    ("begin", "end", "held"),
    [
        # Linux: what the machine gave to others is not the step's
        (at(10, 1, 3.0, 7), at(10.061, 1.02, 3.041, 7), 0.020),
        (at(10, 1, 3.0, 7), at(10.060, 1.0, 3.0, 8), 0.060),  # it slept
        (at(10, 1, 3.0, 7), at(10.160, 1.0, 3.1, 8), 0.060),  # it slept, and waited for its turn then
        (at(10, 1, 3.0, 7), at(10.060, 1.06, 3.0, 7), 0.060),  # it computed
        # a kernel that does not tell: blocked or not; other systems
        (at(10, 1, None, 7), at(10.061, 1.02, None, 7), 0.020),
        (at(10, 1, None, 7), at(10.060, 1.0, None, 8), 0.060),
        (at(10, 1), at(10.060, 1.0), 0.060),
    ],
)
def test_a_step_is_charged_with_what_it_did_itself(begin: ThreadTime, end: ThreadTime, held: float) -> None:
    assert begin.held_until(end) == pytest.approx(held)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a thread waited for a processor")
def test_linux_tells_how_long_a_thread_waited() -> None:
    now = ThreadTime.now()
    assert now.waited is not None
    assert now.blocked is not None


async def test_a_call_that_sleeps_is_seen_and_time_between_steps_is_not() -> None:
    watch = StepWatch()
    trio.lowlevel.add_instrument(watch)
    await trio.sleep(0.03)
    assert watch.longest < 0.03
    time.sleep(0.03)  # noqa: ASYNC251 - that is what must be seen
    await trio.lowlevel.checkpoint()
    trio.lowlevel.remove_instrument(watch)
    assert watch.longest >= 0.029


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is open")
async def test_a_file_that_a_thread_closes_again_is_not_left(tmp_path: Path) -> None:
    held = Held.now()
    file = (tmp_path / "merge").open("w")
    closing = threading.Timer(0.1, file.close)
    closing.start()
    held.check_nothing_more("then")
    closing.join()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is open")
async def test_a_file_that_stays_open_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_FILES_SECONDS", 0.1)
    held = Held.now()
    with (
        (tmp_path / "left").open("w"),
        pytest.raises(AssertionError, match=r"then sockets or files are open: .*/left"),
    ):
        held.check_nothing_more("then")
