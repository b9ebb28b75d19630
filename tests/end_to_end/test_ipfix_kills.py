"""A collector that is killed at random moments: it reads every row at least once, in one life or another.

``FLOWJOIN_KILLS`` says how often; 8 by default, hundreds in the long form. As a script it says what doubled:
``FLOWJOIN_KILLS=100 python tests/end_to_end/test_ipfix_kills.py``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import trio
from held_port import HeldPort

from flowjoin._model.transport_session import TransportSession
from flowjoin.api import RetryableExportError
from flowjoin.testing import RecordingContext, numbered_flows
from flowjoin.wire import NEED_DATA, DataSetReceived, Decoder, MessageFramer, SequenceGap, default_registry

COLLECTOR = Path(__file__).parents[1] / "support" / "killed_collector.py"
KILLS = int(os.environ.get("FLOWJOIN_KILLS", "8"))
ROWS = 20  # a batch
LONGEST_LIFE = 0.3  # seconds; some end while rows are sent again
RESEND_INTERVAL = 5.0 if KILLS > 50 else 30.0  # in a short run nothing would be old enough to be forgotten
PATIENCE = 60.0 + 2.0 * KILLS

pytestmark = pytest.mark.slow


class Life:
    """One life of the collector."""

    def __init__(self, folder: Path, number: int, port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", str(COLLECTOR), str(port), str(folder), str(number)], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the collector did not start"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def rows_in(folder: Path) -> tuple[Counter[int], int]:
    """How often each row was read, and gaps in sequence numbers."""
    found: Counter[int] = Counter()
    gaps = 0
    for number, file in enumerate(sorted(folder.glob("*.ipfix"))):
        framer, decoder = MessageFramer(), Decoder(default_registry())
        session = TransportSession(protocol="tcp", serial=number)
        framer.receive_data(file.read_bytes())
        while (message := framer.next_message()) is not NEED_DATA:
            for event in decoder.receive_message(bytes(message), session, 0.0):
                if isinstance(event, SequenceGap):
                    gaps += 1
                elif isinstance(event, DataSetReceived):
                    names = [field.element.name for field in event.template.fields]
                    found.update(values[names.index("octetTotalCount")] // 1000 for values in event.records)  # type: ignore[operator]  # a number
    return found, gaps


async def export_until(exporter, stop: trio.Event) -> int:
    """Rows without an end, as a lane gives them; how many they were."""
    given = 0
    while not stop.is_set():
        batch = numbered_flows(ROWS, first=given)
        given += ROWS
        while True:
            try:
                await exporter.export(batch)
                break
            except RetryableExportError:
                await trio.sleep(0.01)
        await trio.sleep(0.01)
    return given


async def run(folder: Path, kills: int, seed: int) -> tuple[int, Counter[int], int, RecordingContext]:
    """Kill so often; gives the rows given, how often each was read, gaps, and what was counted."""
    flowjoin_ipfix = pytest.importorskip("flowjoin_ipfix", reason="flowjoin-ipfix is not installed")
    [exporter_type] = flowjoin_ipfix.flowjoin_exporter_types()
    lives = random.Random(seed)
    held = HeldPort()
    life = Life(folder, 0, held.number)
    config = flowjoin_ipfix.IpfixConfig(address=f"127.0.0.1:{held.number}", resend_interval=RESEND_INTERVAL)
    context = RecordingContext(name="ipfix")
    given = 0
    try:
        with trio.fail_after(PATIENCE):
            async with exporter_type.open(config, context) as exporter, trio.open_nursery() as nursery:
                stop = trio.Event()

                async def export() -> None:
                    nonlocal given
                    given = await export_until(exporter, stop)

                nursery.start_soon(export)
                for number in range(1, kills + 1):
                    await trio.sleep(lives.uniform(0, LONGEST_LIFE))
                    life.kill()
                    life = await trio.to_thread.run_sync(Life, folder, number, held.number)
                stop.set()
            # The last connection was closed in order: its collector reads to the end.
            while len(rows_in(folder)[0]) < given:  # noqa: ASYNC110 - another process writes the files
                await trio.sleep(0.05)
    finally:
        life.kill()
        held.close()
    found, gaps = rows_in(folder)
    return given, found, gaps, context


async def test_a_collector_that_is_killed_again_and_again_reads_every_row(tmp_path: Path) -> None:
    given, found, gaps, context = await run(tmp_path, KILLS, seed=7)
    assert set(found) == set(range(given))
    assert given >= KILLS
    assert gaps == 0
    delivered = context.counters["rows_delivered"].value - context.counters["rows_resent"].value
    assert delivered == given


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        rows, read, missing, counted = trio.run(run, Path(name), KILLS, 7)
    doubles = sum(read.values()) - len(read)
    print(f"{KILLS} kills: {rows} rows given, {rows - len(read)} never read, {doubles} doubles, {missing} gaps")
    print(
        f"{counted.counters['connections'].value} connections, {counted.counters['rows_resent'].value} rows sent again"
    )
