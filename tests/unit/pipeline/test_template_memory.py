from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from pipeline_fakes import MemoryLog
from spool_bench import at_once

from flowjoin._model.transport_session import TransportSession
from flowjoin._pipeline.template_memory import TemplateMemory, templates_from, templates_to
from flowjoin.wire import RememberedTemplate

SESSION = TransportSession(protocol="udp", peer="192.0.2.1", peer_port=50_000, local="2001:db8::1", local_port=4739)
ONE = RememberedTemplate(
    session=SESSION, observation_domain_id=7, version=10, is_options=False, record=b"\1\0\0\1\0\4\0\1", age=5.0
)


class Kernel:
    def __init__(self, *templates: RememberedTemplate) -> None:
        self.templates = list(templates)

    def remembered_templates(self, now: float) -> list[RememberedTemplate]:
        return self.templates

    def remember_templates(self, templates: list[RememberedTemplate], now: float) -> int:
        self.templates = list(templates)
        return len(templates)


def memory(directory: Path, kernel: Kernel, *, wall: float = 1000.0) -> tuple[TemplateMemory, MemoryLog]:
    log = MemoryLog()
    return (
        TemplateMemory(directory, kernel, log=log, clock=lambda: 3.0, wall=lambda: wall, run=at_once),  # type: ignore[arg-type]  # a fake
        log,
    )


async def test_what_is_saved_is_restored_older_by_the_time_between(tmp_path: Path) -> None:
    keeping, _ = memory(tmp_path, Kernel(ONE))
    await keeping.save()
    kernel = Kernel()
    restoring, log = memory(tmp_path, kernel, wall=1010.0)
    restoring.restore()
    (again,) = kernel.templates
    assert again.age == 15.0
    assert (again.session, again.record, again.observation_domain_id) == (SESSION, ONE.record, 7)
    assert log.events() == ["templates_restored"]


async def test_it_is_saved_at_an_interval(tmp_path: Path, autojump_clock) -> None:
    keeping, _ = memory(tmp_path, Kernel(ONE))
    with trio.move_on_after(61):
        await keeping.keep()
    assert (tmp_path / "templates").read_bytes().count(b"\n") == 1


def test_without_a_file_there_is_nothing_to_say(tmp_path: Path) -> None:
    restoring, log = memory(tmp_path, Kernel())
    restoring.restore()
    assert log.lines == []


async def test_a_directory_that_is_gone_is_said_and_nothing_else(tmp_path: Path) -> None:
    keeping, log = memory(tmp_path / "gone", Kernel(ONE))
    await keeping.save()
    assert log.events("warning") == ["templates_not_kept"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "templates").touch(mode=0o000)
    restoring, log = memory(tmp_path, Kernel())
    restoring.restore()
    assert log.events("warning") == ["templates_not_restored"]


@given(st.data())
def test_a_changed_octet_costs_its_line(data: st.DataObject) -> None:
    octets = bytearray(b"".join(templates_to([ONE, ONE, ONE], 100.0)))
    octets[data.draw(st.integers(0, len(octets) - 1))] ^= data.draw(st.integers(1, 255))
    found = templates_from(bytes(octets).splitlines(keepends=True), 100.0)
    assert 1 <= len(found) <= 2 or all(each == ONE for each in found)
    assert all(each == ONE for each in found)
