from __future__ import annotations

import errno
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_harness import Harness
from pipeline_fakes import MemoryLog
from spool_bench import FaultyDisk, at_once

from flowjoin._kernel.interface import KeepsFlows
from flowjoin._pipeline.checkpoint import Checkpoint
from flowjoin._pipeline.checkpoint_file import CheckpointError, CheckpointReader, open_checkpoint
from flowjoin._pipeline.health import HealthTable, State
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.state_directory import open_state
from flowjoin._telemetry.metrics import Metrics

RECORD: dict[str, Any] = {
    "sourceIPv4Address": "10.0.0.1",
    "destinationIPv4Address": "10.0.0.2",
    "protocolIdentifier": 6,
    "flowType": 2,
    "flowStartSeconds": 1,
    "flowEndSeconds": 2,
    "octetDeltaCount": 9,
    "octetTotalCount": 90,
    "sourcePodName": "client",
}


def write(path: Path, octets: bytes) -> None:
    path.write_bytes(octets)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def read(path: Path) -> bytes:
    return path.read_bytes()


class Start:
    """One start of a flowjoin on a state directory, with a table and a checkpoint."""

    def __init__(self, directory: Path, *, wall: float = 1000.0, now: float = 7.0, **harness: Any) -> None:
        with open_state(directory) as state:
            self.state = state
        self.harness = Harness(**harness)
        self.harness.now = now
        self.log = MemoryLog()
        self.disk = FaultyDisk()
        self.health = HealthTable(random.random)
        assert isinstance(self.harness.kernel, KeepsFlows)
        self.checkpoint = Checkpoint(
            self.state,
            self.harness.kernel,
            flows_per_slice=2,
            interval=300.0,
            max_age=900.0,
            restored=lambda: self.harness.statistics.flows_restored,
            lanes=lambda: {"audit": "here/audit/1/17"},
            component=self.health.add("checkpoint", "flows"),
            log=self.log,
            clock=lambda: self.harness.now,
            wall=lambda: wall,
            run=at_once,
            disk=self.disk,
        )

    def send(self, flows: int = 3) -> None:
        for port in range(flows):
            self.harness.send({**RECORD, "sourceTransportPort": port})

    @property
    def problem(self) -> str:
        assert self.log.events()[-1] == "checkpoint_refused"
        assert self.harness.statistics.flows_held == 0
        assert (self.health.snapshot()[0].state, self.health.snapshot()[0].failures) == (State.OK, 1)
        return str(self.log.lines[-1][2]["problem"])


async def test_after_an_orderly_stop_flows_go_on_with_what_they_have(tmp_path: Path) -> None:
    first = Start(tmp_path)
    first.send()
    await first.checkpoint.save(is_last=True)
    second = Start(tmp_path, wall=1060.0, now=500.0)
    await second.checkpoint.restore()
    assert [row["octetDeltaCount"] for row in second.harness.stored()] == [9, 9, 9]
    _, event, facts = second.log.lines[-1]
    assert event == "checkpoint_restored"
    assert facts == {
        "flows": 3,
        "without_room": 0,
        "age_seconds": 60.0,
        "is_continued": True,
        "lanes": {"audit": "here/audit/1/17"},
    }
    assert second.harness.kernel.next_expiry() == 500.0 + second.harness.limits.active_timeout


@pytest.mark.parametrize("how", ["killed", "another start between"])
async def test_flows_begin_anew_where_it_is_not_known_what_was_exported_since(tmp_path: Path, how: str) -> None:
    first = Start(tmp_path)
    first.send()
    await first.checkpoint.save(is_last=how != "killed")
    if how != "killed":
        Start(tmp_path)
    second = Start(tmp_path)
    await second.checkpoint.restore()
    assert [(row["octetDeltaCount"], row["octetTotalCount"]) for row in second.harness.stored()] == [(0, 90)] * 3
    assert second.log.lines[-1][2]["is_continued"] is False


async def test_an_epoch_taken_by_a_reload_is_no_start(tmp_path: Path) -> None:
    first = Start(tmp_path)
    first.send()
    first.state.next_epoch()
    await first.checkpoint.save(is_last=True)
    second = Start(tmp_path)
    await second.checkpoint.restore()
    assert second.log.lines[-1][2]["is_continued"] is True


