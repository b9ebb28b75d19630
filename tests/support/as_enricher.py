"""An enricher in thirty lines: the AS numbers of addresses. docs/how-to/write-an-enricher.md shows it."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from flowjoin.api import AddressFamily, ConfigError, Enricher, EnricherType, FlowBatch, PluginContext, Value, hookimpl

ELEMENTS = {"source": "bgpSourceAsNumber", "destination": "bgpDestinationAsNumber"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    networks: Annotated[dict[str, int], "networks, each with its AS number"]


class _Enricher:
    def __init__(self, networks: Mapping[str, int]) -> None:
        # The longest prefix first: the first that has an address is the one that counts.
        numbers = [(ipaddress.ip_network(network), number) for network, number in networks.items()]
        self._numbers = sorted(numbers, key=lambda row: row[0].prefixlen, reverse=True)

    def enrich(self, batch: FlowBatch) -> Mapping[str, Sequence[Value]]:
        family = "IPv6" if batch.schema.family is AddressFamily.IPV6 else "IPv4"
        return {
            element: batch.map_distinct(f"{side}{family}Address", self._number_of) for side, element in ELEMENTS.items()
        }

    def _number_of(self, text: str) -> int:
        address = ipaddress.ip_address(text)
        return next((number for network, number in self._numbers if address in network), 0)


@asynccontextmanager
async def _open(config: Config, _context: PluginContext) -> AsyncIterator[Enricher]:
    try:
        enricher = _Enricher(config.networks)
    except ValueError as exc:
        raise ConfigError(f"{exc}; write a network such as 192.0.2.0/24", path="networks") from exc
    yield enricher


@hookimpl
def flowjoin_enricher_types() -> list[EnricherType]:
    """Hand over the type that ``type: as_numbers`` stands for."""
    return [EnricherType("as_numbers", Config, tuple(ELEMENTS.values()), (), _open, api_version=1)]
