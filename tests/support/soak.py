"""The soak: generator, flowjoin, all four destinations at once; each is taken away at random, flowjoin is killed.

    FLOWJOIN_SOAK_SECONDS=600 FLOWJOIN_SOAK_RATE=0 python tests/support/soak.py

What any lane's spool ever named in an index is kept, and compared with what its destination has in the end. Each row
has a mark of its own (``kept_flowjoin.py``), so that a row that is there twice is known from two rows that are alike.
``soak_books.py`` has the comparison, ``soak_destinations.py`` what each destination promises. Exits 1 when a promise
was not kept.

Environment: ``FLOWJOIN_SOAK_SECONDS`` of traffic, ``FLOWJOIN_SOAK_RATE`` records a second (0: as fast as it goes),
``FLOWJOIN_SOAK_KILLS`` of flowjoin, ``FLOWJOIN_SOAK_GAP`` seconds between two kills of a destination on average,
``FLOWJOIN_SOAK_SEED``, ``FLOWJOIN_SOAK_KEEP`` a directory to work in that stays.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final

import waiting
from held_port import HeldPort
from kept_flowjoin import LIFE
from soak_books import Spooled, Total, compare, mark_of
from soak_destinations import ADDRESSES, DESTINATIONS, ENVIRONMENT, NUMBERS, PATIENCE, Destination, Ipfix, row_of

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.spool.dead_letters import DEAD_LETTERS
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import Index, Piece
from flowjoin._pipeline.spool.segments import SegmentFiles, list_segments, load_index, read_batch
from flowjoin.wire.registry import default_registry

wait_until = functools.partial(waiting.wait_until, patience=PATIENCE)

_PROGRAM: Final = Path(__file__).with_name("kept_flowjoin.py")
_FLOWS_AT_ONCE: Final = 20_000  # of one run of the generator
_LONGEST_ABSENCE: Final = 4.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of one soak."""

    seconds: float = 15.0
    rate: float = 300.0
    kills: int = 1
    gap: float = 8.0
    seed: int = 7

    @classmethod
    def from_environment(cls) -> Settings:
        given = {
            name: kind(os.environ[f"FLOWJOIN_SOAK_{name.upper()}"])
            for name, kind in (("seconds", float), ("rate", float), ("kills", int), ("gap", float), ("seed", int))
            if f"FLOWJOIN_SOAK_{name.upper()}" in os.environ
        }
        return cls(**given)


