"""A plugin that a reload names first, and the Information Elements that it brings: a real process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
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


def test_elements_of_a_plugin_loaded_by_a_reload_wait_for_a_restart_and_are_named(run: Run, tmp_path: Path) -> None:
    info = tmp_path / "site" / "flowjoin_extra-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flowjoin-extra\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[flowjoin.plugins]\nextra = flowjoin_extra\n")
    (tmp_path / "site" / "flowjoin_extra.py").write_text(PLUGIN)
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
