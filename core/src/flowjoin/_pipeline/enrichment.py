"""Gives rows to the enrichers, in the order of the configuration, and keeps what they say.

Enrichers see the rows of flows that export for the first time, and those of Proxy mode and of sources, which have no
flow to remember anything. Where every enricher did its work, the result is stored in the flows still held; where one
is down or fails, the rows pass with what there is, are counted, and are offered again at their next export.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import trio

from flowjoin._model.errors import PluginContractError
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import FlowOrigin
from flowjoin._model.information_element import Value
from flowjoin._model.schemas import unset_value
from flowjoin._pipeline.health import Component
from flowjoin._pipeline.supervisor import PluginFailure, keep_open, plugin_code, single_cause
from flowjoin.api._types import Enricher, EnricherType, Logger

__all__ = ["EnricherBooks", "EnricherSlot", "Enrichment", "StoreEnriched"]

StoreEnriched = Callable[[FlowBatch, Mapping[str, Sequence[Value]]], None]

_WITHOUT_FLOW = (FlowOrigin.PROXY, FlowOrigin.SOURCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnricherBooks:
    """Rows offered to an enricher: those it worked on, and those that passed it because it was down or failed."""

    enriched: int
    passed: int


class EnricherSlot:
    """One enricher of the configuration, open or not."""

    def __init__(
        self,
        enricher_type: EnricherType,
        open_enricher: Callable[[], AbstractAsyncContextManager[Enricher]],
        *,
        component: Component,
        log: Logger,
    ) -> None:
        self._type = enricher_type
        self._declared = frozenset((*enricher_type.adds, *enricher_type.fills))
        self._open_enricher = open_enricher
        self._component = component
        self._log = log
        self._enricher: Enricher | None = None
        self._cause: Exception | None = None
        self._failed = trio.Event()
        self._tried = trio.Event()
        self._enriched = self._passed = 0

    @property
    def name(self) -> str:
        return self._component.name

    def books(self) -> EnricherBooks:
        """A snapshot."""
        return EnricherBooks(enriched=self._enriched, passed=self._passed)

    async def wait_tried(self) -> None:
        """Wait until it is open, or has failed to open once."""
        await self._tried.wait()

    async def run(self) -> None:
        """Keep it open until cancelled."""
        await keep_open(
            self._component,
            self._open_enricher,
            self._stay_open,
            log=self._log,
            on_failure=lambda _exc: self._tried.set(),
        )

    def columns(self, batch: FlowBatch) -> Mapping[str, Sequence[Value]] | None:
        """What it says about these rows, fit for ``with_columns``; None while it is down, and if it fails now."""
        if self._enricher is None:
            self._passed += len(batch)
            return None
        try:
            with plugin_code():
                columns = self._checked(batch, self._enricher.enrich(batch))
        except PluginFailure as failure:
            self._cause = single_cause(failure)
            self._enricher = None
            self._failed.set()
            self._passed += len(batch)
            return None
        self._component.recovered()
        self._enriched += len(batch)
        return columns

    async def _stay_open(self, enricher: Enricher) -> None:
        if not callable(getattr(enricher, "enrich", None)):
            problem = f"its open yielded a {type(enricher).__name__}, which has no enrich"
            raise PluginFailure from PluginContractError(problem, plugin=self._type.name)
        self._failed = trio.Event()
        self._cause = None
        self._enricher = enricher
        self._component.opened()
        self._tried.set()
        self._log.info("enricher_opened")
        try:
            await self._failed.wait()
        finally:
            self._enricher = None
        raise PluginFailure from self._cause

    def _checked(self, batch: FlowBatch, given: object) -> Mapping[str, Sequence[Value]]:
        """The columns with every given value as it was.

        Raises:
            PluginContractError: an element it did not declare, a wrong length or a wrong type.
        """
        if not isinstance(given, Mapping):
            raise self._breach(f"enrich gave a {type(given).__name__}, not a mapping of columns")
        columns: dict[str, Sequence[Value]] = {}
        for name, column in given.items():
            if name not in self._declared:
                raise self._breach(f"enrich gave the element {name!r}, which its type does not declare")
            if name not in batch.schema and batch.schema.origin not in _WITHOUT_FLOW:
                continue  # an element it fills, of which this kind of flow has none
            columns[name] = self._only_where_unset(batch, name, column)
        try:
            batch.with_columns(columns)
        except (ValueError, TypeError) as exc:
            raise self._breach(f"enrich gave a column that does not fit: {exc}") from exc
        return columns

    def _only_where_unset(self, batch: FlowBatch, name: str, column: Sequence[Value]) -> Sequence[Value]:
        if len(column) != len(batch):
            raise self._breach(f"enrich gave {len(column)} values of {name} for {len(batch)} rows")
        if name not in batch.schema:
            return column
        unset = unset_value(batch.schema.registry.by_name(name))
        given = batch.column(name).tolist()
        if all(value == unset for value in given):
            return column
        return [new if value == unset else value for value, new in zip(given, column, strict=True)]

    def _breach(self, problem: str) -> PluginContractError:
        return PluginContractError(problem, plugin=self._type.name)


class Enrichment:
    """All enrichers, one after another."""

    def __init__(self, slots: Sequence[EnricherSlot], store_enriched: StoreEnriched) -> None:
        self._slots = tuple(slots)
        self._store_enriched = store_enriched

    def enrich(self, batch: FlowBatch) -> FlowBatch:
        """The same rows with what the enrichers add and fill; those of flows already enriched as they are."""
        has_no_flow = batch.schema.origin in _WITHOUT_FLOW
        if not (batch.is_first_export or has_no_flow):
            return batch
        enriched = batch
        gathered: dict[str, Sequence[Value]] = {}
        is_complete = True
        for slot in self._slots:
            columns = slot.columns(enriched)
            if columns is None:
                is_complete = False
            elif columns:
                enriched = enriched.with_columns(columns)
                gathered.update(columns)
        if is_complete and not has_no_flow:
            self._store_enriched(batch, gathered)
        return enriched
