"""``decode`` and ``replay`` as processes: what comes through a pipe, and how they are interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from capture_writer import ethernet, ipv4, message, pcap, udp

FRAME = ethernet(ipv4(udp(message(bytes.fromhex("0002000c0100000100010004") + bytes.fromhex("0100000800000007")))))


@contextmanager
def running(command: str) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes], IO[bytes]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "flowjoin", command, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with process.stdin, process.stdout, process.stderr:
            yield process, process.stdin, process.stdout, process.stderr
    finally:
        process.kill()
        process.wait()


def test_decode_prints_a_live_capture_as_it_comes_and_stops_when_interrupted() -> None:
    with running("decode") as (process, stdin, stdout, stderr):
        stdin.write(pcap([(1.0, FRAME)]))
        stdin.flush()
        assert [json.loads(stdout.readline())["type"] for _ in range(2)] == ["template", "record"]
        process.send_signal(signal.SIGINT)
        assert (stdout.read(), stderr.read(), process.wait(timeout=60)) == (b"", b"", 130)


def test_replay_stops_when_interrupted_while_it_waits_for_more() -> None:
    with running("replay") as (process, stdin, stdout, stderr):
        # Far more than a pipe holds: when all is written, replay is reading.
        stdin.write(pcap([(1.0, FRAME)] * 10_000))
        stdin.flush()
        process.send_signal(signal.SIGINT)
        assert (stdout.read(), stderr.read(), process.wait(timeout=60)) == (b"", b"", 130)


@pytest.mark.parametrize("command", ["decode", "replay"])
def test_a_pipe_that_ends_is_read_to_its_end(command: str) -> None:
    with running(command) as (process, stdin, stdout, _stderr):
        stdin.write(pcap([(1.0, FRAME)] * 3))
        stdin.close()
        lines = [json.loads(line) for line in stdout.read().splitlines()]
        assert process.wait(timeout=60) == 0
    if command == "decode":
        assert lines[-1]["records"] == 3
    else:
        assert sum(line["octetDeltaCount"] for line in lines) == 21


@pytest.mark.parametrize("command", ["decode", "replay"])
def test_a_full_disk_is_one_sentence(command: str, tmp_path: Path) -> None:
    path = tmp_path / "flows.pcap"
    path.write_bytes(pcap([(1.0, FRAME)]))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "flowjoin", command, str(path)],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        b"flowjoin: standard output cannot be written: No space left on device\n",
    )
