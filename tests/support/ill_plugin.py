"""A plugin that does what it is told to do wrong: an exporter and an enricher of type ``ill``."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio

from flowjoin.api import EnricherType, ExporterType, hookimpl

_done: list[bool] = []  # once in a process


def _is_first() -> bool:
    _done.append(True)
    return len(_done) == 1


class OddError(BaseException):
    """What nobody should raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    does: str = ""


def fail(does: str, where: str) -> None:
    """What is done without waiting."""
    match does.removeprefix(f"{where}: "):
        case "raises":
            raise ZeroDivisionError("a bug")
        case "raises a BaseException":
            raise OddError("odd")
        case "calls sys.exit":
            sys.exit("enough")
        case "blocks the loop for 1.5 s":
            time.sleep(1.5)
        case "blocks the loop for ever":
            time.sleep(3600)


class Exporter:
    def __init__(self, does: str, context: Any) -> None:
        self.does = does
        self.has_failed = False
        self.context = context

    async def export(self, batch: Any) -> None:
        if self.does == "export: hangs" or (self.does == "export: hangs once" and _is_first()):
            await trio.sleep_forever()
        if self.does == "export: hangs, shielded":
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()
        if self.does == "export: takes longer and says that it gets on":
            for _ in range(16):
                await trio.sleep(0.5)
                self.context.progressed()
        if self.does == "export: raises, every other time":
            self.has_failed = not self.has_failed
            if self.has_failed:
                raise ZeroDivisionError("a bug")
        if self.does == "export: cancels itself":
            with trio.CancelScope() as scope:
                scope.cancel()
                await trio.sleep_forever()
        fail(self.does, "export")


class Enricher:
    def __init__(self, does: str, _context: Any) -> None:
        self.does = does

    def enrich(self, batch: Any) -> Any:
        fail(self.does, "enrich")
        match self.does.removeprefix("enrich: "):
            case "gives no mapping":
                return 7
            case "gives a column of another length":
                return {"sourcePodName": ["pod"]}
            case "gives an element it did not declare":
                return {"octetTotalCount": [0] * len(batch)}
            case "gives values of a wrong type":
                return {"sourcePodName": [b"pod"] * len(batch)}
        return {"sourcePodName": ["pod"] * len(batch)}


async def _run_away(does: str) -> None:
    await trio.sleep(0.1)
    fail(does.replace("close: hangs after a failure", "its task: raises"), "its task")


def _opened(kind: type[Any]) -> Any:
    @asynccontextmanager
    async def open_it(config: Settings, context: Any) -> AsyncIterator[Any]:
        has_bad_task = config.does in ("its task: raises", "close: hangs after a failure") and _is_first()
        is_to_hang_when_closed = has_bad_task and config.does.startswith("close")
        if config.does == "open: hangs":
            await trio.sleep_forever()
        fail(config.does, "open")
        if config.does == "open: yields something else":
            yield 7
            return
        try:
            async with trio.open_nursery() as nursery:
                if has_bad_task:
                    nursery.start_soon(_run_away, config.does)
                try:
                    yield kind(config.does, context)
                finally:
                    if config.does == "close: hangs":
                        await trio.sleep_forever()
                    if config.does == "close: hangs, shielded":
                        with trio.CancelScope(shield=True):
                            await trio.sleep_forever()
                nursery.cancel_scope.cancel()
        finally:
            if is_to_hang_when_closed:
                await trio.sleep_forever()

    return open_it


@hookimpl
def flowjoin_exporter_types() -> list[ExporterType]:
    return [ExporterType("ill", Settings, _opened(Exporter), api_version=1)]


async def _cluster_uuid(config: Settings, log: Any) -> str | None:
    if config.does == "cluster: hangs":
        log.info("asking")
        await trio.sleep_forever()
    await trio.lowlevel.checkpoint()
    return None


@hookimpl
def flowjoin_enricher_types() -> list[EnricherType]:
    return [
        EnricherType(
            "ill",
            Settings,
            adds=(),
            fills=("sourcePodName",),
            open=_opened(Enricher),
            api_version=1,
            cluster_uuid=_cluster_uuid,
        ),
    ]
