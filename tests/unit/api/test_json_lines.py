"""One JSON object per flow, under IANA's names."""

from __future__ import annotations

import json
from typing import Any

from flowjoin.api import AddressFamily, FlowBatch
from flowjoin.api.lines import JsonLines
from flowjoin.testing import every_data_type, hostile_flows, numbered_flows, plain_flows, standard_flow
from flowjoin.testing.batches import HOSTILE_TEXTS

_DEFAULTS = (0, "", "0.0.0.0", "::", "00:00:00:00:00:00")


def objects(
    batch: FlowBatch, *extra: str, iso_times: bool = False, omit_defaults: bool = False
) -> list[dict[str, Any]]:
    writer = JsonLines(extra, iso_times=iso_times, omit_defaults=omit_defaults)
    text = b"".join(writer.render(batch)).decode()
    lines = text.split("\n")
    assert lines.pop() == "", "the last line is ended too"
    return [json.loads(line, parse_constant=lambda word: f"not JSON: {word}") for line in lines]


def test_an_object_is_the_batchs_own_dictionary() -> None:
    for batch in (standard_flow(), standard_flow(AddressFamily.IPV6), plain_flows(3), numbered_flows(200)):
        assert objects(batch) == batch.to_dicts()


def test_every_data_type_has_a_value_that_json_has() -> None:
    batch = every_data_type()
    assert objects(batch) == batch.to_dicts()
    second, third = objects(batch)[1:]
    assert second["exampleFloat32"] == "NaN"
    assert second["exampleFloat64"] == "-Infinity"
    assert second["exampleOctetArray"] == "00"
    assert second["exampleBoolean"] is True
    assert third["exampleUnsigned64"] == 2**64 - 1


def test_hostile_strings_are_read_back_as_they_were_and_stay_on_one_line() -> None:
    assert [flow["sourcePodName"] for flow in objects(hostile_flows())] == list(HOSTILE_TEXTS)


def test_members_with_default_values_can_be_left_out() -> None:
    batch = plain_flows(2)
    whole = objects(batch)
    assert whole[0]["tcpControlBits"] == 0
    assert objects(batch, omit_defaults=True) == [
        {name: value for name, value in flow.items() if value not in _DEFAULTS} for flow in whole
    ]


def test_a_flow_of_defaults_alone_is_an_empty_object() -> None:
    schema = plain_flows(1).schema
    batch = FlowBatch.from_rows(schema, [tuple(element.default for element in schema.elements)])
    assert objects(batch, omit_defaults=True) == [{}]


def test_times_can_be_iso_8601() -> None:
    (flow,) = objects(standard_flow(), iso_times=True)
    assert flow["flowStartSeconds"] == "2021-11-23T22:36:01Z"
    rows = objects(every_data_type(), iso_times=True)
    assert rows[1]["exampleDateTimeMilliseconds"] == "1970-01-01T00:00:00.001Z"
    assert rows[1]["exampleDateTimeMicroseconds"] == "1970-01-01T00:00:00.000001Z"
    assert rows[2]["exampleDateTimeSeconds"] == "2106-02-07T06:28:15Z"
    assert rows[2]["exampleDateTimeMilliseconds"] == "+584556019-04-03T14:25:51.615Z"


def test_extra_elements_are_members_too() -> None:
    (flow,) = objects(plain_flows(1), "bgpSourceAsNumber", "octetTotalCount")
    assert flow["bgpSourceAsNumber"] == 0
    assert list(flow).count("octetTotalCount") == 1
