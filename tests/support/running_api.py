"""A running flowjoin and its HTTP API."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from running_flowjoin import Program, Run

from flowjoin._generator.config import TrafficConfig

TRAFFIC = TrafficConfig(flows=300, seed=3)
PATIENCE = 30.0


class Api:
    """One of them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        (self.address,) = program.wait_line("api_ready")["addresses"]
        self.collector = program.wait_ready()
        self.host, _, port = self.address.rpartition(":")
        self.port = int(port)

    def get(self, target: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request("GET", target)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def json(self, target: str) -> Any:
        status, body = self.get(target)
        assert status == 200, body
        return json.loads(body)

    def metrics(self) -> dict[str, float]:
        """The sums over all labels."""
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1].decode()):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0) + sample.value
        return sums

    def stop(self) -> dict[str, Any]:
        """End it; gives its books."""
        self.program.process.terminate()
        assert self.program.finish() == 0
        *_, books, _ = map(json.loads, self.program.text.splitlines())
        assert books["event"] == "books"
        found: dict[str, Any] = books
        return found


Start = Callable[..., Api]


@pytest.fixture
def start(run: Run, tmp_path: Path) -> Start:
    def begin(text: str = "", exporters: str = "") -> Api:
        path = tmp_path / "flowjoin.yaml"
        path.write_text(
            f"stateDirectory: {tmp_path}/state\n"
            'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
            f"exporters: [{{type: log, path: {tmp_path}/flows.csv}}{exporters}]\n"
            'apiServer: {address: "127.0.0.1:0"}\n' + text
        )
        return Api(run("-c", str(path)))

    return begin


def flowjoin(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flowjoin", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
