"""Look-up plugins, and what ``context.lookup`` gives: an object that asks whichever provider is open now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

import trio

from flowjoin._model.errors import ConfigError, PluginContractError, PluginError
from flowjoin._pipeline.health import Component
from flowjoin._pipeline.supervisor import PluginFailure, keep_open
from flowjoin.api._types import Logger, LookupType

__all__ = ["LookupSlot", "Lookups"]

ProtocolT = TypeVar("ProtocolT")


class LookupSlot:
    """One look-up of the configuration, open or not."""

    def __init__(
        self,
        lookup_type: LookupType,
        open_lookup: Callable[[], AbstractAsyncContextManager[object]],
        *,
        component: Component,
        log: Logger,
    ) -> None:
        self.provides = lookup_type.provides
        self._open_lookup = open_lookup
        self._component = component
        self._log = log
        self._provider: object | None = None
        self._tried = trio.Event()

    @property
    def name(self) -> str:
        return self._component.name

    @property
    def provider(self) -> object:
        """What answers.

        Raises:
            PluginError: it is not open now.
        """
        if self._provider is None:
            raise PluginError("the look-up is not open", plugin=self.name)
        return self._provider

    async def wait_tried(self) -> None:
        """Wait until it is open, or has failed to open once."""
        await self._tried.wait()

    async def run(self) -> None:
        """Keep it open until cancelled."""
        await keep_open(
            self._component,
            self._open_lookup,
            self._stay_open,
            log=self._log,
            on_failure=lambda _exc: self._tried.set(),
        )

    async def _stay_open(self, provider: object) -> None:
        for protocol in self.provides:
            for method in _methods(protocol):
                if not callable(getattr(provider, method, None)):
                    problem = f"its open yielded a {type(provider).__name__} without {protocol.__name__}.{method}"
                    raise PluginFailure from PluginContractError(problem, plugin=self.name)
        self._provider = provider
        self._component.opened()
        self._tried.set()
        self._log.info("lookup_opened")
        try:
            await trio.sleep_forever()
        finally:
            self._provider = None


class Lookups:
    """All look-ups; the first configured provider of a protocol wins."""

    def __init__(self, slots: Sequence[LookupSlot]) -> None:
        self._slots = tuple(slots)

    def get(self, protocol: type[ProtocolT]) -> ProtocolT:
        """An object with the protocol's methods. It may be kept: each call goes to the provider open then.

        Raises:
            ConfigError: nothing configured under ``lookups:`` provides it.
        """
        for slot in self._slots:
            if protocol in slot.provides:
                methods = {method: _forward(slot, method) for method in _methods(protocol)}
                return cast(ProtocolT, type(f"Forwarded{protocol.__name__}", (), methods)())
        raise ConfigError(f"nothing under lookups provides {protocol.__name__}; add one that does", path="lookups")


def _methods(protocol: type[object]) -> list[str]:
    return [name for name, member in vars(protocol).items() if callable(member) and not name.startswith("_")]


def _forward(slot: LookupSlot, method: str) -> Callable[..., Any]:
    def call(_self: object, *arguments: Any, **named: Any) -> Any:  # any protocol's method
        return getattr(slot.provider, method)(*arguments, **named)

    call.__name__ = method
    return call
