"""Each check of the enrichers' kit catches an enricher that is broken on purpose."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from broken_plugins import Config, KitContract, forgetting_a_socket, leaving_its_socket, one_at_a_time, opening

from flowjoin.api import EnricherType, FlowBatch, PluginContext
from flowjoin.testing import EnricherConformance, EnricherExample, enricher_checks, numbered_flows
from flowjoin.testing.enricher_checks import EnricherSubject
from flowjoin.testing.subject import CheckSkipped


class Sound:
    """Keeps the contract; each broken one changes one thing of it."""

    def __init__(self, config: Config, context: PluginContext) -> None:
        self.config = config
        self.context = context

    def enrich(self, batch: FlowBatch) -> Any:
        return {"interfaceName": batch.map_distinct("flowStartSeconds", lambda start: f"eth{start % 2}")}


class Waits(Sound):
    async def enrich(self, batch: FlowBatch) -> Any:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        return super().enrich(batch)


class SaysNothing(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {}


class SaysOther(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {"interfaceName": ["lo"] * len(batch)}


class Undeclared(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {**super().enrich(batch), "egressName": ["e"] * len(batch)}


class NoMapping(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return list(super().enrich(batch)) if len(batch) == 300 else super().enrich(batch)


class TooFew(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {"interfaceName": ["eth0"]} if len(batch) == 300 else super().enrich(batch)


class WrongType(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {"interfaceName": [7] * len(batch)} if len(batch) == 300 else super().enrich(batch)


class Changes(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        batch._id = "mine"
        return super().enrich(batch)


class Keeps(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        self.config.kept.append(batch)
        return super().enrich(batch)


class AsksWhileItWorks(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        if self.config.is_down[0]:
            raise OSError("no server")
        return super().enrich(batch)


class Blocks(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        time.sleep(0.06)
        return super().enrich(batch)


class TellsItsSecret(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        self.context.log.info("asked", how=self.config.secret.reveal())
        return super().enrich(batch)


class Alone(Sound):
    def enrich(self, batch: FlowBatch) -> Any:
        return {} if len(self.config.kept) > 1 else super().enrich(batch)


def opened_with(open_enricher: Any, *, fills: tuple[str, ...] = ("interfaceName",)) -> EnricherType:
    return EnricherType("broken", Config, (), fills, open_enricher, api_version=1)


def of(
    enricher: Callable[[Config, PluginContext], Any], *, fills: tuple[str, ...] = ("interfaceName",)
) -> EnricherType:
    return opened_with(opening(enricher), fills=fills)


checks = enricher_checks
BROKEN = [
    (checks.check_entry_point, of(Sound), "no installed distribution"),
    (checks.check_declared_elements_are_known, of(Sound, fills=()), "declares no element"),
    (checks.check_declared_elements_are_known, of(Sound, fills=("interfaceName",) * 2), "declares an element twice"),
    (checks.check_declared_elements_are_known, of(Sound, fills=("colour",)), "elements that nobody knows"),
    (checks.check_opens_and_closes, of(lambda *_: object()), "yields a object without enrich"),
    (checks.check_opens_and_closes, of(Waits), "enrich is async"),
    (checks.check_opens_and_closes, opened_with(forgetting_a_socket(Sound)), "sockets or files are open"),
    (checks.check_the_example_is_enriched, of(SaysNothing), "gets no interfaceName"),
    (checks.check_the_example_is_enriched, of(SaysOther), "the example's interfaceName is ['lo'"),
    (checks.check_any_batch_gets_columns_that_fit, of(Undeclared), "does not declare"),
    (checks.check_any_batch_gets_columns_that_fit, of(NoMapping), "not a mapping"),
    (checks.check_any_batch_gets_columns_that_fit, of(TooFew), "1 values of interfaceName for 300 rows"),
    (checks.check_any_batch_gets_columns_that_fit, of(WrongType), "does not fit"),
    (checks.check_a_batch_is_neither_changed_nor_kept, of(Changes), "changed the batch's id"),
    (checks.check_a_batch_is_neither_changed_nor_kept, of(Keeps), "keeps a batch"),
    (
        checks.check_cancellation_leaves_nothing_behind,
        opened_with(leaving_its_socket(Sound)),
        "sockets or files are open",
    ),
    (checks.check_two_instances_do_not_meet, opened_with(one_at_a_time(Alone)), "gets no interfaceName"),
    (checks.check_no_task_step_is_long, of(Blocks), "held trio's thread for"),
    (checks.check_secrets_are_not_shown, of(TellsItsSecret), "a secret is shown"),
]


def subject_of(enricher_type: EnricherType) -> EnricherSubject:
    config = Config()
    batch = numbered_flows(3)
    wanted = [f"eth{start % 2}" for start in batch.column("flowStartSeconds")]  # type: ignore[operator]  # numbers
    example = EnricherExample(batch=batch, columns={"interfaceName": wanted})
    return EnricherSubject(enricher_type=enricher_type, config=config, example=example, source_down=config.down)


class TestTheKit(KitContract):
    checks = enricher_checks
    kit = EnricherConformance
    broken = BROKEN
    caught_elsewhere = frozenset({"check_without_its_source_it_goes_on"})
    sound = of(Sound)

    def subject_of(self, plugin_type: EnricherType) -> EnricherSubject:
        return subject_of(plugin_type)


async def test_an_enricher_that_asks_while_it_works_is_caught() -> None:
    with pytest.raises(OSError, match="no server"):
        await checks.check_without_its_source_it_goes_on(subject_of(of(AsksWhileItWorks)))


async def test_without_a_way_to_take_the_source_away_that_check_is_skipped() -> None:
    whole = subject_of(of(Sound))
    subject = EnricherSubject(enricher_type=whole.enricher_type, config=whole.config, example=whole.example)
    with pytest.raises(CheckSkipped, match="supply source_down"):
        await checks.check_without_its_source_it_goes_on(subject)