async def test_without_a_file_there_is_nothing_to_restore(tmp_path: Path) -> None:
    start = Start(tmp_path)
    await start.checkpoint.restore()
    assert start.log.events() == ["checkpoint_absent"]
    assert start.health.snapshot()[0].state is State.OK


async def test_one_that_is_too_old_is_refused(tmp_path: Path) -> None:
    first = Start(tmp_path)
    first.send()
    await first.checkpoint.save(is_last=True)
    second = Start(tmp_path, wall=1901.0)
    await second.checkpoint.restore()
    assert "901 s old" in second.problem


async def test_flows_of_other_elements_are_refused_by_name(tmp_path: Path) -> None:
    first = Start(tmp_path, extra=["wlanSSID"])
    first.send()
    await first.checkpoint.save()
    second = Start(tmp_path, extra=["bgpNextHopIPv6Address"])
    await second.checkpoint.restore()
    assert "aggregated IPv4: only it has wlanSSID; it lacks bgpNextHopIPv6Address" in second.problem


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        (b"flowjoin checkpoint 2\n", "format 2, and this flowjoin reads format 1"),
        (b"something else", "no checkpoint"),
        (b"", "no checkpoint"),
        (b"flowjoin checkpoint 1\n", "not whole"),
        (b"flowjoin checkpoint 1\nO\1", "cut short"),
    ],
)
async def test_what_is_no_checkpoint_of_ours_is_refused_by_name(tmp_path: Path, octets: bytes, problem: str) -> None:
    start = Start(tmp_path)
    write(tmp_path / "checkpoint", octets)
    await start.checkpoint.restore()
    assert problem in start.problem


@pytest.mark.parametrize(
    ("broken", "consequence"),
    [(1, "no flow is restored"), (2, "its first 2 flows are restored, the others are not")],
)
async def test_one_that_breaks_while_it_is_read_says_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int, consequence: str
) -> None:
    first = Start(tmp_path)
    first.send(5)
    await first.checkpoint.save(is_last=True)
    blocks = 0

    def block(reader: CheckpointReader, place: tuple[int, int]) -> bytes:
        nonlocal blocks
        blocks += 1
        if blocks == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return zlib.decompress(reader.disk.read(reader.path, *place))

    monkeypatch.setattr(CheckpointReader, "block", block)
    second = Start(tmp_path)
    await second.checkpoint.restore()
    level, event, facts = second.log.lines[-1]
    assert (level, event, facts["consequence"]) == ("error", "checkpoint_refused", consequence)
    assert second.harness.statistics.flows_restored == second.harness.statistics.flows_held == 2 * (broken - 1)
    assert (second.health.snapshot()[0].state, second.health.snapshot()[0].failures) == (State.OK, 1)


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), is_cut=st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_is_found(tmp_path: Path, place: float, bit: int, is_cut: bool) -> None:
    path = tmp_path / "checkpoint"

    async def write() -> None:
        start = Start(tmp_path)
        start.send()
        await start.checkpoint.save()

    trio.run(write)
    octets = bytearray(path.read_bytes())
    at = int(place * len(octets))
    octets[at] ^= 1 << bit
    path.write_bytes(octets[:at] if is_cut else octets)
    with pytest.raises(CheckpointError):
        open_checkpoint(path, Disk())


@pytest.mark.parametrize("fault", ["full", "sync"])
async def test_a_disk_that_fails_leaves_the_file_before_and_nothing_beside(tmp_path: Path, fault: str) -> None:
    start = Start(tmp_path)
    start.send()
    await start.checkpoint.save()
    before = read(tmp_path / "checkpoint")
    if fault == "full":
        start.disk.room = 100
    else:
        start.disk.sync_fault = OSError(errno.EIO, os.strerror(errno.EIO))
    await start.checkpoint.save()
    assert start.log.events()[-1] == "checkpoint_failed"
    assert start.health.snapshot()[0].state is State.DEGRADED
    assert read(tmp_path / "checkpoint") == before
    assert ".checkpoint-new" not in names(tmp_path)
    start.disk.room = start.disk.sync_fault = None
    await start.checkpoint.save()
    assert start.health.snapshot()[0].state is State.OK


