"""What rows in Messages cost: ``pytest --benchmark-enable --benchmark-columns=median,ops PATH`` of this file.

One batch of 4,096 joined flows, as lanes make them, cut into Messages of 65,535 octets; nothing is sent. Operations per
second times 4,096 are rows. Beside the exporter's forms stand the naive ones: records encoded value by value, and
json.dumps over dictionaries. Both write the same octets, which is checked.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from flowjoin.api import FlowBatch
from flowjoin.testing import numbered_flows
from flowjoin.wire import RecordEncoder, Template, default_registry

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
pytest.importorskip("flowjoin_ipfix", reason="the IPFIX plugin is not installed")

pytestmark = pytest.mark.slow

ROWS = 4096
ROOM = 65535 - 20
AT = datetime(2021, 11, 23, 22, 36, 15, tzinfo=UTC)


def afresh() -> tuple[FlowBatch, Template]:
    """No text of an address is remembered."""
    from flowjoin_ipfix._templates import TemplateBook

    batch = numbered_flows(ROWS)
    book = TemplateBook(default_registry(), "aggregator", compatibility="antrea-2.7")
    return batch, book.template_of(batch.schema)


def written(batch: FlowBatch, template: Template, format_: str) -> bytes:
    from flowjoin_ipfix._encode import DataRecordEncoder
    from flowjoin_ipfix._json import JsonEncoder
    from flowjoin_ipfix._rows import RowWriter, units_of

    writer: RowWriter = (
        DataRecordEncoder(template, ROOM) if format_ == "IPFIX" else JsonEncoder(template, ROOM, now=lambda: AT)
    )
    part = batch.slice(0, ROWS)
    units = units_of(writer.write(part), template.template_id, room=ROOM, most_rows=ROWS)
    return b"".join(unit.octets for unit in units)


def naively(batch: FlowBatch, template: Template, format_: str) -> bytes:
    part = batch.slice(0, ROWS)
    names = [field.element.name for field in template.fields]
    columns = [part.column(name).tolist() for name in names]
    rows = zip(*columns, strict=True)
    if format_ == "IPFIX":
        return b"".join(map(RecordEncoder(template).encode, rows))
    return "".join(
        json.dumps(
            {"@timestamp": "2021-11-23T22:36:15Z", "ipfix": dict(sorted(zip(names, row, strict=True)))},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        + "\n"
        for row in rows
    ).encode()


@pytest.mark.parametrize("format_", ["IPFIX", "JSON"])
def test_written(benchmark: Any, format_: str) -> None:
    batch, template = afresh()
    assert benchmark(written, batch, template, format_) == naively(batch, template, format_)


@pytest.mark.parametrize("format_", ["IPFIX", "JSON"])
def test_naive(benchmark: Any, format_: str) -> None:
    batch, template = afresh()
    assert len(benchmark(naively, batch, template, format_)) > 100 * ROWS
