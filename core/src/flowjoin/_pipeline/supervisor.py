"""Keeps plugins open: a plugin's bug fails that plugin, a bug of the core ends the program.

The two are told apart by where an exception comes from. What a plugin's context manager raises is the plugin's; so is
what leaves a ``plugin_code`` block. Anything else that leaves the core's own ``use`` is a bug of the core: it goes on
up, even where the plugin's context would have wrapped or swallowed it.

A plugin that gets nowhere with what must end (its opening, its closing, an ``export``) has failed too: it is
cancelled, and opened again.

An instance whose configuration turns out to be unusable when it is opened for the first time ends the program too:
waiting does not mend what the operator wrote. Once it was open, trouble is trouble, and it is tried again.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from math import inf
from typing import Final, TypeVar, cast

import trio

from flowjoin._model.errors import ConfigError, RetryableExportError, said_by
from flowjoin._pipeline.health import Component, HealthTable
from flowjoin._pipeline.patience import LOOK_SECONDS
from flowjoin.api._types import Logger

__all__ = ["HangError", "PluginFailure", "keep_open", "plugin_code", "single_cause", "watch_hangs"]

OpenedT = TypeVar("OpenedT")

# What is never a plugin's fault: a cancellation from above, Ctrl-C, a generator that is thrown away.
_NOBODYS: Final = (trio.Cancelled, KeyboardInterrupt, GeneratorExit)


class PluginFailure(Exception):
    """Carries a plugin's exception, as ``__cause__``, out of the core's code that called the plugin."""


class HangError(Exception):
    """A plugin was to end something, and did not get on with it for as long as it may take."""


@contextmanager
def plugin_code() -> Iterator[None]:
    """Around a call of a plugin: its exceptions are the plugin's fault."""
    try:
        yield
    except _NOBODYS:
        raise
    except Exception as exc:
        raise PluginFailure from exc
    except BaseExceptionGroup as group:
        raise PluginFailure from _contained(group)
    except BaseException as exc:  # noqa: BLE001 - a plugin may raise anything
        raise PluginFailure from _translated(exc)


def _contained(group: BaseExceptionGroup[BaseException]) -> Exception:
    """What a plugin's own nursery raised because one of its tasks called ``sys.exit``, or did the like.

    Raises:
        BaseExceptionGroup: with what is nobody's to contain: a cancellation from above, Ctrl-C.
    """
    others, contained = group.split(_NOBODYS)
    if others is not None:
        raise others
    assert contained is not None, "a group holds something"
    return cast(Exception, _all_translated(contained))


def _all_translated(exc: BaseException) -> BaseException:
    if isinstance(exc, BaseExceptionGroup):
        return exc.derive([_all_translated(inner) for inner in exc.exceptions])
    return exc if isinstance(exc, Exception) else _translated(exc)


def _translated(exc: BaseException) -> Exception:
    """A library that gives up must not end the program, and everybody's delivery with it.

    Some call ``sys.exit``; what panics in Rust comes as a ``BaseException``.
    """
    did = f"called sys.exit({exc.code!r})" if isinstance(exc, SystemExit) else f"raised {type(exc).__name__}: {exc}"
    failure = RuntimeError(f"it {did}")
    failure.__cause__ = exc
    return failure


def single_cause(exc: Exception) -> Exception:
    """What a plugin raised, out of the groups that nurseries put around a single exception."""
    while True:
        if isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
            exc = exc.exceptions[0]
        elif isinstance(exc, PluginFailure) and isinstance(exc.__cause__, Exception):
            exc = exc.__cause__
        else:
            return exc