@pytest.mark.parametrize("room", [0, 10, 60, 200])
async def test_a_disk_that_can_not_even_remove_what_did_not_fit_ends_no_run(tmp_path: Path, room: int) -> None:
    start = Start(tmp_path)
    start.send()
    await start.checkpoint.save()
    before = read(tmp_path / "checkpoint")
    start.disk.room = room
    start.disk.close_fault = OSError(errno.EIO, os.strerror(errno.EIO))
    start.disk.remove_fault = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # file systems that copy on write
    await start.checkpoint.save()
    assert start.log.lines[-1][2]["problem"] == os.strerror(errno.ENOSPC)
    assert read(tmp_path / "checkpoint") == before
    start.disk.room = start.disk.close_fault = start.disk.remove_fault = None
    await start.checkpoint.save()
    assert names(tmp_path) == {"checkpoint", "cluster-uuid", "epoch", "instance-id", "lock"}
    assert open_checkpoint(tmp_path / "checkpoint", Disk()).closing.flows == 3


async def test_a_file_whose_closing_fails_is_closed_once_and_is_no_checkpoint(tmp_path: Path) -> None:
    """A network's file system may say only then that there is no room."""
    start = Start(tmp_path)
    start.send()
    start.disk.close_fault = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    await start.checkpoint.save()
    assert start.log.lines[-1][2]["problem"] == os.strerror(errno.EDQUOT)
    assert names(tmp_path) == {"cluster-uuid", "epoch", "instance-id", "lock"}


@pytest.mark.parametrize(
    ("wall", "flows"),
    [
        pytest.param(1900.0, 3, id="forward, within maxAge"),
        pytest.param(1901.0, 0, id="forward, beyond it: the flows are over, as far as anybody knows"),
        pytest.param(10.0, 3, id="backward"),
    ],
)
async def test_a_wall_clock_that_jumped_changes_at_most_whether_flows_come_back(
    tmp_path: Path, wall: float, flows: int
) -> None:
    first = Start(tmp_path, wall=1000.0)
    first.send()
    await first.checkpoint.save(is_last=True)
    second = Start(tmp_path, wall=wall)
    await second.checkpoint.restore()
    assert second.harness.statistics.flows_held == flows
    if flows:
        assert second.log.lines[-1][2]["age_seconds"] == max(0.0, wall - 1000.0)
        assert second.harness.kernel.next_expiry() == first.harness.kernel.next_expiry()


@pytest.mark.parametrize("calls", range(9))
async def test_a_write_that_is_cancelled_leaves_a_whole_file_or_none(tmp_path: Path, calls: int) -> None:
    start = Start(tmp_path)
    start.send(5)
    left = calls
    scope = trio.CancelScope()

    async def cancelling(function: Any, /, *, limiter: Any, abandon_on_cancel: bool = False) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            scope.cancel()
        await trio.lowlevel.checkpoint()
        return function()

    start.checkpoint._run = cancelling
    with scope:
        await start.checkpoint.save()
    assert scope.cancelled_caught == (calls < 6)  # begin, three blocks, the epoch, the end
    assert names(tmp_path) - {"checkpoint"} == {"cluster-uuid", "epoch", "instance-id", "lock"}
    if not scope.cancelled_caught:
        assert open_checkpoint(tmp_path / "checkpoint", Disk()).closing.flows == 5


async def test_it_is_written_at_an_interval_and_told_in_metrics(tmp_path: Path, autojump_clock) -> None:
    start = Start(tmp_path)
    start.send()
    metrics = Metrics()
    metrics.watch(start.checkpoint.metrics)
    assert b"flowjoin_checkpoint" not in metrics.expose()
    with trio.move_on_after(301):
        await start.checkpoint.keep()
    assert b"flowjoin_checkpoint_flows 3.0" in metrics.expose()
    assert open_checkpoint(tmp_path / "checkpoint", Disk()).closing.flows == 3
