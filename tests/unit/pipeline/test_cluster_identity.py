from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from flowjoin._pipeline.cluster_identity import with_cluster_uuid
from flowjoin._pipeline.state_directory import State, open_state
from flowjoin._telemetry.logs import Logs
from flowjoin.api import ConfigError, PluginContractError, PluginError

TOLD = "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"
OTHER = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with open_state(tmp_path / "state") as state:
        yield state


def plugin(name: str, answer: object) -> Any:
    """One that tells the answer, raises it, or (None of an answer) cannot tell."""

    async def ask(settings: object, log: Any) -> Any:
        await trio.lowlevel.checkpoint()
        log.debug("asked", settings=settings)
        if isinstance(answer, Exception):
            raise answer
        if answer is trio:
            await trio.sleep_forever()
        return answer

    entry = SimpleNamespace(name=name, type=name)
    can_tell = answer != "cannot"
    return SimpleNamespace(
        entry=entry, settings=f"of {name}", type=SimpleNamespace(cluster_uuid=ask if can_tell else None)
    )


class Bench:
    def __init__(self, lookups: list[Any], enrichers: list[Any]) -> None:
        self.bound: Any = SimpleNamespace(lookups=lookups, enrichers=enrichers)
        self.stream = io.StringIO()
        self.logs = Logs(self.stream, log_format="json", level="debug", clock=lambda: 0.0)

    async def ask(self, state: State) -> str:
        return (await with_cluster_uuid(self.bound, state, self.logs)).cluster_uuid

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


async def test_without_a_plugin_that_can_tell_it_is_the_state_directorys_own(state: State) -> None:
    assert await Bench([], []).ask(state) == state.cluster_uuid
    assert await Bench([plugin("a", "cannot")], [plugin("b", None)]).ask(state) == state.cluster_uuid
    assert state.told_cluster_uuid() is None


async def test_the_first_that_tells_wins_look_ups_before_enrichers(state: State) -> None:
    bench = Bench([plugin("a", None), plugin("b", TOLD.upper())], [plugin("c", OTHER)])
    assert await bench.ask(state) == TOLD
    assert [line["settings"] for line in bench.lines if line["event"] == "asked"] == ["of a", "of b"]


async def test_what_was_told_is_remembered_for_when_it_cannot_be_asked(state: State) -> None:
    assert await Bench([], [plugin("a", TOLD)]).ask(state) == TOLD
    bench = Bench([], [plugin("a", PluginError("no server", plugin="a"))])
    assert await bench.ask(state) == TOLD
    (warning,) = (line for line in bench.lines if line["event"] == "cluster_uuid_remembered")
    assert "no server" in warning["problem"]
    assert await Bench([], [plugin("a", OTHER)]).ask(state) == OTHER
    assert await bench.ask(state) == OTHER


@pytest.mark.parametrize("error", [PluginError("no server", plugin="a"), ConfigError("no kubeconfig")])
async def test_what_was_never_told_and_cannot_be_asked_keeps_the_program_from_starting(
    state: State, error: Exception
) -> None:
    with pytest.raises(type(error), match=str(error)):
        await Bench([], [plugin("a", error)]).ask(state)


async def test_a_bug_of_the_plugin_is_named(state: State) -> None:
    with pytest.raises(PluginError, match=r"asking it for the cluster's UUID failed: ZeroDivisionError"):
        await Bench([], [plugin("a", ZeroDivisionError())]).ask(state)


async def test_a_plugin_that_does_not_answer_is_given_up(state: State, autojump_clock: object) -> None:
    with pytest.raises(PluginError, match="TooSlowError"):
        await Bench([], [plugin("a", trio)]).ask(state)
    assert trio.current_time() == 30


@pytest.mark.parametrize("answer", ["", "cluster-7", 7])
async def test_what_is_no_uuid_breaks_the_contract(state: State, answer: object) -> None:
    with pytest.raises(PluginContractError, match="which is none"):
        await Bench([], [plugin("a", answer)]).ask(state)


async def test_without_a_state_directory_nothing_is_remembered() -> None:
    with open_state(None) as state:
        assert await Bench([], [plugin("a", TOLD)]).ask(state) == TOLD
        with pytest.raises(PluginError):
            await Bench([], [plugin("a", PluginError("no server", plugin="a"))]).ask(state)


async def test_a_damaged_memory_is_named(state: State) -> None:
    assert state.directory is not None
    (state.directory / "cluster-uuid-told").write_text("nonsense\n")
    with pytest.raises(ConfigError, match="cluster-uuid-told does not hold a UUID"):
        await Bench([], [plugin("a", PluginError("no server", plugin="a"))]).ask(state)