@dataclass(slots=True)
class Flowjoin:
    """One life after the other on the same state directory."""

    directory: Path
    config: Path
    lives: int = 0
    kills: int = 0
    dropped: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _api: str = ""
    addresses: list[str] = field(default_factory=list)

    @property
    def _said(self) -> Path:
        return self.directory / f"flowjoin-{self.lives}.log"

    def start(self) -> None:
        self.lives += 1
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), "run", "-c", str(self.config)],
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, **ENVIRONMENT, LIFE: str(self.lives)},
            )
        wait_until(lambda: self._event("ready") is not None and self._event("api_ready") is not None, "flowjoin starts")
        self._api = str((self._event("api_ready") or {})["addresses"][0])
        self.addresses = [address.rpartition("/")[2] for address in (self._event("ready") or {})["addresses"]]

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> int:
        """SIGTERM; gives the exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(PATIENCE)
        self._process = None
        return code

    def metrics(self) -> dict[str, float]:
        """Its figures."""
        with urllib.request.urlopen(f"http://{self._api}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def is_idle(self) -> bool:
        figures = self.metrics()
        return not _sum_of(figures, "flowjoin_lane_held_rows") and not _sum_of(figures, "flowjoin_kernel_flows_held")

    def _event(self, event: str) -> dict[str, list[str]] | None:
        assert self._process is not None
        text = self._said.read_text()
        assert self._process.poll() is None, text[-3000:]
        for line in text.splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n"):
                facts: dict[str, list[str]] = json.loads(line)
                if facts["event"] == event:  # type: ignore[comparison-overlap]
                    return facts
        return None


class Soak:
    """All of it, on one directory; what it starts is gone when it is left."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory = directory
        self._settings = settings
        self._state = directory / "state"
        self._state.mkdir()
        self.destinations: list[Destination] = [kind(directory) for kind in DESTINATIONS]
        self.flowjoin = Flowjoin(directory, directory / "flowjoin.yaml")
        self._listening = HeldPort()
        self._stop = threading.Event()
        self._stop_traffic = threading.Event()
        self._problems: list[BaseException] = []
        # Held while a destination is away that does not bear a kill of flowjoin, and by the one who kills it.
        self._turns = {each.name: threading.Lock() for each in self.destinations if not each.bears_kills}

    def __enter__(self) -> Soak:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._stop_traffic.set()
        self.flowjoin.kill()
        for each in self.destinations:
            each.stop()
        self._listening.close()

    def run(self) -> None:
        """Everything, until flowjoin has ended and nothing is left in its spools; the destinations are still there."""
        for each in self.destinations:
            each.start()
        self._configure()
        self.flowjoin.start()
        self._disturb()
        self._say("the dust settles")
        wait_until(self.flowjoin.is_idle, "all rows are delivered", patience=PATIENCE + self._settings.seconds)
        self._count_dropped()
        assert self.flowjoin.end() == 0
        left = [path for path in (self._state / "spool").rglob("*.ipfix") if path.parent.name != DEAD_LETTERS]
        assert not left, left

    def compared(self) -> list[Total]:
        """What the spools had against what the destinations have, now."""
        spooled = {each.name: self._spooled(each.name) for each in self.destinations}
        last_mark = max(mark_of(row) for rows in spooled.values() for row in rows.batched)
        return [
            compare(
                each.name,
                spooled[each.name],
                each.rows(),
                each.rows_taken_away(),
                last_mark=last_mark,
                promises_once=each.promises_once,
                kills=each.kills,
            )
            for each in self.destinations
        ]

    def _configure(self) -> None:
        spool = "spool: {maxSize: 32GiB}"
        exporters = "\n".join(f"  - {each.config()[:-1]}, {spool}}}" for each in self.destinations)
        self.flowjoin.config.write_text(
            f"stateDirectory: {self._state}\n"
            f"shutdownGracePeriod: {PATIENCE / 2:.0f}s\n"
            "activeFlowRecordTimeout: 1s\n"
            "inactiveFlowRecordTimeout: 2s\n"
            f"collectors: [{{protocol: tcp, address: '127.0.0.1:{self._listening.number}'}}]\n"
            "apiServer: {address: '127.0.0.1:0'}\n"
            f"exporters:\n{exporters}\n",
            encoding="utf-8",
        )

    def _disturb(self) -> None:
        """Traffic, with everybody's kills, for so long; everything is up in the end."""
        disturbers = [
            threading.Thread(target=self._guarded, args=(self._take_away, each)) for each in self.destinations
        ]
        traffic = threading.Thread(target=self._guarded, args=(self._traffic,))
        traffic.start()
        for each in disturbers:
            each.start()
        choose = Random(self._settings.seed)  # the seed gives the moments, as far as the machine keeps them
        began = time.monotonic()
        share = self._settings.seconds / (self._settings.kills + 1)
        try:
            for number in range(self._settings.kills):
                self._pause(began + (number + choose.uniform(0.6, 1.4)) * share, self._stop)
                self._kill_flowjoin(choose.uniform(0, _LONGEST_ABSENCE / 2))
            self._pause(began + self._settings.seconds, self._stop)
        finally:
            self._stop.set()
            for each in disturbers:
                each.join()
            self._stop_traffic.set()
            traffic.join()
        if self._problems:
            raise self._problems[0]

    @staticmethod
    def _pause(until: float, stop: threading.Event) -> None:
        stop.wait(max(0.0, until - time.monotonic()))

    def _guarded(self, work: object, *arguments: object) -> None:
        try:
            work(*arguments)  # type: ignore[operator]
        except BaseException as exc:
            self._problems.append(exc)
            self._stop.set()
            self._stop_traffic.set()

    def _traffic(self) -> None:
        """Generators, one after the other; one ends when flowjoin is killed."""
        number = 0
        while not self._stop_traffic.is_set():
            number += 1
            command = [
                sys.executable,
                "-m",
                "flowjoin",
                "generate",
                "--to",
                f"tcp://127.0.0.1:{self._listening.number}",
            ]
            command += ["--flows", str(_FLOWS_AT_ONCE), "--rate", f"{self._settings.rate:g}", "--seed", str(number)]
            command += ["--records-per-message", "8", "--updates", "1", "--output", "json"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as generator:
                while generator.poll() is None and not self._stop_traffic.wait(0.1):
                    pass
                generator.kill()
            self._stop_traffic.wait(0.1)

    def _take_away(self, destination: Destination) -> None:
        choose = Random(f"{self._settings.seed} {destination.name}")
        while True:
            self._stop.wait(self._settings.gap * choose.uniform(0.2, 1.8))
            with ExitStack() as stack:
                if not destination.bears_kills:
                    stack.enter_context(self._turns[destination.name])
                connections = self._ipfix("connections") if isinstance(destination, Ipfix) else None
                self._say(f"{destination.name} goes")
                destination.take_away()
                time.sleep(
                    choose.choice([0.1, 1.0]) * choose.uniform(0, _LONGEST_ABSENCE)
                )  # the moment is what is tested
                destination.start()
                self._say(f"{destination.name} is back")
                if connections is not None:
                    self._wait_sent_again(connections)
            if self._stop.is_set():
                return

    def _wait_sent_again(self, connections: float) -> None:
        """Until the IPFIX exporter has sent on another connection what it owed: then come rows it had not sent yet."""
        wait_until(lambda: self._ipfix("connections") > connections, "another connection")
        sent = self._newly_sent()
        wait_until(lambda: self._newly_sent() > sent, "rows behind those that are sent again")

    def _newly_sent(self) -> float:
        figures = self.flowjoin.metrics()
        return _sum_of(figures, "flowjoin_ipfix_rows_delivered_total") - _sum_of(
            figures, "flowjoin_ipfix_rows_resent_total"
        )

    def _ipfix(self, name: str) -> float:
        return _sum_of(self.flowjoin.metrics(), f"flowjoin_ipfix_{name}_total")

    def _kill_flowjoin(self, pause: float) -> None:
        collector = next(each for each in self.destinations if isinstance(each, Ipfix))
        with ExitStack() as stack:
            for turn in self._turns.values():
                stack.enter_context(turn)
            self._count_dropped()
            earlier = collector.unfinished()
            self._say("flowjoin is killed")
            self.flowjoin.kill()
            self.flowjoin.kills += 1
            time.sleep(pause)
            self.flowjoin.start()
            self._say("flowjoin is back")
            wait_until(lambda: not earlier & collector.unfinished(), "the collector reads what a killed flowjoin sent")

    def _count_dropped(self) -> None:
        self.flowjoin.dropped += int(_sum_of(self.flowjoin.metrics(), "flowjoin_lane_dropped_rows_total"))

    def _spooled(self, lane: str) -> Spooled:
        """Of every segment that the lane ever had."""
        disk, registry = Disk(), default_registry()
        batches: set[tuple[int, int]] = set()
        spooled = Spooled()
        for place in (
            self._state / "kept" / lane,
            self._state / "spool" / lane,
            self._state / "spool" / lane / DEAD_LETTERS,
        ):
            for files in list_segments(disk, place) if place.is_dir() else ():
                index = load_index(disk, files, registry)
                assert not index.damaged_lines, files

                def rows_of(pieces: Iterable[Piece], files: SegmentFiles = files, index: Index = index) -> list[int]:
                    return [row for piece in pieces for row in _rows(read_batch(disk, files, [piece], index.schemas))]

                for batch in index.batches:
                    told = rows_of(batch.pieces)
                    assert len(told) == batch.rows, (files, batch)
                    if place.name == DEAD_LETTERS:
                        spooled.dead.update(told)
                        continue
                    name = batch.epoch, batch.sequence
                    assert name not in batches, f"two batches of {lane} are called {name}"
                    batches.add(name)
                    spooled.batched.update(told)
                spooled.unclosed.update(rows_of(chain.from_iterable(index.open_groups.values())))
        return spooled

    def _say(self, what: str) -> None:
        with (self._directory / "events.log").open("a") as out:
            out.write(f"{time.strftime('%H:%M:%S')} {what}\n")


def _rows(batch: FlowBatch) -> Iterator[int]:
    """Identities of a batch's rows."""
    addresses = [batch.address_text(name.removesuffix("IP")) for name in ADDRESSES]
    return map(row_of, zip(*addresses, *(batch.column(name) for name in NUMBERS), strict=True))


def _sum_of(figures: dict[str, float], name: str) -> float:
    """Over its labels."""
    return sum(value for key, value in figures.items() if key.partition("{")[0] == name)


def table(totals: list[Total], flowjoin: Flowjoin) -> str:
    """For people."""
    names = ("appended", "found", "dead", "lost", "doubled", "excused", "alike", "kills")
    lines = ["destination  " + "".join(f"{name:>12}" for name in names)]
    lines += [f"{each.name:<13}" + "".join(f"{getattr(each, name):>12,}" for name in names) for each in totals]
    lines += [f"flowjoin: {flowjoin.kills} kills, {flowjoin.dropped} rows dropped for want of room"]
    return "\n".join(lines)


def main() -> int:
    """Run it as the environment says; gives the exit code."""
    settings = Settings.from_environment()
    with tempfile.TemporaryDirectory() as made:
        directory = Path(os.environ.get("FLOWJOIN_SOAK_KEEP", made))
        with Soak(directory, settings) as soak:
            soak.run()
            totals = soak.compared()
    print(settings, f"load {os.getloadavg()[0]:.1f}")
    print(table(totals, soak.flowjoin))
    problems = [problem for each in totals for problem in each.problems(soak.flowjoin.dropped)]
    print("\n".join(problems) if problems else "every promise was kept")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
