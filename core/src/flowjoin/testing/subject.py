"""The exporter under test, and how its destination is asked and taken down."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from flowjoin.api import Exporter, ExporterType
from flowjoin.testing.context import RecordingContext

__all__ = ["SUPPLY_DESTINATION_DOWN", "CheckSkipped", "Delivered", "MakeDown", "Subject", "entered", "listed"]

SUPPLY_DESTINATION_DOWN: Final = (
    "supply destination_down: a context manager inside which the destination cannot be reached"
)

Delivered: TypeAlias = Callable[[], "Sequence[object] | Awaitable[Sequence[object]]"]
MakeDown: TypeAlias = Callable[[], "AbstractContextManager[object] | AbstractAsyncContextManager[object]"]


class CheckSkipped(Exception):
    """The subject has not what the check needs; the text says what to supply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The exporter under test.

    Attributes:
        config: with which it delivers to a destination that works.
        delivered: gives what the destination has now, one item a row; may be async.
        other_config: delivers to another destination, so that two instances can be told apart; None if
            there is only one.
        other_delivered: what that one has.
        destination_down: gives a context manager inside which the destination of ``config`` cannot be
            reached; None if that cannot be arranged.
    """

    exporter_type: ExporterType
    config: Any  # the exporter's own dataclass
    delivered: Delivered
    other_config: Any = None
    other_delivered: Delivered | None = None
    destination_down: MakeDown | None = None

    def open(self, context: RecordingContext, config: Any = None) -> AbstractAsyncContextManager[Exporter]:
        """The exporter's own context manager."""
        return self.exporter_type.open(self.config if config is None else config, context)

    def context(self) -> RecordingContext:
        """A fresh context, named as the exporter is."""
        return RecordingContext(name=self.exporter_type.name)

    async def count(self) -> int:
        """How many rows the destination has."""
        return len(await listed(self.delivered))


async def listed(delivered: Delivered) -> Sequence[object]:
    """What the destination has, however it is asked."""
    result = delivered()
    return await result if inspect.isawaitable(result) else result


@asynccontextmanager
async def entered(
    manager: AbstractContextManager[object] | AbstractAsyncContextManager[object],
) -> AsyncIterator[None]:
    """The context manager, async or not, as an async one."""
    if isinstance(manager, AbstractAsyncContextManager):
        async with manager:
            yield
    else:
        with manager:
            yield
