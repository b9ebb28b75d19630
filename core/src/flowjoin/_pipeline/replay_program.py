"""A replay as a program: state that is thrown away, the pipeline, the capture, the end."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from flowjoin._collector.capture import CaptureItem
from flowjoin._config.plugin_settings import BoundConfig
from flowjoin._model.errors import DecodeError
from flowjoin._pipeline.assembly import assemble
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.kernel_factory import make_kernel
from flowjoin._pipeline.loop_clock import LoopClock
from flowjoin._pipeline.process import Companion, Stop, open_stages
from flowjoin._pipeline.replay import Replay
from flowjoin._pipeline.state_directory import State, open_state
from flowjoin._telemetry.logs import Logs
from flowjoin._telemetry.metrics import Metrics

__all__ = ["ReplayOutcome", "run_replay"]

# The cluster of flows whose records and configuration name none: the same in every replay, so that the same capture
# gives the same rows.
_CLUSTER_UUID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """How a replay ended.

    Attributes:
        books: at the end.
        fault: why the file could not be read to its end; None when it could.
        streams_refused: TCP sessions that were not listened to any further.
    """

    books: Books
    fault: DecodeError | OSError | None
    streams_refused: int


def run_replay(
    bound: BoundConfig,
    items: Iterator[CaptureItem],
    *,
    logs: Logs,
    form: str = "auto",
    scope: trio.CancelScope | None = None,
    tell: Callable[[int], None] = lambda _items: None,
    companions: Sequence[Companion] = (),
) -> ReplayOutcome | None:
    """Replay the items of a capture through a configuration's pipeline, without its collectors and sources.

    Args:
        bound: the configuration.
        items: of one capture, in its order.
        logs: makes every part's logger.
        form: of the kernel: what ``FLOWJOIN_KERNEL`` says, or ``auto``.
        scope: cancel it to stop at once.
        tell: told of the number of items of each step.
        companions: run beside the pipeline until its last row has left; there are no addresses to tell them.

    Returns:
        How it ended; None if it was cancelled.

    Raises:
        ConfigError: the kernel's form cannot be used.
        PluginError: a plugin breaks its contract.
    """
    with tempfile.TemporaryDirectory(prefix="flowjoin-replay-") as directory, open_state(Path(directory)) as state:
        return trio.run(_main, bound, items, state, logs, form, scope or trio.CancelScope(), tell, companions)


async def _main(
    bound: BoundConfig,
    items: Iterator[CaptureItem],
    state: State,
    logs: Logs,
    form: str,
    scope: trio.CancelScope,
    tell: Callable[[int], None],
    companions: Sequence[Companion],
) -> ReplayOutcome | None:
    kernel = make_kernel(bound, cluster_uuid=_CLUSTER_UUID, form=form)
    pipeline = assemble(
        bound,
        kernel,
        state=state,
        logs=logs,
        metrics=Metrics(),
        random=random.random,
        clock=LoopClock(),
        is_replay=True,
    )
    replay = Replay(kernel, pipeline.ingest, pipeline.aggregation.expire)
    outcome: ReplayOutcome | None = None
    with scope:
        fault: DecodeError | OSError | None = None
        async with trio.open_nursery() as beside:
            for companion in companions:
                beside.start_soon(companion, ())
            async with open_stages(pipeline, Stop()):
                try:
                    fault = await replay.run(items, tell=tell)
                except OSError as exc:
                    fault = exc
            beside.cancel_scope.cancel()
        outcome = ReplayOutcome(books=pipeline.books(), fault=fault, streams_refused=replay.streams_refused)
    logs.report_suppressed(everything=True)
    return outcome
