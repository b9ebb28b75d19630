from __future__ import annotations

from pathlib import Path

import pytest
import trio
from conntrack_lines import NETDEV

from flowjoin.api import ConfigError
from flowjoin.testing import RecordingContext
from flowjoin_conntrack._config import ConntrackConfig
from flowjoin_conntrack._open import open_conntrack


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ovs-appctl is looked for; nothing is there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put_tool(tools: Path, script: str) -> None:
    path = tools / "ovs-appctl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


async def open_once(context: RecordingContext, **keys: object) -> None:
    with trio.fail_after(60):
        async with open_conntrack(ConntrackConfig(dumper="ovs-appctl", **keys), context):  # type: ignore[arg-type]
            pass


async def test_without_the_tool_of_open_vswitch_the_operator_is_told_what_to_do(tools: Path) -> None:
    with pytest.raises(ConfigError, match=r"ovs-appctl cannot be run: .*; install Open vSwitch's tools, or choose"):
        await open_once(RecordingContext())


async def test_open_vswitch_that_does_not_run_yet_is_asked_again(tools: Path) -> None:
    """A Node that starts may have the agent before it; exit code 2 would be for good."""
    put_tool(tools, "echo 'cannot connect to ovs-vswitchd' >&2; exit 1")
    with pytest.raises(OSError, match="ended with 1: cannot connect to ovs-vswitchd"):
        await open_once(RecordingContext())


async def test_that_nothing_is_counted_is_said_once_however_many_zones_are_read(tools: Path) -> None:
    put_tool(tools, f'case "$*" in *dump-dps) echo netdev@x;; *dump-conntrack*) echo "{NETDEV}";; *) exit 1;; esac')
    context = RecordingContext()
    await open_once(context, zones=(65520,), from_external=True)
    assert context.events == ["no_counters"]
    assert context.gauges["table_connections"]() == 1
