"""What writing costs: ``pytest --benchmark-enable --benchmark-columns=median,ops plugins/ipfix/tests/test_speed.py``.

One batch of 4,096 joined flows, as lanes make them; beside it the same through the general encoder, value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from flowjoin.api import FlowBatch
from flowjoin.testing import numbered_flows
from flowjoin.wire import RecordEncoder, default_registry
from flowjoin_ipfix._encode import DataRecordEncoder
from flowjoin_ipfix._json import JsonEncoder
from flowjoin_ipfix._rows import units_of
from flowjoin_ipfix._templates import TemplateBook

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")

ROWS = 4096
ROOM = 65535 - 20
Benchmark = Callable[..., int]


@pytest.fixture(scope="module")
def flows() -> FlowBatch:
    return numbered_flows(ROWS)


@pytest.fixture
def book() -> TemplateBook:
    return TemplateBook(default_registry(), "aggregator", compatibility="antrea-2.7")


def test_data_records(benchmark: Benchmark, flows: FlowBatch, book: TemplateBook) -> None:
    encoder = DataRecordEncoder(book.template_of(flows.schema), ROOM)

    def write() -> int:
        written = encoder.write(flows.slice(0, ROWS))  # afresh, so that no text of an address is remembered
        return sum(unit.rows for unit in units_of(written, 256, room=ROOM, most_rows=ROWS))

    assert benchmark(write) == ROWS


def test_data_records_value_by_value(benchmark: Benchmark, flows: FlowBatch, book: TemplateBook) -> None:
    template = book.template_of(flows.schema)
    names = [field.element.name for field in template.fields]
    encoder = RecordEncoder(template)

    def write() -> int:
        batch = flows.slice(0, ROWS)
        columns = [batch.column(name).tolist() for name in names]
        return len(list(map(encoder.encode, zip(*columns, strict=True))))

    assert benchmark(write) == ROWS


def test_json(benchmark: Benchmark, flows: FlowBatch, book: TemplateBook) -> None:
    encoder = JsonEncoder(book.template_of(flows.schema), ROOM, now=lambda: datetime.now(UTC))
    assert benchmark(lambda: len(encoder.write(flows.slice(0, ROWS)).rows)) == ROWS
