"""Keeps plugins open: a plugin's bug fails that plugin, a bug of the core ends the program.

The two are told apart by where an exception comes from. What a plugin's context manager raises is the plugin's; so is
what leaves a ``plugin_code`` block. Anything else that leaves the core's own ``use`` is a bug of the core: it goes on
up, even where the plugin's context would have wrapped or swallowed it.

An instance whose configuration turns out to be unusable when it is opened for the first time ends the program too:
waiting does not mend what the operator wrote. Once it was open, trouble is trouble, and it is tried again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from math import inf
from typing import TypeVar

import trio

from flowjoin._model.errors import ConfigError, RetryableExportError
from flowjoin._pipeline.health import Component
from flowjoin.api._types import Logger

__all__ = ["PluginFailure", "keep_open", "plugin_code", "single_cause"]

OpenedT = TypeVar("OpenedT")


class PluginFailure(Exception):
    """Carries a plugin's exception, as ``__cause__``, out of the core's code that called the plugin."""


@contextmanager
def plugin_code() -> Iterator[None]:
    """Around a call of a plugin: its exceptions are the plugin's fault."""
    try:
        yield
    except Exception as exc:
        raise PluginFailure from exc


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
) -> None:
    """Open a plugin and use it until ``use`` returns; after a failure wait and open it again.

    Args:
        component: is told of failures; ``use`` tells it of success.
        on_failure: called with each failure, before the wait.
        pause: waits; may return early when there is reason to try at once.
        is_finished: there is nothing left to do; asked before each opening.

    Raises:
        ConfigError: what the plugin's first opening raised.
        Exception: whatever the core's own code raised.
    """
    was_open = False
    while not is_finished():
        bug: Exception | None = None
        is_done = False
        failure: Exception | None = None
        try:
            async with open_plugin() as opened:
                was_open = True
                try:
                    await use(opened)
                    is_done = True
                except PluginFailure:
                    raise
                except Exception as exc:
                    bug = exc
                    raise
        except Exception as exc:  # noqa: BLE001 - a plugin's context may raise anything
            failure = single_cause(exc)
        if bug is not None:
            raise bug
        if failure is None and not is_done:
            failure = RuntimeError("its context ended by itself")
        if failure is None:
            break
        if trio.current_effective_deadline() == -inf:
            await trio.lowlevel.checkpoint()  # cancelled from above: how it ended then is nobody's failure
        if isinstance(failure, ConfigError) and not was_open:
            raise failure
        component.failed(failure)
        _report(log, failure, is_closing=is_done)
        on_failure(failure)
        if is_done:
            break
        await pause(component.backoff.next())
    component.ended()
    await trio.lowlevel.checkpoint()


def _report(log: Logger, failure: Exception, *, is_closing: bool) -> None:
    if isinstance(failure, RetryableExportError):
        log.warning("destination_unavailable", problem=str(failure) or "no reason given")
    elif isinstance(failure, ConfigError):
        log.error("plugin_failed", problem=str(failure))
    else:
        log.error("plugin_close_failed" if is_closing else "plugin_failed", exc_info=failure)
