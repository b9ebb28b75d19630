from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from pipeline_fakes import MemoryLog, cancelled_at_step

from flowjoin._pipeline.health import Component, HealthTable, State
from flowjoin._pipeline.supervisor import PluginFailure, keep_open, plugin_code, single_cause
from flowjoin.api import ConfigError, RetryableExportError


def component() -> Component:
    return HealthTable(lambda: 1.0).add("exporters", "e")


class Plugin:
    """A context manager that fails where it is told to."""

    def __init__(self, *fails: str) -> None:
        self.fails = list(fails)
        self.times: list[float] = []
        self.closed = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        self.times.append(trio.current_time())
        fails = self.fails.pop(0) if self.fails else ""
        if fails == "open":
            raise OSError("open")
        try:
            yield fails
        finally:
            self.closed += 1
            if fails == "close":
                raise OSError("close")


async def test_a_plugin_that_fails_to_open_is_tried_again_with_growing_waits(autojump_clock) -> None:
    plugin, log, row = Plugin(*["open"] * 7), MemoryLog(), component()

    async def use(_opened: object) -> None:
        row.recovered()

    await keep_open(row, plugin.open, use, log=log)

    assert plugin.times == [0, 1, 3, 7, 15, 31, 61, 91]
    assert row.health().failures == 7
    assert row.health().state is State.ENDED


async def test_the_waits_begin_anew_after_success(autojump_clock) -> None:
    plugin, row = Plugin(), component()
    runs = 0

    async def use(_opened: object) -> None:
        nonlocal runs
        runs += 1
        row.recovered()
        if runs < 4:
            raise PluginFailure from OSError("later")

    await keep_open(row, plugin.open, use, log=MemoryLog())

    assert plugin.times == [0, 1, 2, 3]
    assert plugin.closed == 4


async def test_a_bug_of_the_core_goes_up_even_through_a_context_that_swallows(autojump_clock) -> None:
    @asynccontextmanager
    async def swallows() -> AsyncIterator[None]:
        with suppress(Exception):
            yield

    @asynccontextmanager
    async def wraps() -> AsyncIterator[None]:
        async with trio.open_nursery():
            yield

    @asynccontextmanager
    async def replaces() -> AsyncIterator[None]:
        try:
            yield
        finally:
            raise OSError("another one")

    async def use(_opened: object) -> None:
        raise KeyError("bug")

    for opener in (swallows, wraps, replaces):
        with pytest.raises(KeyError, match="bug"):
            await keep_open(component(), opener, use, log=MemoryLog())


async def test_what_fails_while_cancelled_is_no_failure(autojump_clock) -> None:
    plugin, log, row = Plugin("close"), MemoryLog(), component()

    async def use(_opened: object) -> None:
        await trio.sleep_forever()

    with trio.move_on_after(5) as scope:
        await keep_open(row, plugin.open, use, log=log)

    assert scope.cancelled_caught
    assert (plugin.closed, row.health().failures, log.lines) == (1, 0, [])


async def test_an_unavailable_destination_is_a_warning_without_a_traceback(autojump_clock) -> None:
    log, row = MemoryLog(), component()
    failures = iter([RetryableExportError("down")])

    @asynccontextmanager
    async def open_plugin() -> AsyncIterator[None]:
        for failure in failures:
            raise failure
        yield

    async def use(_opened: object) -> None:
        await trio.lowlevel.checkpoint()

    await keep_open(row, open_plugin, use, log=log)

    assert log.lines == [("warning", "destination_unavailable", {"problem": "down"})]


async def test_it_can_be_cancelled_at_every_step(autojump_clock) -> None:
    for step in range(1, 200):
        plugin, row = Plugin("open", "", "open"), component()
        runs = 0

        async def use(_opened: object, row: Component = row) -> None:
            nonlocal runs
            runs += 1
            await trio.sleep(1)
            if runs == 1:
                raise PluginFailure from OSError("once")

        with cancelled_at_step(step) as instrument:
            await keep_open(row, plugin.open, use, log=MemoryLog())
        assert plugin.closed == runs
        if not instrument.has_fired:
            assert (runs, row.health().state) == (2, State.ENDED)
            return
    pytest.fail("never finished")


def test_a_single_cause_is_taken_out_of_its_wrappings() -> None:
    cause = OSError("x")
    with pytest.raises(PluginFailure) as caught, plugin_code():
        raise ExceptionGroup("nursery", [ExceptionGroup("nursery", [cause])])
    assert single_cause(caught.value) is cause
    several = ExceptionGroup("nursery", [cause, KeyError()])
    assert single_cause(several) is several


async def test_an_unusable_configuration_at_the_first_opening_ends_the_program(autojump_clock) -> None:
    @asynccontextmanager
    async def refuses() -> AsyncIterator[None]:
        async with trio.open_nursery():  # which puts a group around it
            raise ConfigError("is a directory", path="path")
            yield

    async def use(_opened: None) -> None:
        raise AssertionError("it is not open")

    with pytest.raises(ConfigError, match="path: is a directory"):
        await keep_open(component(), refuses, use, log=MemoryLog())

    assert trio.current_time() == 0


