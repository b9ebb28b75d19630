"""What a running flowjoin does with each key that changes: ``python tests/benchmarks/reload_table.py``.

One process; each key is changed in its file and SIGHUP sent, and what the log answers is the row of a table in
Markdown; then it is changed back.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from running_flowjoin import Program

EXPORTER = "{type: log, name: audit, path: FOLDER/flows.log}"
BASE = {
    "stateDirectory": "FOLDER/state",
    "collectors": '[{protocol: udp, address: "127.0.0.1:0"}]',
    "apiServer": '{address: "127.0.0.1:0"}',
    "exporters": f"[{EXPORTER}]",
}
# key as it is told: what is written in place of, or beside, the base
CHANGES: dict[str, dict[str, str]] = {
    "exporters, one added": {"exporters": f"[{EXPORTER}, {{type: log, name: more, path: FOLDER/more.log}}]"},
    "exporters, one changed": {"exporters": "[{type: log, name: audit, path: FOLDER/other.log}]"},
    "exporters, all removed": {"exporters": "[]"},
    "exporters.spool to none": {"exporters": f"[{EXPORTER.replace('}', ', spool: none}')}]"},
    "exporters.spool.maxSize": {"exporters": f"[{EXPORTER.replace('}', ', spool: {maxSize: 2GiB}}')}]"},
    "flowLogger (Antrea's section)": {"flowLogger": "{enable: true, path: FOLDER/antrea.log}"},
    "csvQuoting": {"csvQuoting": "rfc4180"},
    "log.level": {"log": "{level: debug}"},
    "log.format": {"log": "{format: console}"},
    "shutdownGracePeriod": {"shutdownGracePeriod": "5s"},
    "recordContents.podLabels": {"recordContents": "{podLabels: true}"},
    "recordContents.elements": {"recordContents": "{elements: [bgpNextHopIPv4Address]}"},
    "mode": {"mode": "Proxy"},
    "compatibility": {"compatibility": "antrea-2.3"},
    "activeFlowRecordTimeout": {"activeFlowRecordTimeout": "30s"},
    "inactiveFlowRecordTimeout": {"inactiveFlowRecordTimeout": "30s"},
    "aggregatorTransportProtocol": {"aggregatorTransportProtocol": "UDP"},
    "collectors": {"collectors": '[{protocol: tcp, address: "127.0.0.1:0"}]'},
    "lookups": {"lookups": "[{type: file, path: FOLDER/lookup.json}]"},
    "checkpoint": {"checkpoint": "{interval: 1m}"},
    "stateDirectory": {"stateDirectory": "FOLDER/elsewhere"},
    "limits.flows": {"limits": "{flows: 5}"},
    "limits.laneBytes": {"limits": "{laneBytes: 1MiB}"},
    "apiServer": {"apiServer": "{address: none}"},
    "clusterID": {"clusterID": "here"},
    "a key that nobody knows": {"stateDirectroy": "FOLDER"},
    "a value that is none": {"shutdownGracePeriod": "soon"},
    "an exporter that is not installed": {"exporters": "[{type: nowhere}]"},
}
ANSWERS = ("configuration_reloaded", "configuration_refused", "configuration_unchanged")


class Reloads:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "flowjoin.yaml"
        (folder / "lookup.json").write_text("{}")
        self.write({})
        self.program = Program("-c", str(self._path))
        self.program.wait_ready()

    def write(self, change: dict[str, str]) -> None:
        lines = "".join(f"{key}: {value}\n" for key, value in (BASE | change).items())
        fresh = self._path.with_suffix(".new")
        fresh.write_text(lines.replace("FOLDER", str(self._folder)))
        fresh.rename(self._path)

    def change(self, change: dict[str, str]) -> list[dict[str, Any]]:
        """The lines that answer: the first, and what came between it and the answer to another SIGHUP."""
        self.write(change)
        lines: list[dict[str, Any]] = []
        for _ in range(2):
            self.program.process.send_signal(signal.SIGHUP)
            while True:
                line = self._next()
                lines.append(line)
                if line["event"] in ANSWERS:
                    break
        return lines

    def _next(self) -> dict[str, Any]:
        assert self.program.process.stderr is not None
        for text in self.program.process.stderr:
            if text.startswith("{"):
                line: dict[str, Any] = json.loads(text)
                return line
            if " configuration_" in text:  # the log's form was changed
                return {"event": text.split()[2], "keys": ["log.format"], "problem": text}
        raise AssertionError("it has ended")


def told(lines: list[dict[str, Any]]) -> str:
    parts = []
    for line in lines[:-1]:
        match line["event"]:
            case "configuration_reloaded":
                what = [*line.get("keys", []), *(f"{name} added" for name in line.get("exporters_added", []))]
                what += [f"{name} changed" for name in line.get("exporters_changed", [])]
                what += [f"{name} removed" for name in line.get("exporters_removed", [])]
                if what:
                    parts.append(f"applied: {', '.join(what)}")
            case "restart_needed":
                parts.append(f"waits for a restart: {', '.join(line['keys'])}")
            case "configuration_refused":
                parts.append(f"refused: {_without_path(line['problem'])}")
            case "configuration_notice":
                parts.append(f"notice: {_without_path(line['problem'])}")
    return "; ".join(parts)


def _without_path(problem: str) -> str:
    return re.sub(r"\S*flowjoin\.yaml:(\d*)", lambda found: f"line {found[1]}" if found[1] else "", problem).strip()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        reloads = Reloads(Path(folder))
        try:
            print("| Changed | What the log says |\n|---|---|")
            for name, change in CHANGES.items():
                answer = told(reloads.change(change)).replace(folder, "…").replace("|", "\\|")
                print(f"| `{name}` | {answer} |", flush=True)
                reloads.change({})
            reloads.program.process.terminate()
            assert reloads.program.finish() == 0
        finally:
            reloads.program.process.kill()


if __name__ == "__main__":
    main()
