"""A source in thirty lines: programs tell of flows, each a datagram of JSON. docs/how-to/write-a-source.md shows it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import trio

from flowjoin.api import (
    AddressFamily,
    ConfigError,
    FlowBatch,
    FlowOrigin,
    FlowSchema,
    PluginContext,
    SourceType,
    hookimpl,
)

NAMES = ("flowEndSeconds", "sourceIPv4Address", "destinationIPv4Address", "protocolIdentifier", "octetDeltaCount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    path: Annotated[str, "the Unix socket to hear"]


async def _batches(
    receiver: trio.socket.SocketType, schema: FlowSchema, context: PluginContext
) -> AsyncIterator[FlowBatch]:
    refused = context.counter("refused", "Datagrams that are no flow.")
    while True:
        datagram = await receiver.recv(65535)
        try:
            flow = json.loads(datagram)
            batch = FlowBatch.from_columns(schema, {name: [flow[name]] for name in NAMES})
        except (ValueError, TypeError, KeyError):  # whoever sends it may send anything
            refused.inc()
        else:
            yield batch


@asynccontextmanager
async def _open(config: Config, context: PluginContext) -> AsyncIterator[AsyncIterator[FlowBatch]]:
    elements = tuple(context.registry.by_name(name) for name in NAMES)
    schema = FlowSchema(
        origin=FlowOrigin.SOURCE, family=AddressFamily.IPV4, elements=elements, registry=context.registry
    )
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        try:
            await receiver.bind(config.path)
        except OSError as exc:
            raise ConfigError(f"{config.path} cannot be heard: {exc.strerror or exc}", path="path") from exc
        try:
            yield _batches(receiver, schema, context)
        finally:
            os.unlink(config.path)  # noqa: PTH108 - the text of the configuration


@hookimpl
def flowjoin_source_types() -> list[SourceType]:
    """Hand over the type that ``type: datagrams`` stands for."""
    return [SourceType("datagrams", Config, _open, api_version=1)]
