"""A configuration run as a program: state, logs, metrics and pipeline, from start to exit code."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from flowjoin import __version__
from flowjoin._config.plugin_settings import BoundConfig, BoundPlugin
from flowjoin._kernel import kernel_form
from flowjoin._kernel.interface import KeepsFlows, RemembersTemplates
from flowjoin._model.errors import FlowjoinError
from flowjoin._pipeline.api_server import serve_api
from flowjoin._pipeline.assembly import Pipeline, assemble
from flowjoin._pipeline.books import Books
from flowjoin._pipeline.checkpoint import Checkpoint
from flowjoin._pipeline.cluster_identity import with_cluster_uuid
from flowjoin._pipeline.descriptors import raise_open_files
from flowjoin._pipeline.early_signals import EarlySignals
from flowjoin._pipeline.figures import PipelineFigures
from flowjoin._pipeline.kernel_factory import make_kernel
from flowjoin._pipeline.lookups import Lookups
from flowjoin._pipeline.loop_clock import LoopClock
from flowjoin._pipeline.process import (
    CLOSING_SECONDS,
    Companion,
    Outcome,
    Stop,
    run_pipeline,
    unless_stopped,
    watch_signals,
)
from flowjoin._pipeline.reload import ConfigurationFile, Reloader
from flowjoin._pipeline.spool.places import orphan_spools
from flowjoin._pipeline.state_directory import State, find_directory, open_state
from flowjoin._pipeline.template_memory import TemplateMemory
from flowjoin._pipeline.watchdog import Watchdog, plugin_package
from flowjoin._telemetry.logs import Logs
from flowjoin._telemetry.metrics import Metrics

__all__ = ["run_program"]

# What ends a run and is nobody's bug: an address in use, a reader of standard output that left, Ctrl-C.
_NO_BUGS: Final = (FlowjoinError, BrokenPipeError, KeyboardInterrupt)


def run_program(
    bound: BoundConfig,
    *,
    environment: Mapping[str, str],
    logs: Logs,
    companions: Sequence[Companion] = (),
    file: ConfigurationFile | None = None,
) -> int:
    """Run until a signal says stop, print the books, give the exit code.

    A bug of the core ends the run too: the books are printed, and the exception goes on.

    Raises:
        ConfigError: the state directory or the kernel's form cannot be used.
        PluginError: a plugin breaks its contract.
        BindError: an address cannot be had.
    """
    directory = find_directory(bound.config.state_directory, environment)
    with open_state(directory) as state:
        early = EarlySignals()
        early.note()
        log = logs.logger(component="core")
        raise_open_files(bound.config.limits.sessions, log)
        form = environment.get("FLOWJOIN_KERNEL", "auto")
        log.info(
            "starting",
            version=__version__,
            kernel=kernel_form(form),
            instance=state.instance_id,
            epoch=state.epoch,
        )
        if directory is None:
            log.warning("no_state_directory", problem="nothing is kept across restarts; give stateDirectory")
        for name in orphan_spools(directory, _with_spool(bound)):
            problem = "no exporter with a spool has this name; flowjoin spool resend sends it to another"
            log.warning("spool_orphaned", spool=name, problem=problem)
        running: list[Pipeline] = []
        main = partial(
            _main,
            bound,
            state,
            logs,
            form,
            companions,
            running,
            file=file,
            early=early,
            namespace=environment.get("POD_NAMESPACE") or "flow-aggregator",
        )
        try:
            outcome = trio.run(main)
        except BaseException as exc:
            bug = next((leaf for leaf in _leaves(exc) if not isinstance(leaf, _NO_BUGS)), None)
            if bug is not None:
                logs.report_suppressed(everything=True)
                log.error("core_failed", problem=f"{type(bug).__name__}: {bug}", hint="this is a bug of flowjoin")
                for pipeline in running:
                    _tell_books(pipeline.books(), logs)
            raise
        if outcome is None:
            log.info("stopped", exit_code=0, rows_undelivered=0, rows_in_no_spool=0)
            return 0
        for problem in outcome.books.imbalances():
            log.error("books_do_not_balance", problem=problem)
        logs.report_suppressed(everything=True)
        if logs.format == "json":
            _tell_books(outcome.books, logs)
        log.info(
            "stopped",
            exit_code=outcome.exit_code,
            rows_undelivered=outcome.books.undelivered,
            rows_in_no_spool=outcome.books.unkept,
        )
        if logs.format == "console":
            _tell_books(outcome.books, logs)
        return outcome.exit_code


def _with_spool(bound: BoundConfig) -> set[str]:
    return {plugin.entry.name for plugin in bound.exporters if plugin.entry.spool != "none"}


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        for inner in exc.exceptions:
            yield from _leaves(inner)
    else:
        yield exc


def _tell_books(books: Books, logs: Logs) -> None:
    """For whom the log is: a table, or one line of it."""
    if logs.format == "console":
        logs.text(books.table())
    else:
        logs.statement("books", {"component": "core", **books.facts()})


async def _main(
    bound: BoundConfig,
    state: State,
    logs: Logs,
    form: str,
    companions: Sequence[Companion],
    running: list[Pipeline],
    *,
    file: ConfigurationFile | None,
    early: EarlySignals,
    namespace: str,
) -> Outcome | None:
    """How the run ended; None if there was a wish to stop before anything was opened."""
    stop = Stop()
    told = await _told_cluster(bound, state, logs, stop, early)
    if told is None:
        return None
    state = told
    kernel = make_kernel(bound, cluster_uuid=state.cluster_uuid, form=form)
    await trio.lowlevel.checkpoint()
    pipeline = assemble(
        bound,
        kernel,
        state=state,
        logs=logs,
        metrics=Metrics(),
        random=random.random,
        clock=LoopClock(),  # the books are told after the loop too
    )
    gc.freeze()  # what start-up made stays: the collector need not walk it again and again, ten milliseconds each time
    running.append(pipeline)  # for its books, whatever becomes of it
    reloader = None if file is None else Reloader(file, pipeline)
    watchdog = Watchdog(
        stall_seconds=bound.config.limits.stall,
        plugins=lambda: _plugin_names(pipeline.bound),
        is_saving=lambda: any(lane.is_saving for lane in pipeline.outlets.all_lanes),
        last_words=lambda: _tell_books(pipeline.books(), logs),
        log=pipeline.log,
    )
    pipeline.allow = watchdog.allow
    memory = None
    if state.directory is not None and isinstance(kernel, RemembersTemplates):
        memory = TemplateMemory(state.directory, kernel, log=pipeline.log, clock=trio.current_time, wall=time.time)
        memory.restore()
    checkpoint = _checkpoint(pipeline, state)
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(watch_signals, stop, pipeline.log, reload=None if reloader is None else reloader.wish)
        )
        if early.take_stop():
            stop.wish()
        nursery.start_soon(watchdog.run, name="watchdog")
        nursery.start_soon(_bound_second_wish, stop, watchdog)
        if memory is not None:
            nursery.start_soon(memory.keep, name="templates")
        figures = PipelineFigures(pipeline)
        log = logs.logger(component="api")
        serve = partial(serve_api, bound.config.api_server, figures, pipeline.health, log)
        await nursery.start(partial(serve, lookups=Lookups(pipeline.lookups)))
        if checkpoint is not None:
            await checkpoint.restore()
            nursery.start_soon(checkpoint.keep, name="checkpoint")
        outcome = await run_pipeline(
            pipeline,
            bound.config,
            stop,
            companions=(*companions, figures.while_ready),
            reloader=reloader,
            namespace=namespace,
        )
        nursery.cancel_scope.cancel()
    if memory is not None:
        await memory.save()
    if checkpoint is not None and outcome.has_left_the_table:
        await checkpoint.save(is_last=True)
    return outcome


async def _told_cluster(bound: BoundConfig, state: State, logs: Logs, stop: Stop, early: EarlySignals) -> State | None:
    """The state with the cluster's UUID, for which one may have to wait; None at a wish to stop meanwhile."""
    told: State | None = None
    async with trio.open_nursery() as nursery:
        # A file that changes meanwhile is noticed as soon as there is a pipeline to change.
        await nursery.start(partial(watch_signals, stop, logs.logger(component="core"), reload=lambda: None))
        if early.take_stop():
            stop.wish()
        async with unless_stopped(stop):
            told = await with_cluster_uuid(bound, state, logs)
        nursery.cancel_scope.cancel()
    return told


