"""What blocks for a moment: files of credentials and certificates, programs that give tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

__all__ = ["in_thread"]

T = TypeVar("T")

_PATIENCE_SECONDS: Final = 0.5


async def in_thread(function: Callable[[], T]) -> T:
    """Run it in a thread.

    Cancellation: it is waited for half a second longer, so that files are closed again; after that, its thread is left
    to itself.
    """
    result: list[T] = []
    failure: list[Exception] = []
    async with trio.open_nursery() as nursery:
        with trio.CancelScope(shield=True) as patience:
            nursery.start_soon(_limit_when_cancelled, patience)
            try:
                result.append(await trio.to_thread.run_sync(function, abandon_on_cancel=True))
            except Exception as exc:  # noqa: BLE001 - raised below, out of the nursery's group
                failure.append(exc)
        nursery.cancel_scope.cancel()
    await trio.lowlevel.checkpoint_if_cancelled()
    if failure:
        raise failure[0]
    return result[0]


async def _limit_when_cancelled(patience: trio.CancelScope) -> None:
    try:
        await trio.sleep_forever()
    finally:
        patience.deadline = trio.current_time() + _PATIENCE_SECONDS
