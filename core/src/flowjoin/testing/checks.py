"""What every exporter must do: one async function per requirement, with no test framework in it.

Each check takes a ``Subject`` and raises AssertionError with the requirement that is broken. Each opens the
exporter anew; what is delivered is counted before and after, so that the destination may be shared by all.
"""

from __future__ import annotations

import gc
import inspect
import math
import traceback
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import trio

from flowjoin.api import (
    ConfigError,
    Exporter,
    ExporterType,
    FlowBatch,
    PermanentExportError,
    RetryableExportError,
)
from flowjoin.testing.batches import every_data_type, hostile_flows, numbered_flows, plain_flows, standard_flow
from flowjoin.testing.requirements import CLOSE_SECONDS, cancelled_everywhere, handed_over, no_long_step, secrets_hidden
from flowjoin.testing.subject import SUPPLY_DESTINATION_DOWN, CheckSkipped, Delivered, Subject, entered, listed
from flowjoin.testing.watching import Held

__all__ = [
    "CheckSkipped",
    "Subject",
    "check_a_batch_is_not_changed",
    "check_a_batch_is_not_kept",
    "check_a_destination_that_is_down_is_retryable",
    "check_an_empty_batch_delivers_nothing",
    "check_bad_data_is_accepted_or_permanent",
    "check_cancellation_leaves_nothing_behind",
    "check_counters_agree_with_what_was_delivered",
    "check_delivered_when_export_returns",
    "check_entry_point",
    "check_every_data_type_survives_or_is_permanent",
    "check_no_task_step_is_long",
    "check_opens_and_closes_without_a_batch",
    "check_secrets_are_not_shown",
    "check_two_instances_do_not_meet",
]

_HOOK: Final = "flowjoin_exporter_types"
_DELIVERED_COUNTER: Final = "rows_delivered"


async def check_entry_point(subject: Subject) -> None:
    """Installed metadata names a module that hands over this type, and the module is typed."""
    await trio.lowlevel.checkpoint()
    handed_over(subject.exporter_type.name, _HOOK, ExporterType)


async def check_opens_and_closes_without_a_batch(subject: Subject) -> None:
    """Opening delivers nothing, leaves no task or socket after it, and works twice in a row."""
    before = await subject.count()
    async with subject.open(subject.context()):
        pass
    held = Held.now()
    with trio.fail_after(CLOSE_SECONDS):
        async with subject.open(subject.context()) as exporter:
            assert inspect.iscoroutinefunction(exporter.export), "export is no async function"
    held.check_nothing_more("after it was closed")
    assert await subject.count() == before, "rows were delivered without any batch"


async def check_delivered_when_export_returns(subject: Subject) -> None:
    """Each batch is at the destination, whole, by the time ``export`` returns, whatever its schema."""
    async with subject.open(subject.context()) as exporter:
        for batch in (standard_flow(), numbered_flows(300), plain_flows(5), numbered_flows(1, first=300)):
            before = await subject.count()
            await exporter.export(batch)
            gained = await subject.count() - before
            assert gained == len(batch), f"{gained} of {len(batch)} rows were there when export returned"


async def check_an_empty_batch_delivers_nothing(subject: Subject) -> None:
    """A batch without rows is accepted and delivers nothing."""
    async with subject.open(subject.context()) as exporter:
        before = await subject.count()
        await exporter.export(numbered_flows(0))
        assert await subject.count() == before, "rows were delivered for an empty batch"
        await exporter.export(numbered_flows(2))
        assert await subject.count() == before + 2, "after an empty batch the next one was not delivered"


async def check_every_data_type_survives_or_is_permanent(subject: Subject) -> None:
    """Values of every abstract data type (RFC 7012 section 3.1) are delivered, or refused for good."""
    await _deliver_or_refuse(subject, every_data_type())


async def check_bad_data_is_accepted_or_permanent(subject: Subject) -> None:
    """Strings that break formats and numbers at their limits are delivered, or refused row by row for good."""
    await _deliver_or_refuse(subject, hostile_flows())


