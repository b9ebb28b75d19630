"""A look-up in twenty lines: whose an address is. docs/how-to/write-an-enricher.md shows it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from flowjoin.api import LookupType, PluginContext, Pod, PodLookup, hookimpl


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    pods: Annotated[dict[str, str], "addresses, each with the name of the Pod that has it"]


class _Pods:
    def __init__(self, names: dict[str, str]) -> None:
        self._pods = {address: Pod(namespace="default", name=name) for address, name in names.items()}

    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return self._pods.get(address)


@asynccontextmanager
async def _open(config: Config, _context: PluginContext) -> AsyncIterator[_Pods]:
    yield _Pods(config.pods)


@hookimpl
def flowjoin_lookup_types() -> list[LookupType]:
    """Hand over the type that ``type: pods`` stands for."""
    return [LookupType("pods", Config, (PodLookup,), _open, api_version=1)]