async def test_an_unusable_configuration_later_is_tried_again_and_said_in_a_sentence(autojump_clock) -> None:
    log, openings = MemoryLog(), 0

    @asynccontextmanager
    async def once_taken() -> AsyncIterator[int]:
        nonlocal openings
        openings += 1
        if openings == 2:
            raise ConfigError("is written by another", path="path")
        yield openings

    async def use(opened: int) -> None:
        if opened == 1:
            raise PluginFailure from OSError("away")

    await keep_open(component(), once_taken, use, log=log)

    assert openings == 3
    assert log.facts("plugin_failed")[1] == {"problem": "path: is written by another"}


async def test_a_plugin_that_calls_exit_fails_alone(autojump_clock) -> None:
    log, openings = MemoryLog(), 0

    @asynccontextmanager
    async def gives_up() -> AsyncIterator[int]:
        nonlocal openings
        openings += 1
        if openings == 1:
            raise SystemExit(9)
        yield openings

    async def use(opened: int) -> None:
        if opened == 2:
            with plugin_code():
                raise SystemExit("no licence")

    row = component()
    await keep_open(row, gives_up, use, log=log)

    assert openings == 3
    causes = [str(facts["exc_info"]) for facts in log.facts("plugin_failed")]
    assert causes == ["it called sys.exit(9)", "it called sys.exit('no licence')"]


async def test_a_failure_without_a_text_is_a_failure_like_others(autojump_clock) -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise KeyError("no text")

    row = component()
    row.failed(SilentError())
    assert row.health().problem == "SilentError: no text, because its __str__ raised KeyError"


async def test_sys_exit_in_a_plugins_own_nursery_is_a_failure_as_any_other(autojump_clock) -> None:
    row, log, opened = component(), MemoryLog(), []

    async def leave() -> None:
        raise SystemExit("enough")

    @asynccontextmanager
    async def open_plugin() -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            if not opened:
                nursery.start_soon(leave)
            opened.append(trio.current_time())
            yield

    async def use(_opened: object) -> None:
        await trio.sleep(5)

    await keep_open(row, open_plugin, use, log=log)

    assert opened == [0, 1]
    assert log.events("error") == ["plugin_failed"]
    assert "sys.exit('enough')" in str(log.facts("plugin_failed")[0]["exc_info"])


async def test_sys_exit_in_the_nursery_of_a_call_is_the_plugins_fault() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(PluginFailure) as caught, plugin_code():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
    assert "sys.exit(3)" in str(single_cause(caught.value))


async def test_what_is_no_exception_at_all_is_a_plugins_failure_too(autojump_clock) -> None:
    class PanicError(BaseException):
        """As libraries written in Rust raise them."""

    row, log, opened = component(), MemoryLog(), []

    async def panic() -> None:
        raise PanicError("index out of bounds")

    @asynccontextmanager
    async def open_plugin() -> AsyncIterator[None]:
        opened.append(trio.current_time())
        if len(opened) == 1:
            await panic()
        async with trio.open_nursery() as nursery:
            if len(opened) == 2:
                nursery.start_soon(panic)
            yield

    async def use(_opened: object) -> None:
        if len(opened) == 3:
            with plugin_code():
                await panic()
        await trio.sleep(5)

    await keep_open(row, open_plugin, use, log=log)

    assert len(opened) == 4
    causes = [str(facts["exc_info"]) for facts in log.facts("plugin_failed")]
    assert causes == ["it raised PanicError: index out of bounds"] * 3


@pytest.mark.parametrize("raised", [KeyboardInterrupt, GeneratorExit])
def test_what_is_never_a_plugins_fault_goes_on_up(raised: type[BaseException]) -> None:
    with pytest.raises(raised), plugin_code():
        raise raised


def test_what_is_nobodys_to_contain_goes_on_up() -> None:
    with pytest.raises(BaseExceptionGroup) as caught, plugin_code():
        raise BaseExceptionGroup("both", [SystemExit(3), KeyboardInterrupt()])
    assert [type(inner) for inner in caught.value.exceptions] == [KeyboardInterrupt]


async def test_a_configuration_error_is_tried_again_where_the_plugin_may_not_refuse(autojump_clock) -> None:
    row, times = component(), []

    @asynccontextmanager
    async def open_plugin() -> AsyncIterator[None]:
        times.append(trio.current_time())
        if len(times) < 3:
            raise ConfigError("cannot be used")
        yield

    async def use(_opened: object) -> None:
        await trio.lowlevel.checkpoint()

    await keep_open(row, open_plugin, use, log=MemoryLog(), may_refuse=False)
    assert len(times) == 3
