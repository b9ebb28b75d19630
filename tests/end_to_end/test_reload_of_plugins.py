"""A plugin that a reload names first, and the Information Elements that it brings: a real process."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from faults import asked
from running_flowjoin import Run

pytestmark = pytest.mark.slow

PLUGIN = """
from contextlib import asynccontextmanager
from dataclasses import dataclass
from flowjoin.api import (
    DataType, ElementId, EnterpriseNumber, ExporterType, InformationElement, MergeRule, hookimpl,
)

@dataclass(frozen=True, kw_only=True)
class Settings:
    pass

class Quiet:
    async def export(self, batch):
        pass

@asynccontextmanager
async def _open(config, context):
    yield Quiet()

@hookimpl
def flowjoin_exporter_types():
    return [ExporterType("extra", Settings, _open, api_version=1)]

@hookimpl
def flowjoin_information_elements():
    return [
        InformationElement(
            name="extraMark", element_id=ElementId(900), enterprise_number=EnterpriseNumber(32473),
            data_type=DataType.UNSIGNED32, merge_rule=MergeRule.LATEST,
        )
    ]
"""


def install(tmp_path: Path, source: str) -> None:
    info = tmp_path / "site" / "flowjoin_extra-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flowjoin-extra\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[flowjoin.plugins]\nextra = flowjoin_extra\n")
    (tmp_path / "site" / "flowjoin_extra.py").write_text(source)


def test_elements_of_a_plugin_loaded_by_a_reload_wait_for_a_restart_and_are_named(run: Run, tmp_path: Path) -> None:
    install(tmp_path, PLUGIN)
    path = tmp_path / "flowjoin.yaml"
    base = f'stateDirectory: {tmp_path}/state\ncollectors: [{{protocol: udp, address: "127.0.0.1:0"}}]\n'
    path.write_text(f"{base}apiServer: {{address: none}}\n")
    program = run("-c", str(path), path=tmp_path / "site")
    program.wait_ready()
    path.write_text(f"{base}apiServer: {{address: none}}\nexporters: [{{type: extra}}]\n")
    program.process.send_signal(signal.SIGHUP)

    assert program.wait_line("configuration_reloaded")["exporters_added"] == ["extra"]
    (key,) = program.wait_line("restart_needed")["keys"]
    assert key == "Information Elements of plugins that were not loaded before: extraMark"
    program.process.terminate()
    assert program.finish() == 0


def test_of_an_added_exporter_that_breaks_its_contract_nothing_stays(run: Run, tmp_path: Path) -> None:
    install(tmp_path, PLUGIN.replace("api_version=1)", "api_version=1, patience=lambda _settings: -1)"))
    path = tmp_path / "flowjoin.yaml"
    base = f'stateDirectory: {tmp_path}/state\ncollectors: [{{protocol: udp, address: "127.0.0.1:0"}}]\n'
    path.write_text(f'{base}apiServer: {{address: "127.0.0.1:0"}}\n')
    program = run("-c", str(path), path=tmp_path / "site")
    api = int(program.wait_line("api_ready")["addresses"][0].rpartition(":")[2])
    program.wait_ready()
    path.write_text(f'{base}apiServer: {{address: "127.0.0.1:0"}}\nexporters: [{{type: extra}}]\n')
    program.process.send_signal(signal.SIGHUP)

    assert "its patience gave -1, not seconds" in program.wait_line("configuration_refused")["problem"]
    components = [each["component"] for each in json.loads(asked(api, "/healthz?output=json"))["components"]]
    assert "configuration/file" in components
    assert not [component for component in components if component.endswith("/extra")]
    program.process.terminate()
    assert program.finish() == 0
