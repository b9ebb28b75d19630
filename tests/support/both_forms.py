"""Both forms of the kernel side by side: every call goes to both, and whatever they give must be the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowjoin._kernel import Kernel, KernelLimits, create_kernel
from flowjoin._kernel.interface import KeepsFlows
from flowjoin._model.columns import DictionaryColumn
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._model.schemas import FlowSchemas, build_schemas
from flowjoin._model.transport_session import TransportSession
from flowjoin._preprocessor.compile_plan import PlanCompiler
from flowjoin.wire import Decoder, DecoderLimits

__all__ = ["BothForms", "contents"]


def contents(batch: FlowBatch) -> dict[str, Any]:
    """Everything that is in a batch, octet by octet."""
    columns: dict[str, tuple[Any, ...]] = {}
    for element in batch.schema.elements:
        column = batch.column(element.name)
        if isinstance(column, DictionaryColumn):
            columns[element.name] = (type(column), column.codes.tobytes(), column.dictionary)
        else:
            columns[element.name] = (type(column), column.buffer.tobytes(), ())
    return {
        "schema": batch.schema,
        "is_first_export": batch.is_first_export,
        "handles": list(batch.handles),
        "columns": columns,
    }


def _keeping(kernel: Kernel) -> KeepsFlows:
    assert isinstance(kernel, KeepsFlows)
    return kernel


def _restored(kernel: Kernel, block: bytes, offset: float, *, is_continued: bool) -> str | tuple[int, int]:
    try:
        return _keeping(kernel).restore(block, offset, is_continued=is_continued)
    except ValueError:
        return "refused"


class BothForms:
    """One interface, two kernels."""

    def __init__(
        self,
        registry: ElementRegistry,
        *,
        limits: KernelLimits,
        decoder_limits: DecoderLimits | None = None,
        extra: Sequence[str] = (),
        is_enriched: bool = False,
        is_proxy: bool = False,
        schemas: FlowSchemas | None = None,
    ) -> None:
        schemas = schemas or build_schemas(registry, extra=extra)
        self.anew: Callable[[], BothForms] = lambda: BothForms(
            registry,
            limits=limits,
            decoder_limits=decoder_limits,
            is_enriched=is_enriched,
            is_proxy=is_proxy,
            schemas=schemas,
        )
        self.kernels: list[Kernel] = [
            create_kernel(
                decoder=Decoder(registry, limits=decoder_limits),
                compile_plan=PlanCompiler(registry, schemas, is_proxy=is_proxy),
                schemas=schemas,
                limits=limits,
                cluster_id="cluster",
                is_enriched=is_enriched,
                is_proxy=is_proxy,
                form=form,
            )
            for form in ("python", "compiled")
        ]

    def ingest(self, messages: Sequence[bytes | memoryview], sessions: Sequence[TransportSession], now: float) -> None:
        plain, compiled = (kernel.ingest(messages, sessions, now) for kernel in self.kernels)
        assert compiled == plain
        self.check()

    def expire(self, now: float, limit: int) -> list[FlowBatch]:
        return self._batches(*(kernel.expire(now, limit) for kernel in self.kernels))

    def scan(self, flow_filter: FlowFilter, cursor: int, limit: int) -> int | None:
        (plain, next_plain), (compiled, next_compiled) = (
            kernel.scan(flow_filter, cursor, limit) for kernel in self.kernels
        )
        assert next_compiled == next_plain
        self._batches(plain, compiled)
        return next_plain

    def lookup(self, key: FlowKey) -> FlowBatch | None:
        plain, compiled = (kernel.lookup(key) for kernel in self.kernels)
        assert (plain is None) == (compiled is None)
        if plain is not None and compiled is not None:
            self._batches([plain], [compiled])
        return plain

    def store_enriched(self, batch: FlowBatch, columns: Mapping[str, Sequence[Any]]) -> bool:
        """Whether both took it; both refuse the same."""
        taken = []
        for kernel in self.kernels:
            try:
                kernel.store_enriched(batch, columns)
            except ValueError as refused:
                taken.append(str(refused))
            else:
                taken.append("")
        assert taken[0] == taken[1]
        self.check()
        return not taken[0]

    def flush(self, limit: int) -> list[FlowBatch]:
        """Rows of all that is ready."""
        given: list[FlowBatch] = []
        cursor: int | None = 0
        while cursor is not None:
            (plain, next_plain), (compiled, next_compiled) = (
                _keeping(each).flush(cursor, limit) for each in self.kernels
            )
            assert next_compiled == next_plain
            given += self._batches(plain, compiled)
            cursor = next_plain
        return given

    def dump(self, limit: int) -> list[bytes]:
        """Blocks of all flows, which are the same octets from either form."""
        blocks: list[bytes] = []
        cursor: int | None = 0
        while cursor is not None:
            plain, compiled = (_keeping(each).dump(cursor, limit) for each in self.kernels)
            assert compiled == plain
            block, cursor = plain
            blocks.append(block)
        return blocks

    def restore(self, blocks: Sequence[bytes], *, offset: float, is_continued: bool) -> list[str | tuple[int, int]]:
        """What came of each block: how many flows, or that it was refused."""
        outcomes: list[str | tuple[int, int]] = []
        for block in blocks:
            plain, compiled = (_restored(each, block, offset, is_continued=is_continued) for each in self.kernels)
            assert compiled == plain
            outcomes.append(plain)
        more = True
        while more:
            plain_more, more = (_keeping(each).order_restored(3) for each in self.kernels)
            assert more == plain_more
        self.check()
        return outcomes

    def close_session(self, session: TransportSession) -> None:
        for kernel in self.kernels:
            kernel.close_session(session)
        self.check()

    def tick(self, now: float) -> None:
        plain, compiled = (list(kernel.tick(now)) for kernel in self.kernels)
        assert compiled == plain
        self.check()

    def check(self) -> None:
        """Counters and deadlines agree."""
        plain, compiled = (kernel.statistics() for kernel in self.kernels)
        assert compiled == plain
        assert list(compiled.elements_dropped) == list(plain.elements_dropped)
        assert list(compiled.elements_absent) == list(plain.elements_absent)
        plain_next, compiled_next = (kernel.next_expiry() for kernel in self.kernels)
        assert compiled_next == plain_next

    def _batches(self, plain: list[FlowBatch], compiled: list[FlowBatch]) -> list[FlowBatch]:
        assert len(compiled) == len(plain)
        for one, other in zip(plain, compiled, strict=True):
            expected, given = contents(one), contents(other)
            for part, value in expected["columns"].items():
                assert given["columns"][part] == value, part
            assert given == expected
        self.check()
        return plain
