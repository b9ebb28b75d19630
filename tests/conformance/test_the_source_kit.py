"""Each check of the sources' kit catches a source broken on purpose."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
from broken_plugins import Config, KitContract, forgetting_a_socket, leaving_its_socket, one_at_a_time, opening

from flowjoin.api import (
    AddressFamily,
    ConfigError,
    DataType,
    ElementId,
    EnterpriseNumber,
    FlowBatch,
    FlowOrigin,
    FlowSchema,
    InformationElement,
    PluginContext,
    SourceType,
    Value,
)
from flowjoin.testing import SourceConformance, SourceExample, plain_flows, source_checks
from flowjoin.testing.source_checks import SourceSubject
from flowjoin.testing.subject import CheckSkipped

checks = source_checks
SENT: dict[str, Value] = {
    "flowStartSeconds": 10,
    "flowEndSeconds": 12,
    "sourceIPv4Address": "192.0.2.1",
    "destinationIPv4Address": "192.0.2.2",
    "packetDeltaCount": 3,
    "packetTotalCount": 5,
}
USELESS = Config(kept=["useless"])


class Sound:
    """Keeps the contract; each broken one changes one thing of it."""

    names: tuple[str, ...] = tuple(SENT)
    origin = FlowOrigin.SOURCE
    values: Mapping[str, Value] = SENT

    def __init__(self, config: Config, context: PluginContext) -> None:
        self.config = config
        self.context = context
        if config == USELESS:
            raise ConfigError("it cannot be had here")

    async def batches(self) -> AsyncIterator[Any]:
        while True:
            await trio.sleep(1)
            if self.config.is_down[0]:
                raise OSError("it went away")
            yield self.batch()

    def batch(self, **changed: Value) -> FlowBatch:
        schema = self.schema()
        return FlowBatch.from_columns(
            schema, {name: [value] for name, value in {**self.values, **changed}.items() if name in schema}
        )

    def schema(self) -> FlowSchema:
        registry = self.context.registry
        elements = tuple(map(registry.by_name, self.names))
        return FlowSchema(origin=self.origin, family=AddressFamily.IPV4, elements=elements, registry=registry)


class Ends(Sound):
    async def batches(self) -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        for _ in ():
            yield self.batch()


class SaysOther(Sound):
    values: Mapping[str, Value] = {**SENT, "packetDeltaCount": 4}


class SaysNothing(Sound):
    async def batches(self) -> AsyncIterator[Any]:
        await trio.sleep_forever()
        yield self.batch()


class First(Sound):
    """Gives something else before the example."""

    def first(self) -> Any:
        raise NotImplementedError

    async def batches(self) -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        yield self.first()
        async with aclosing(super().batches()) as sound:
            async for batch in sound:
                yield batch


class NoBatch(First):
    def first(self) -> Any:
        return {"packetDeltaCount": 3}


class OfAnOriginalExporter(First):
    def first(self) -> Any:
        return plain_flows()


class WithoutAddresses(Sound):
    names = ("flowStartSeconds", "flowEndSeconds", "packetDeltaCount", "packetTotalCount")


class OfItsOwnRegistry(Sound):
    def schema(self) -> FlowSchema:
        registry = self.context.registry
        own = InformationElement(
            name="colourOfTheFlow",
            element_id=ElementId(1),
            enterprise_number=EnterpriseNumber(32473),
            data_type=DataType.STRING,
        )
        elements = (*map(registry.by_name, self.names), own)
        return FlowSchema(
            origin=self.origin, family=AddressFamily.IPV4, elements=elements, registry=registry.extended([own])
        )


class ManySchemas(First):
    def first(self) -> Any:
        self.names = (*self.names, "protocolIdentifier")
        first = self.batch(packetDeltaCount=1)
        self.names = self.names[:-1]
        return first


class WithoutRows(First):
    def first(self) -> Any:
        return self.batch().slice(0, 0)


class GivesIds(First):
    def first(self) -> Any:
        return self.batch().with_id("mine")


class DoesNotFit(First):
    def first(self) -> Any:
        batch = self.batch(packetDeltaCount=1)
        others = {"packetTotalCount": "sourceIPv4Address"}
        return FlowBatch(batch.schema, [batch.column(others.get(name, name)) for name in self.names])


class EndsBeforeItBegan(First):
    def first(self) -> Any:
        return self.batch(flowEndSeconds=9)


class TwiceTheSame(First):
    def first(self) -> Any:
        self.kept = self.batch(packetDeltaCount=1)
        return self.kept

    async def batches(self) -> AsyncIterator[Any]:
        async with aclosing(super().batches()) as sound:
            async for batch in sound:
                yield self.kept
                yield batch


class ChangesWhatItGave(First):
    def first(self) -> Any:
        self.given = super().batch(packetDeltaCount=1)
        return self.given

    def batch(self, **changed: Value) -> FlowBatch:
        batch = super().batch(**changed)
        self.given._columns = batch.columns
        return batch


class ClosesLate(Sound):
    async def batches(self) -> AsyncIterator[Any]:
        try:
            async with aclosing(super().batches()) as sound:
                async for batch in sound:
                    yield batch
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(20)


class Alone(Sound):
    values: Mapping[str, Value]

    def batch(self, **changed: Value) -> FlowBatch:
        return super().batch(packetDeltaCount=2 if len(self.config.kept) > 1 else 3)


class EndsWhenItIsAway(Sound):
    async def batches(self) -> AsyncIterator[Any]:
        while not self.config.is_down[0]:
            await trio.sleep(1)
            yield self.batch()


class NeverAgain(Sound):
    async def batches(self) -> AsyncIterator[Any]:
        if self.config.kept:
            await trio.sleep_forever()
        try:
            async with aclosing(super().batches()) as sound:
                async for batch in sound:
                    yield batch
        except OSError:
            self.config.kept.append("broken for good")
            raise


class LeavesASocketWhenItFails(Sound):
    async def batches(self) -> AsyncIterator[Any]:
        self.config.kept.append(socket.socket())
        async with aclosing(super().batches()) as sound:
            async for batch in sound:
                yield batch


class RefusesOtherwise(Sound):
    def __init__(self, config: Config, context: PluginContext) -> None:
        try:
            super().__init__(config, context)
        except ConfigError as exc:
            raise OSError("not here") from exc


class TakesAnything(Sound):
    def __init__(self, config: Config, context: PluginContext) -> None:
        super().__init__(Config(), context)


class SaysNothingOfIt(Sound):
    def __init__(self, config: Config, context: PluginContext) -> None:
        try:
            super().__init__(config, context)
        except ConfigError:
            raise ConfigError("") from None


class Blocks(Sound):
    def batch(self, **changed: Value) -> FlowBatch:
        time.sleep(0.06)
        return super().batch(**changed)


class TellsItsSecret(Sound):
    def batch(self, **changed: Value) -> FlowBatch:
        self.context.log.info("asked", how=self.config.secret.reveal())
        return super().batch(**changed)


class TellsItsSecretWhenItIsAway(Sound):
    async def batches(self) -> AsyncIterator[Any]:
        try:
            async with aclosing(super().batches()) as sound:
                async for batch in sound:
                    yield batch
        except OSError as exc:
            raise OSError(f"{self.config.secret.reveal()} was of no use") from exc


def opened_with(open_source: Any) -> SourceType:
    return SourceType("broken", Config, open_source, api_version=1)


def of(source: Callable[[Config, PluginContext], Sound]) -> SourceType:
    return opened_with(opening(lambda config, context: source(config, context).batches()))


def _batches(config: Config, context: PluginContext) -> AsyncIterator[Any]:
    return Sound(config, context).batches()


def _batches_alone(config: Config, context: PluginContext) -> AsyncIterator[Any]:
    return Alone(config, context).batches()


@asynccontextmanager
async def _task_of_the_system(config: Config, context: PluginContext) -> AsyncIterator[Any]:
    trio.lowlevel.spawn_system_task(trio.sleep_forever)
    await trio.lowlevel.checkpoint()
    yield _batches(config, context)


BROKEN = [
    (checks.check_entry_point, of(Sound), "no installed distribution"),
    (checks.check_opens_and_closes, opened_with(opening(lambda *_: [])), "yields a list, which is no async iterator"),
    (checks.check_opens_and_closes, opened_with(forgetting_a_socket(_batches)), "sockets or files are open"),
    (checks.check_opens_and_closes, opened_with(_task_of_the_system), "tasks are left"),
    (checks.check_the_example_is_given, of(Ends), "its batches ended"),
    (checks.check_the_example_is_given, of(SaysOther), "within 60 s it gave no row with"),
    (checks.check_the_example_is_given, of(SaysNothing), "within 60 s it gave no row with"),
    (checks.check_every_batch_keeps_the_laws, of(NoBatch), "gave a dict, not a FlowBatch"),
    (checks.check_every_batch_keeps_the_laws, of(OfAnOriginalExporter), "not FlowOrigin.SOURCE"),
    (checks.check_every_batch_keeps_the_laws, of(WithoutAddresses), "lacks sourceIPv4Address"),
    (checks.check_every_batch_keeps_the_laws, of(OfItsOwnRegistry), "colourOfTheFlow is not the registry's"),
    (checks.check_every_batch_keeps_the_laws, of(ManySchemas), "have several schemas"),
    (checks.check_every_batch_keeps_the_laws, of(WithoutRows), "a batch without rows"),
    (checks.check_every_batch_keeps_the_laws, of(GivesIds), "a batch with an id"),
    (checks.check_every_batch_keeps_the_laws, of(DoesNotFit), "does not fit"),
    (checks.check_every_batch_keeps_the_laws, of(EndsBeforeItBegan), "flowStartSeconds 10 is greater than"),
    (checks.check_every_batch_keeps_the_laws, of(TwiceTheSame), "the same batch twice"),
    (checks.check_every_batch_keeps_the_laws, of(ChangesWhatItGave), "changed a batch"),
    (checks.check_cancellation_leaves_nothing_behind, opened_with(leaving_its_socket(_batches)), "files are open"),
    (checks.check_cancellation_leaves_nothing_behind, of(ClosesLate), "it took 20 s to close"),
    (checks.check_two_instances_do_not_meet, opened_with(one_at_a_time(_batches_alone)), "it gave no row with"),
    (checks.check_after_a_failure_it_works_again, of(EndsWhenItIsAway), "its batches ended"),
    (checks.check_after_a_failure_it_works_again, of(NeverAgain), "it gave no row with"),
    (checks.check_after_a_failure_it_works_again, of(LeavesASocketWhenItFails), "after it failed to open"),
    (checks.check_what_cannot_work_is_refused, of(RefusesOtherwise), "gave OSError('not here')"),
    (checks.check_what_cannot_work_is_refused, of(TakesAnything), "gave None"),
    (checks.check_what_cannot_work_is_refused, of(SaysNothingOfIt), "says nothing"),
    (checks.check_no_task_step_is_long, of(Blocks), "held trio's thread for"),
    (checks.check_secrets_are_not_shown, of(TellsItsSecret), "a secret is shown"),
    (checks.check_secrets_are_not_shown, of(TellsItsSecretWhenItIsAway), "a secret is shown"),
]


def subject_of(source_type: SourceType) -> SourceSubject:
    config = Config()
    # What the broken ones leave out is not asked for: each is caught for what it does wrong.
    row = {name: SENT[name] for name in ("packetDeltaCount", "packetTotalCount")}
    return SourceSubject(
        source_type=source_type,
        config=config,
        example=SourceExample(rows=[row]),
        source_down=config.down,
        unusable_config=USELESS,
    )


class TestTheKit(KitContract):
    checks = source_checks
    kit = SourceConformance
    broken = BROKEN
    sound = of(Sound)

    def subject_of(self, plugin_type: SourceType) -> SourceSubject:
        return subject_of(plugin_type)


async def test_without_what_they_need_two_checks_are_skipped() -> None:
    whole = subject_of(of(Sound))
    subject = SourceSubject(source_type=whole.source_type, config=whole.config, example=whole.example)
    with pytest.raises(CheckSkipped, match="supply source_down"):
        await checks.check_after_a_failure_it_works_again(subject)
    with pytest.raises(CheckSkipped, match="supply unusable_config"):
        await checks.check_what_cannot_work_is_refused(subject)


async def test_an_example_without_rows_is_refused() -> None:
    whole = subject_of(of(Sound))
    subject = SourceSubject(source_type=whole.source_type, config=whole.config, example=SourceExample(rows=[]))
    with pytest.raises(AssertionError, match="the example has no rows"):
        await checks.check_the_example_is_given(subject)


async def test_a_second_instance_may_be_refused(autojump_clock: object) -> None:
    opened: list[Config] = []

    @asynccontextmanager
    async def alone(config: Config, context: PluginContext) -> AsyncIterator[Any]:
        if opened:
            raise ConfigError("in use")
        opened.append(config)
        await trio.lowlevel.checkpoint()
        yield _batches(config, context)
        opened.clear()

    await checks.check_two_instances_do_not_meet(subject_of(opened_with(alone)))