def _checkpoint(pipeline: Pipeline, state: State) -> Checkpoint | None:
    """What keeps the flow table, where it is wanted and can be had."""
    wanted, kernel = pipeline.config.checkpoint, pipeline.kernel
    if wanted == "none" or not isinstance(kernel, KeepsFlows):
        return None
    if state.directory is None:
        pipeline.log.warning("checkpoint_unavailable", problem="there is no state directory to keep it in")
        return None
    pipeline.keeps_flows = True
    checkpoint = Checkpoint(
        state,
        kernel,
        flows_per_slice=pipeline.kernel.flows_per_slice,
        interval=wanted.interval,
        max_age=wanted.max_age,
        restored=lambda: pipeline.kernel.statistics().flows_restored,
        lanes=lambda: {lane.name: lane.last_batch for lane in pipeline.outlets.all_lanes},
        component=pipeline.health.add("checkpoint", "flows"),
        log=pipeline.log,
        clock=trio.current_time,
        wall=time.time,
    )
    pipeline.metrics.watch(checkpoint.metrics)
    return checkpoint


async def _bound_second_wish(stop: Stop, watchdog: Watchdog) -> None:
    await stop.wait_at_once()
    watchdog.allow(CLOSING_SECONDS)


def _plugin_names(bound: BoundConfig) -> dict[str, str]:
    """By package or module of its code: ``exporters/audit``, all of them where one plugin has several instances."""
    names: dict[str, list[str]] = {}
    kinds = (("lookups", bound.lookups), ("enrichers", bound.enrichers), ("sources", bound.sources))
    plugins: list[tuple[str, BoundPlugin[Any, Any]]] = [(kind, plugin) for kind, group in kinds for plugin in group]
    plugins += [("exporters", plugin) for plugin in bound.exporters]
    for kind, plugin in plugins:
        package = plugin_package(plugin.type.config.__module__)
        names.setdefault(package, []).append(f"{kind}/{plugin.entry.name}")
    return {package: ", ".join(instances) for package, instances in names.items()}
