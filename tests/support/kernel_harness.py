"""A kernel with everything around it, fed with hand-made Messages, and its books checked at every step."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from hand_made import AGENT, Record, data_set, message, template_set

from flowjoin._kernel import Kernel, KernelLimits, KernelStatistics, create_kernel
from flowjoin._kernel.interface import KeepsFlows
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter
from flowjoin._model.information_element import InformationElement
from flowjoin._model.schemas import build_schemas
from flowjoin._model.transport_session import TransportProtocol, TransportSession
from flowjoin._preprocessor.compile_plan import PlanCompiler
from flowjoin.wire import Decoder, default_registry

__all__ = ["Harness", "check_books", "session"]


def session(peer: str = "192.0.2.1", *, protocol: TransportProtocol = "udp") -> TransportSession:
    return TransportSession(protocol=protocol, peer=peer, peer_port=50_001, local="192.0.2.100", local_port=4739)


def check_books(statistics: KernelStatistics) -> None:
    assert statistics.records_received == (
        statistics.records_created
        + statistics.records_merged
        + statistics.records_older
        + sum(statistics.records_rejected.values())
    )
    assert statistics.records_created == statistics.flows_created
    assert statistics.flows_created + statistics.flows_restored == (
        statistics.flows_exported_last + statistics.flows_given_up + statistics.flows_evicted + statistics.flows_held
    )


class Harness:
    """Each call feeds or asks the kernel; time stands still unless a call moves it."""

    def __init__(
        self,
        *,
        limits: KernelLimits | None = None,
        extra: Sequence[str] = (),
        elements: Sequence[InformationElement] = (),
        is_enriched: bool = False,
        is_proxy: bool = False,
        cluster_id: str = "cluster",
        form: str | None = None,
    ) -> None:
        registry: ElementRegistry = default_registry().extended(elements)
        schemas = build_schemas(registry, extra=extra)
        self.now = 0.0
        self.limits = limits or KernelLimits()

        def make(form: str) -> Kernel:
            return create_kernel(
                decoder=Decoder(registry),
                compile_plan=PlanCompiler(registry, schemas, is_proxy=is_proxy),
                schemas=schemas,
                limits=self.limits,
                cluster_id=cluster_id,
                is_enriched=is_enriched,
                is_proxy=is_proxy,
                form=form,
            )

        self._make = make
        self._before: list[KernelStatistics] = []  # of kernels before the last restart
        self.kernel: Kernel = make(form or os.environ.get("FLOWJOIN_KERNEL", "auto"))

    @property
    def statistics(self) -> KernelStatistics:
        """Of the kernel, and of those before it but for what they handed on."""
        statistics = self.kernel.statistics()
        check_books(statistics)
        for before in self._before:
            sums = {
                item.name: getattr(before, item.name) + getattr(statistics, item.name)
                for item in dataclasses.fields(KernelStatistics)
                if item.type == "int" and item.name not in ("flows_held", "flows_waiting")
            }
            statistics = dataclasses.replace(statistics, **sums)
        return statistics

    def dumped(self, limit: int = 3) -> list[bytes]:
        """Blocks of all flows."""
        assert isinstance(self.kernel, KeepsFlows)
        blocks: list[bytes] = []
        cursor: int | None = 0
        while cursor is not None:
            block, cursor = self.kernel.dump(cursor, limit)
            blocks.append(block)
        return blocks

    def restart(self, form: str = "auto", *, is_continued: bool = True, now: float | None = None) -> None:
        """Go on with another kernel, which has the flows of this one and another clock."""
        blocks = self.dumped()
        self._before.append(self.kernel.statistics())
        self.kernel = self._make(form)
        assert isinstance(self.kernel, KeepsFlows)
        before, self.now = self.now, self.now if now is None else now
        for block in blocks:
            self.kernel.restore(block, self.now - before, is_continued=is_continued)
        while self.kernel.order_restored(2):
            pass
        check_books(self.kernel.statistics())

    def send(
        self,
        *records: Record,
        names: list[str] = AGENT,
        peer: str = "192.0.2.1",
        export_time: int = 1_700_000_000,
        domain: int = 1,
    ) -> None:
        """Template and records in one Message."""
        sets = (template_set(names), data_set(names, *records))
        self.send_message(message(*sets, export_time=export_time, domain=domain), peer=peer)

    def send_message(self, octets: bytes, *, peer: str = "192.0.2.1") -> None:
        self.kernel.ingest([octets], [session(peer)], self.now)
        check_books(self.kernel.statistics())

    def expire(self, now: float | None = None, limit: int = 1_000_000) -> list[FlowBatch]:
        self.now = self.now if now is None else now
        batches = self.kernel.expire(self.now, limit)
        check_books(self.kernel.statistics())
        return batches

    def rows(self, now: float | None = None) -> list[dict[str, Any]]:
        """What ``expire`` gives, row by row."""
        return [row for batch in self.expire(now) for row in batch.to_dicts()]

    def stored(self) -> list[dict[str, Any]]:
        """All flows as they stand."""
        found: list[dict[str, Any]] = []
        cursor: int | None = 0
        while cursor is not None:
            batches, cursor = self.kernel.scan(FlowFilter(), cursor, 3)
            found += [row for batch in batches for row in batch.to_dicts()]
        return found
