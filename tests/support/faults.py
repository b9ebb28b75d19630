"""What becomes of a running flowjoin when a plugin does something wrong: one fault, one process."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ill_plugin import Settings
from running_flowjoin import Program, Run, send

from flowjoin._generator.config import TrafficConfig

SUPPORT = Path(__file__).parent
TRAFFIC = TrafficConfig(flows=60, seed=3)
PATIENCE = 60.0
HANG_SECONDS = 6  # longer than shutdownGracePeriod, and what is allowed beyond it

EXPORTER_FAULTS = (
    "open: raises",
    "open: raises a BaseException",
    "open: hangs",
    "open: yields something else",
    "export: raises",
    "export: raises, every other time",
    "export: raises a BaseException",
    "export: calls sys.exit",
    "export: hangs",
    "export: hangs once",
    "export: hangs, shielded",
    "export: takes longer and says that it gets on",
    "export: blocks the loop for 1.5 s",
    "export: blocks the loop for ever",
    "its task: raises",
    "close: hangs",
    "close: hangs after a failure",
    "close: hangs, shielded",
)
ENRICHER_FAULTS = (
    "open: raises",
    "open: hangs",
    "enrich: raises",
    "enrich: raises a BaseException",
    "enrich: gives no mapping",
    "enrich: gives a column of another length",
    "enrich: gives an element it did not declare",
    "enrich: gives values of a wrong type",
    "its task: raises",
)
NEVER_DELIVERS = (
    "open: raises",
    "open: raises a BaseException",
    "open: hangs",
    "open: yields something else",
    "export: raises",
    "export: raises a BaseException",
    "export: calls sys.exit",
    "export: hangs",
    "export: hangs, shielded",
)
IS_SHOWN_LATE = ("open: hangs", "export: hangs", "export: hangs, shielded", "close: hangs after a failure")
assert Settings().does == ""


@dataclass(frozen=True)
class Outcome:
    """What was seen.

    Attributes:
        others: rows that the other exporter delivered, of those that left.
        own: rows that the ill exporter delivered, and its dead letters; empty for an enricher.
        health: of the ill plugin, while it runs.
        said: events of warnings and errors, each once.
        exit_code: of the process, told to stop; negative, what killed it.
        is_spooled: what the ill exporter did not deliver lies in its spool.
        text: of the log.
    """

    others: int
    rows: int
    own: str
    health: str
    said: tuple[str, ...]
    exit_code: int
    is_spooled: bool
    text: str = field(repr=False)

    def line(self, fault: str) -> str:
        events = ", ".join(f"`{event}`" for event in self.said) or "nothing"
        others = "-" if "for ever" in fault else f"{self.others} of {self.rows}"
        own = f" {self.own} |" if self.own else ""
        return f"| {fault} | {others} |{own} {self.health} | {events} | {self.exit_code} |"


def suffer(kind: str, fault: str, folder: Path, run: Run = Program) -> Outcome:
    """Run it, with traffic, until the other exporter has everything; then tell it to stop."""
    config = written(kind, fault, folder)
    program = run("-c", str(config), path=folder / "site")
    is_fatal = "for ever" in fault or "shielded" in fault
    seen: dict[str, Any] = {}
    try:
        api = program.wait_line("api_ready")["addresses"][0].rpartition(":")[2]
        send(program.wait_ready(), TRAFFIC)
        if "for ever" not in fault:
            delivering = {"good"} if kind == "enrichers" or fault in NEVER_DELIVERS else {"good", "bad"}
            seen = watched(int(api), f"{kind}/bad", delivering, is_to_degrade=fault in IS_SHOWN_LATE)
            program.process.terminate()
    except (OSError, AssertionError):
        if not is_fatal:
            raise
    exit_code = program.finish()
    lines = [json.loads(line) for line in program.text.splitlines() if line.startswith("{")]
    books = next((line for line in reversed(lines) if line["event"] == "books"), {"rows": 0, "lanes": {}})
    lane = books["lanes"].get("bad", {})
    own = f"{lane.get('delivered', 0)}, {lane.get('dead_lettered', 0)} dead" if kind == "exporters" else ""
    said = dict.fromkeys(
        line["event"] for line in lines if line["level"] in ("warning", "error") and line.get("name", "bad") == "bad"
    )
    flows = folder / "good.log"
    return Outcome(
        others=len(flows.read_text().splitlines()) if flows.exists() else 0,
        rows=books["rows"],
        own=own,
        health=str(seen.get("health", "-")),
        said=tuple(event for event in said if event != "receive_buffer"),
        exit_code=exit_code,
        is_spooled=lane.get("held", 0) == lane.get("spooled", 0),
        text=program.text,
    )


def written(kind: str, fault: str, folder: Path) -> Path:
    """A configuration with the ill plugin, which is installed beside."""
    info = folder / "site" / "flowjoin_ill-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flowjoin-ill\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[flowjoin.plugins]\nill = ill_plugin\n")
    (folder / "site" / "ill_plugin.py").write_text((SUPPORT / "ill_plugin.py").read_text())
    ill = f"{{type: ill, name: bad, does: {json.dumps(fault)}}}"
    path = folder / "flowjoin.yaml"
    path.write_text(
        f"stateDirectory: {folder}/state\n"
        'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
        'apiServer: {address: "127.0.0.1:0"}\n'
        "activeFlowRecordTimeout: 1s\n"
        "shutdownGracePeriod: 2s\n"
        f"limits: {{stall: 5s, hang: {HANG_SECONDS}s}}\n"
        f"exporters: [{ill + ', ' if kind == 'exporters' else ''}{{type: log, name: good, path: {folder}/good.log}}]\n"
        + (f"enrichers: [{ill}]\n" if kind == "enrichers" else "")
    )
    return path


def watched(api: int, component: str, delivering: set[str], *, is_to_degrade: bool) -> dict[str, Any]:
    """Until these exporters have a row of each flow: what is said of the bad plugin's health.

    What is known only after ``limits.hang`` is waited for.
    """
    until = time.monotonic() + PATIENCE
    states: dict[str, int] = {}
    while time.monotonic() < until:
        report = json.loads(asked(api, "/healthz?output=json"))
        state = next(each["state"] for each in report["components"] if each["component"] == component)
        figures = dict(line.rsplit(" ", 1) for line in asked(api, "/metrics").decode().splitlines())
        if float(figures[f'flowjoin_component_failures_total{{name="{component}"}}']):
            state = "degraded"  # if only for a moment between two looks
        states[state] = states.get(state, 0) + 1
        delivered = [float(figures[f'flowjoin_lane_delivered_rows_total{{name="{name}"}}']) for name in delivering]
        if min(delivered) >= TRAFFIC.flows and ("degraded" in states or not is_to_degrade):
            break
        time.sleep(0.1)
    return {"health": "degraded" if "degraded" in states else max(states, key=lambda name: states[name])}


def asked(api: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", api, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()
