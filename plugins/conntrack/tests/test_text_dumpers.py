from __future__ import annotations

import os
import stat
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
import trio
from conntrack_lines import NETDEV, PROC, PROC_UDP, TO_A_SERVICE

from flowjoin_conntrack._dumper import Dumper
from flowjoin_conntrack._entry import ROW
from flowjoin_conntrack._text_dumpers import OvsDumper, ProcDumper, open_ovs

# Stands for ovs-appctl: answers as it does for one data path.
TOOL = """#!{python}
import sys
answers = {{"dpctl/dump-dps": {paths!r}, "dpctl/ct-get-maxconns": {largest!r}, "dpctl/dump-conntrack": {lines!r}}}
answer = answers[next(word for word in sys.argv if word.startswith("dpctl/"))]
if answer is None:
    sys.exit("ovs-vswitchd: no such control socket")
sys.stdout.write(answer)
"""


async def counted(dumper: Dumper) -> tuple[int, int, int]:
    """Rows, entries, lines that made no sense."""
    rows = entries = unreadable = 0
    async with aclosing(dumper.dump()) as portions:
        async for portion in portions:
            rows += len(portion.rows) // ROW.size
            entries += portion.entries
            unreadable += portion.unreadable
    return rows, entries, unreadable


@pytest.fixture
def tool(tmp_path: Path):
    def make(**answers: str | None) -> tuple[str, ...]:
        facts = {"paths": "system@ovs-system\n", "largest": "300000\n", "lines": "", **answers}
        path = tmp_path / "ovs-appctl"
        path.write_text(TOOL.format(python=sys.executable, **facts))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return (str(path),)

    return make


async def test_a_file_of_connections_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "nf_conntrack"
    path.write_text((PROC + PROC_UDP + "junk\n") * 500)
    with trio.fail_after(60):
        assert await counted(ProcDumper((), path)) == (1000, 1000, 500)
        assert await counted(ProcDumper((7,), path)) == (500, 1000, 500)


async def test_a_last_line_without_an_end_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "nf_conntrack"
    path.write_text(PROC + PROC_UDP.strip())
    assert await counted(ProcDumper((), path)) == (2, 2, 0)


async def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await counted(ProcDumper((), tmp_path / "nothing"))


async def test_a_file_without_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nf_conntrack"
    path.write_bytes(bytes(2_000_000))
    with pytest.raises(OSError, match="a line of more than"):
        await counted(ProcDumper((), path))


async def test_the_tool_of_open_vswitch_is_asked(tool) -> None:
    with trio.fail_after(60):
        dumper = await open_ovs((), tool(lines=f"{TO_A_SERVICE}\n" * 300))
        assert dumper.has_counters
        assert await counted(dumper) == (300, 300, 0)
        assert await dumper.max_connections() == 300_000


async def test_a_data_path_in_user_space_is_known_to_count_nothing(tool) -> None:
    with trio.fail_after(60):
        dumper = await open_ovs((65520,), tool(paths="netdev@ovs-netdev\n", lines=f"{NETDEV}\n", largest=None))
        assert not dumper.has_counters
        assert await counted(dumper) == (1, 1, 0)
        assert await dumper.max_connections() == 0  # not told


async def test_what_the_tool_complains_of_is_said(tool) -> None:
    with trio.fail_after(60):
        dumper = await open_ovs((), tool(lines=None))
        with pytest.raises(OSError, match="ended with 1: ovs-vswitchd: no such control socket"):
            await counted(dumper)


async def test_a_tool_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await open_ovs((), (str(tmp_path / "nothing"),))


async def test_whoever_leaves_early_leaves_no_program_behind(tmp_path: Path) -> None:
    path = tmp_path / "endless"
    path.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nyes '{TO_A_SERVICE}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    with trio.fail_after(60):
        async with aclosing(OvsDumper((), (str(path),), has_counters=True).dump()) as portions:
            assert (await anext(portions)).entries > 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