async def check_a_batch_is_not_changed(subject: Subject) -> None:
    """The batch has the same rows, schema and id after ``export``."""
    batch = numbered_flows(20).with_id("an-id")
    schema, rows = batch.schema, list(batch.rows())
    async with subject.open(subject.context()) as exporter:
        await exporter.export(batch)
    assert batch.schema == schema, "export changed the batch's schema"
    assert list(batch.rows()) == rows, "export changed the batch's rows"
    assert batch.id == "an-id", "export changed the batch's id"


async def check_a_batch_is_not_kept(subject: Subject) -> None:
    """Nothing refers to a batch once ``export`` has returned and the caller let go of it."""
    async with subject.open(subject.context()) as exporter:
        batch = numbered_flows(20)
        reference = weakref.ref(batch)
        await exporter.export(batch)
        del batch
        await trio.lowlevel.checkpoint()
        gc.collect()
        assert reference() is None, "the exporter keeps a batch after export returned"


async def check_cancellation_leaves_nothing_behind(subject: Subject) -> None:
    """Cancelled at any checkpoint of open, export or close, it closes at once and leaves no task or socket.

    Where ``export`` returns all the same, the batch is delivered.
    """
    batch = numbered_flows(3)
    returned = False

    async def whole_life() -> None:
        nonlocal returned
        returned = False
        async with subject.open(subject.context()) as exporter:
            await exporter.export(batch)
            returned = True

    @asynccontextmanager
    async def counted(checkpoint: int) -> AsyncIterator[None]:
        before = await subject.count()
        yield
        gained = await subject.count() - before
        assert not returned or gained == len(batch), (
            f"cancelled at checkpoint {checkpoint}, export returned with {gained} of {len(batch)} rows delivered"
        )

    await cancelled_everywhere(whole_life, counted)
    before = await subject.count()
    await whole_life()
    gained = await subject.count() - before
    assert gained == len(batch), f"after cancellations {gained} of {len(batch)} rows were delivered"


async def check_a_destination_that_is_down_is_retryable(subject: Subject) -> None:
    """While the destination is down ``export`` raises RetryableExportError; afterwards the same batch goes through."""
    if subject.destination_down is None:
        raise CheckSkipped(SUPPLY_DESTINATION_DOWN)
    batch = numbered_flows(10)
    async with subject.open(subject.context()) as exporter:
        await exporter.export(numbered_flows(1))
        before = await subject.count()
        async with entered(subject.destination_down()):
            for _ in range(2):
                await _export_is_retryable(exporter, batch)
        await exporter.export(batch)
        gained = await subject.count() - before
        assert gained >= len(batch), f"when the destination was back {gained} of {len(batch)} rows were delivered"