async def keep_open(
    component: Component,
    open_plugin: Callable[[], AbstractAsyncContextManager[OpenedT]],
    use: Callable[[OpenedT], Awaitable[None]],
    *,
    log: Logger,
    on_failure: Callable[[Exception], None] = lambda _exc: None,
    pause: Callable[[float], Awaitable[None]] = trio.sleep,
    is_finished: Callable[[], bool] = lambda: False,
    may_refuse: bool = True,
) -> None:
    """Open a plugin and use it until ``use`` returns; after a failure wait and open it again.

    Args:
        component: is told of failures; ``use`` tells it of success, and of what must end.
        on_failure: called with each failure, before the wait.
        pause: waits; may return early when there is reason to try at once.
        is_finished: there is nothing left to do; asked before each opening.
        may_refuse: a ConfigError of the first opening is raised; else it is a failure as any other.

    Raises:
        ConfigError: what the plugin's first opening raised.
        Exception: whatever the core's own code raised.
    """
    was_open = False
    while not is_finished():
        life = _Life(component, log)
        failure = await life.run(open_plugin, use)
        was_open = was_open or life.was_open
        if failure is None:
            break
        if trio.current_effective_deadline() == -inf:
            await trio.lowlevel.checkpoint()  # cancelled from above: how it ended then is nobody's failure
        if isinstance(failure, ConfigError) and may_refuse and not was_open:
            raise failure
        if life.hang is None:
            component.failed(failure)
            _report(log, failure, is_closing=life.is_done)
        on_failure(failure)
        if life.is_done:
            break
        await pause(component.backoff.next())
    component.ended()
    await trio.lowlevel.checkpoint()


async def watch_hangs(health: HealthTable) -> None:
    """Look at every component again and again, until cancelled."""
    before = trio.current_time()
    while True:
        await trio.sleep(LOOK_SECONDS)
        now = trio.current_time()
        health.look(now - before)
        before = now


class _Life:
    """A plugin from one opening to its closing.

    Attributes:
        was_open: it could be opened.
        is_done: ``use`` returned.
        hang: what it got nowhere with, so that it was cancelled; its health and the log have been told.
    """

    def __init__(self, component: Component, log: Logger) -> None:
        self.was_open = False
        self.is_done = False
        self.hang: HangError | None = None
        self._bug: Exception | None = None
        self._component = component
        self._log = log
        self._scope = trio.CancelScope()
        self._task = trio.lowlevel.current_task()

    async def run(
        self,
        open_plugin: Callable[[], AbstractAsyncContextManager[OpenedT]],
        use: Callable[[OpenedT], Awaitable[None]],
    ) -> Exception | None:
        """Open it, use it, close it; gives how it failed.

        Raises:
            Exception: whatever the core's own code raised.
        """
        failure: Exception | None = None
        try:
            with self._scope, self._component.watched(self._cut_short):
                await self._open_and_use(open_plugin, use)
        except _NOBODYS:
            raise
        except Exception as exc:  # noqa: BLE001 - a plugin's context may raise anything
            failure = single_cause(exc)
        except BaseExceptionGroup as group:
            failure = single_cause(_contained(group))
        except BaseException as exc:  # noqa: BLE001 - as that
            failure = _translated(exc)
        if self._bug is not None:
            raise self._bug
        if self.hang is not None:
            return self.hang
        if failure is None and not self.is_done:
            return RuntimeError("its context ended by itself")
        return failure

    async def _open_and_use(
        self,
        open_plugin: Callable[[], AbstractAsyncContextManager[OpenedT]],
        use: Callable[[OpenedT], Awaitable[None]],
    ) -> None:
        patience = self._component.patience
        patience.begin("open")
        async with open_plugin() as opened:
            patience.end()
            self.was_open = True
            try:
                await use(opened)
                self.is_done = True
            except PluginFailure:
                raise
            except Exception as exc:
                self._bug = exc
                raise
            finally:
                patience.begin("close")

    def _cut_short(self, doing: str) -> None:
        """Cancel it, from wherever it is; one that does not listen is shown as degraded until it does."""
        self.hang = HangError(f"its {doing} got nowhere for {self._component.patience.seconds:g} s")
        self._component.failed(self.hang)
        waits = traceback.StackSummary.extract(self._task.iter_await_frames())
        self._log.error("plugin_hangs", problem=str(self.hang), stack="".join(waits.format()))
        self._scope.cancel()


def _report(log: Logger, failure: Exception, *, is_closing: bool) -> None:
    if isinstance(failure, RetryableExportError):
        log.warning("destination_unavailable", problem=said_by(failure) or "no reason given")
    elif isinstance(failure, ConfigError):
        log.error("plugin_failed", problem=said_by(failure))
    else:
        log.error("plugin_close_failed" if is_closing else "plugin_failed", exc_info=failure)
