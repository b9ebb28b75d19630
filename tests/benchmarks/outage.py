"""Memory while a destination is away: rows go on at full rate, nothing leaves, and then it comes back.

    python tests/benchmarks/outage.py ROWS [--bound MIB] [--memory] [--svg FILE]

Prints, at every fortieth, rows given, resident memory and the spool's size; ``--bound`` is the spool's ``maxSize``,
``--memory`` keeps the lane in memory, ``--svg`` draws what was measured. The rate is that of the disk: rows are given
as fast as the lane has room for them, so that none is dropped for want of it, and an hour's rows take minutes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
import trio.lowlevel

from flowjoin._model.flow_batch import FlowBatch
from flowjoin._pipeline.health import HealthTable
from flowjoin._pipeline.lane import Lane
from flowjoin._pipeline.lane_identity import LaneIdentity
from flowjoin._pipeline.lane_queue import LaneBounds
from flowjoin._pipeline.spool.settings import SpoolSettings
from flowjoin._pipeline.spool.store import SpoolStore
from flowjoin._telemetry.logs import Logs
from flowjoin.api import Batching, RetryableExportError
from flowjoin.testing import numbered_flows
from flowjoin.wire.registry import default_registry

BATCH = 2048
MEMORY = 64 * 1024 * 1024
SAMPLES = 40
ROWS_A_SECOND = 1_000  # what "an hour" means in the picture: a row stands for a dozen records and more


class Destination:
    """Away until it is back."""

    def __init__(self) -> None:
        self.is_back = False

    async def export(self, _batch: FlowBatch) -> None:
        await trio.lowlevel.checkpoint()
        if not self.is_back:
            raise RetryableExportError("away")


@dataclass(frozen=True)
class Sample:
    seconds: float
    rows: int
    resident: float
    spool: float
    held: int
    dropped: int


def resident_mebibytes() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


class Outage:
    """One run."""

    def __init__(self, arguments: argparse.Namespace, directory: Path) -> None:
        self.rows: int = arguments.rows
        self.is_spooled = not arguments.memory
        self.samples: list[Sample] = []
        self.back_at = 0
        health = HealthTable(random.random)
        log = Logs(level="error").logger(component="outage")
        store = None
        if self.is_spooled:
            store = SpoolStore(
                SpoolSettings(
                    directory=directory,
                    max_octets=arguments.bound * 2**20,
                    max_age=86_400.0,
                    sync=1.0,
                    memory_octets=MEMORY,
                ),
                Batching(),
                instance_id="here",
                lane="audit",
                epoch=1,
                registry=default_registry(),
                component=health.add("spools", "audit"),
                log=log,
                clock=trio.current_time,
                wall=time.time,
            )
        self.destination = Destination()
        self.lane = Lane(
            self.open_destination,
            Batching(),
            identity=LaneIdentity(instance_id="here", lane="audit", epoch=1),
            component=health.add("exporters", "audit"),
            log=log,
            bounds=LaneBounds(octets=MEMORY),
            store=store,
        )
        self._began = time.monotonic()

    @asynccontextmanager
    async def open_destination(self) -> AsyncIterator[Destination]:
        yield self.destination

    def sample(self, rows: int) -> None:
        books = self.lane.books()
        assert books.is_balanced, books
        sample = Sample(
            time.monotonic() - self._began,
            rows,
            resident_mebibytes(),
            books.spool_octets / 2**20,
            books.held,
            books.dropped,
        )
        self.samples.append(sample)
        print(
            f"{sample.seconds:>6.0f} s {rows:>11,} rows {sample.resident:>5.0f} MiB resident "
            f"{sample.spool:>6.0f} MiB spool {sample.held:>11,} held {sample.dropped:>9,} dropped",
            flush=True,
        )

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.lane.run)
            await self._be_away()
            self.back_at = len(self.samples) - 1
            self.destination.is_back = True
            self.lane.close()
            while self.lane.books().held:
                with trio.move_on_after(5):
                    await self.lane.wait_ended()
                self.sample(self.rows)
        self.sample(self.rows)

    async def _be_away(self) -> None:
        tell_at = 0
        for given in range(0, self.rows + 1, BATCH):
            if given >= tell_at:
                self.sample(given)
                tell_at += self.rows // SAMPLES
            if self.is_spooled:
                await self.lane.wait_room()
            self.lane.offer(numbered_flows(BATCH, first=given))
            await trio.lowlevel.checkpoint()
        self.sample(self.rows)


def picture(outage: Outage, bound: int) -> str:
    """Resident memory and the spool's size, over time, one above the other."""
    samples = outage.samples
    width, height, left, top = 860, 170, 70, 40
    end = samples[-1].seconds
    back = samples[outage.back_at]
    minutes = outage.rows / ROWS_A_SECOND / 60
    dropped = f", {samples[-1].dropped:,} dropped at the bound" if samples[-1].dropped else ", none dropped"

    def line(values: list[float], most: float, base: int) -> str:
        points = (
            f"{left + width * sample.seconds / end:.1f},{base + height * (1 - value / most):.1f}"
            for sample, value in zip(samples, values, strict=True)
        )
        return " ".join(points)

    def axis(most: float, base: int, name: str) -> list[str]:
        parts = [f'<text x="{left}" y="{base - 8}" font-weight="bold">{name}</text>']
        for share in (0.0, 0.5, 1.0):
            y = base + height * (1 - share)
            parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{most * share:,.0f}</text>')
        return parts

    second = top + height + 60
    resident = [sample.resident for sample in samples]
    spool = [sample.spool for sample in samples]
    most_resident, most_spool = 100.0 * (1 + max(resident) // 100), 100.0 * (1 + max(spool) // 100)
    at = left + width * back.seconds / end
    title = (
        f"{outage.rows:,} rows while the destination is away ({minutes:.0f} minutes at {ROWS_A_SECOND:,} rows/s, "
        f"given in {back.seconds:.0f} s), then it is back{dropped}"
    )
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30}" height="{second + height + 50}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{left}" y="14">{title}</text>',
        *axis(most_resident, top, "resident memory, MiB"),
        *axis(most_spool, second, f"spool on disk, MiB (maxSize {bound:,} MiB)"),
        f'<polyline fill="none" stroke="#1f5fa8" stroke-width="2" points="{line(resident, most_resident, top)}"/>',
        f'<polyline fill="none" stroke="#a8501f" stroke-width="2" points="{line(spool, most_spool, second)}"/>',
        f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{second + height}" stroke="#888" stroke-dasharray="4 3"/>',
        f'<text x="{at - 6:.1f}" y="{second + height + 20}" text-anchor="end">away</text>',
        f'<text x="{at + 6:.1f}" y="{second + height + 20}">back</text>',
        f'<text x="{left}" y="{second + height + 20}">0 s</text>',
        f'<text x="{left + width}" y="{second + height + 20}" text-anchor="end">{end:.0f} s</text>',
        "</svg>",
        "",
    ))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int)
    parser.add_argument("--bound", type=int, default=1024)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--svg", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        outage = Outage(arguments, Path(place))
        trio.run(outage.run)
    print(f"highest resident: {max(sample.resident for sample in outage.samples):.0f} MiB")
    if arguments.svg is not None:
        arguments.svg.write_text(picture(outage, arguments.bound), encoding="utf-8")


if __name__ == "__main__":
    main()