async def check_two_instances_do_not_meet(subject: Subject) -> None:
    """Two instances deliver each their own, also after the other has closed; or the second is refused."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(subject.open(subject.context()))
        if subject.other_config is None:
            try:
                async with subject.open(subject.context()) as second:
                    await _deliver_both(subject, first, second, None)
            except* ConfigError:
                pass  # two on one destination are refused: they cannot meet
        else:
            assert subject.other_delivered is not None, "other_config comes with other_delivered"
            async with subject.open(subject.context(), subject.other_config) as second:
                await _deliver_both(subject, first, second, subject.other_delivered)
        before = await subject.count()
        await first.export(numbered_flows(7))
        gained = await subject.count() - before
        assert gained == 7, f"after another instance closed {gained} of 7 rows were delivered"


async def check_no_task_step_is_long(subject: Subject) -> None:
    """No task holds trio's thread for more than 50 ms, with a batch as large as lanes make them.

    Counted is what the step does itself: computing, and calls that sleep or wait. Not counted is time in which the
    machine ran something else, and of three tries the best counts: a busy machine fails no good exporter.
    """
    batch = numbered_flows(4096)

    async def whole_life() -> None:
        async with subject.open(subject.context()) as exporter:
            await exporter.export(batch)

    await no_long_step(
        whole_life, remedy="put a checkpoint between slices of the work, or blocking calls into trio.to_thread.run_sync"
    )


async def check_secrets_are_not_shown(subject: Subject) -> None:
    """Secrets are ``Secret``, and their values are in no repr, log line or error."""
    context = subject.context()
    shown = [repr(subject.config), str(subject.config)]
    async with subject.open(context) as exporter:
        shown += [repr(exporter), str(exporter)]
        await exporter.export(numbered_flows(3))
        if subject.destination_down is not None:
            async with entered(subject.destination_down()):
                error = await _error_of(exporter, numbered_flows(3))
            if error is not None:
                shown += traceback.format_exception(error)
    shown += [repr(line) for line in context.log.lines]
    secrets_hidden(subject.config, shown)


async def check_counters_agree_with_what_was_delivered(subject: Subject) -> None:
    """If it keeps a counter ``rows_delivered``, that is what the destination got, also around failures."""
    context = subject.context()
    async with subject.open(context) as exporter:
        before = await subject.count()
        await exporter.export(numbered_flows(11))
        if subject.destination_down is not None:
            async with entered(subject.destination_down()):
                await _error_of(exporter, numbered_flows(5))
        await exporter.export(plain_flows(4))
        gained = await subject.count() - before
    counter = context.counters.get(_DELIVERED_COUNTER)
    if counter is not None:
        assert counter.value == gained, f"{_DELIVERED_COUNTER} says {counter.value:g}, the destination got {gained}"


async def _deliver_or_refuse(subject: Subject, batch: FlowBatch) -> None:
    async with subject.open(subject.context()) as exporter:
        before = await subject.count()
        error = await _error_of(exporter, batch)
        gained = await subject.count() - before
        if error is None:
            assert gained == len(batch), f"{gained} of {len(batch)} rows were delivered, and none was refused"
        else:
            assert isinstance(error, PermanentExportError), (
                f"data that cannot be delivered gave {error!r}, not PermanentExportError"
            )
            refused = range(len(batch)) if error.rows is None else error.rows
            assert set(refused) <= set(range(len(batch))), f"refused rows {error.rows} are not in the batch"
            assert gained == len(batch) - len(set(refused)), (
                f"{len(set(refused))} of {len(batch)} rows were refused, and {gained} delivered"
            )
        before = await subject.count()
        await exporter.export(numbered_flows(2))
        assert await subject.count() == before + 2, "the batch after it was not delivered"


async def _deliver_both(subject: Subject, first: Exporter, second: Exporter, other_delivered: Delivered | None) -> None:
    before = await subject.count()
    other_before = len(await listed(other_delivered)) if other_delivered else 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.export, numbered_flows(5))
        nursery.start_soon(second.export, numbered_flows(6))
    gained = await subject.count() - before
    expected = 5 if other_delivered else 11
    assert gained == expected, f"with two instances {gained} rows were delivered where {expected} belong"
    if other_delivered:
        other_gained = len(await listed(other_delivered)) - other_before
        assert other_gained == 6, f"the second instance delivered {other_gained} of 6 rows"


async def _export_is_retryable(exporter: Exporter, batch: FlowBatch) -> None:
    # Apart, for an error holds what its frames hold, sockets too; the lane does not keep it until the exporter closes.
    error = await _error_of(exporter, batch)
    assert isinstance(error, RetryableExportError), (
        f"with the destination down export gave {error!r}, not RetryableExportError"
    )
    assert error.retry_after is None or 0 <= error.retry_after < math.inf, "retry_after is no delay"


async def _error_of(exporter: Exporter, batch: FlowBatch) -> Exception | None:
    try:
        await exporter.export(batch)
    except Exception as exc:  # noqa: BLE001 - which one it is, is what the check looks at
        return exc
    return None
