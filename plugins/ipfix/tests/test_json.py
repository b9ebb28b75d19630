"""Lines of JSON are octet by octet those of Antrea's aggregator."""

from __future__ import annotations

import json
import math
import uuid
from datetime import UTC, datetime

from batch_examples import ROWS, WIDE
from hypothesis import given

from flowjoin.api import DataType, FlowBatch, InformationElement, Value
from flowjoin.wire import FieldSpecifier, Template, TemplateId
from flowjoin_ipfix._json import JsonEncoder

ROOM = 16 * 1024 * 1024
TEMPLATE = Template(10, TemplateId(258), tuple(FieldSpecifier(each, each.length) for each in WIDE.elements))
ESCAPED = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def plain_value(element: InformationElement, value: Value) -> Value:
    if isinstance(value, bytes) and element.name == "aUUID":
        return str(uuid.UUID(bytes=value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return bool(value) if element.data_type is DataType.BOOLEAN else value


@given(ROWS)
def test_lines_are_what_the_standard_encoder_makes_of_each_row(rows: list[tuple[Value, ...]]) -> None:
    batch = FlowBatch.from_rows(WIDE, rows)
    written = JsonEncoder(TEMPLATE, ROOM, now=lambda: datetime(2021, 11, 23, 22, 36, 15, tzinfo=UTC)).write(batch)
    expected = []
    for row in batch.rows():
        values = zip(WIDE.elements, row, strict=True)
        members = {element.name: plain_value(element, value) for element, value in values}
        object_ = {"@timestamp": "2021-11-23T22:36:15Z", "ipfix": dict(sorted(members.items()))}
        expected.append(json.dumps(object_, ensure_ascii=False, separators=(",", ":")).translate(ESCAPED) + "\n")
    # Zero has two signs, which are equal: a batch's texts are made once per distinct value.
    assert written.octets.decode().replace("-0.0,", "0.0,") == "".join(expected).replace("-0.0,", "0.0,")
    assert not written.refused
    assert [written.octets[end - 1 : end] for end in written.ends] == [b"\n"] * len(batch)
