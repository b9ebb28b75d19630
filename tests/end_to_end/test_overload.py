"""More than flowjoin can take: what is dropped is counted, what is accepted arrives, and then all is as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from overload import Overloaded
from running_flowjoin import Run

pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_over_udp_every_datagram_is_read_or_counted_as_dropped_and_afterwards_none_is(run: Run, tmp_path: Path) -> None:
    bench = Overloaded(tmp_path, start=run, receive_buffer="64KiB")
    too_much = bench.phase("udp", 0, 1.0, is_stopped=True)
    assert too_much.dropped > 0
    assert too_much.taken > 0
    assert too_much.sent == too_much.taken + too_much.dropped

    afterwards = bench.phase("udp", 100, 1.0)
    assert afterwards.dropped == 0
    assert afterwards.sent == afterwards.taken
    assert afterwards.latencies
    bench.program.process.terminate()
    assert bench.program.finish() == 0
    assert "books_do_not_balance" not in bench.program.text


def test_over_tcp_the_sender_waits_and_nothing_is_lost(run: Run, tmp_path: Path) -> None:
    bench = Overloaded(tmp_path, start=run)
    figures = bench.phase("tcp", 0, 2.0)
    assert figures.sent == figures.taken
    assert (figures.dropped, figures.lost) == (0, 0)
    assert figures.latencies
    bench.program.process.terminate()
    assert bench.program.finish() == 0
    assert "books_do_not_balance" not in bench.program.text
