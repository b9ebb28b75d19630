"""What plugin authors write: all must type-check, but lines marked ``# error: CODE``, which must give just that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, assert_type

from flowjoin.api import (
    ClientCredentialsLookup,
    Exporter,
    ExporterType,
    FlowBatch,
    LookupType,
    NodeLookup,
    PluginContext,
    Pod,
    PodLookup,
    hookimpl,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    path: str


class OwnLookup(Protocol):
    def colour(self, name: str) -> str: ...


class Pods:
    def pod(self, address: str, at: float | None = None) -> Pod | None:
        return None


class Opened:
    def __init__(self, pods: PodLookup) -> None:
        self.pods = pods

    async def export(self, batch: FlowBatch) -> None:
        for address in batch.address_text("source"):
            self.pods.pod(address)


class Unfinished:
    async def export(self, rows: list[str]) -> None:
        del rows


@asynccontextmanager
async def open_exporter(settings: Settings, context: PluginContext) -> AsyncIterator[Exporter]:
    pods = context.lookup(PodLookup)
    assert_type(pods, PodLookup)
    assert_type(context.lookup(OwnLookup).colour("a"), str)
    assert_type(pods.pod("192.0.2.1"), Pod | None)
    nodes: NodeLookup = context.lookup(PodLookup)  # error: assignment
    context.lookup("PodLookup")  # error: arg-type
    pods.node_by_name("a")  # error: attr-defined
    context.lock(PodLookup)  # error: attr-defined
    assert_type(context.wants_pod_labels, bool)
    context.impaired("half of it is not there")
    context.impaired(None)  # error: arg-type
    credentials = context.lookup(ClientCredentialsLookup)
    assert_type((await credentials.client_credentials()).key, str)
    context.log.info("opened", path=settings.path, nodes=repr(nodes))
    yield Opened(pods)


@asynccontextmanager
async def open_unfinished(settings: Settings, context: PluginContext) -> AsyncIterator[Exporter]:
    yield Unfinished()  # error: misc


@asynccontextmanager
async def open_lookup(settings: Settings, context: PluginContext) -> AsyncIterator[PodLookup]:
    yield Pods()


@hookimpl
def flowjoin_exporter_types() -> list[ExporterType]:
    return [ExporterType("mine", Settings, open_exporter, api_version=1)]


@hookimpl
def flowjoin_lookup_types() -> list[LookupType]:
    ExporterType("mine", Settings, open_exporter)  # error: call-arg
    return [LookupType("mine", Settings, (PodLookup,), open_lookup, api_version=1)]
