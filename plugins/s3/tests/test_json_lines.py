"""Lines of JSON have every element of the flow under its IANA name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from flowjoin.api import FlowBatch
from flowjoin.testing import every_data_type, hostile_flows, numbered_flows, plain_flows
from flowjoin_s3 import S3Config
from flowjoin_s3._encode import make_writer

_DEFAULTS = (0, "", "0.0.0.0", "::", "00:00:00:00:00:00")


def objects(batch: FlowBatch, **keys: Any) -> list[dict[str, Any]]:
    config = replace(S3Config(bucket_name="flows", format="jsonLines"), **keys)
    writer = make_writer(config, compatibility="antrea-2.7", cluster_uuid="", inserted_at=0)
    text = b"".join(writer.render(batch)).decode()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.mark.parametrize("batch", [numbered_flows(70), plain_flows(3), hostile_flows(), every_data_type()], ids=str)
def test_each_row_is_read_back_as_it_was(batch: FlowBatch) -> None:
    # a 32-bit float is read as it is written: with as many digits as a double has
    assert objects(batch) == [json.loads(json.dumps(row)) for row in batch.to_dicts()]


def test_default_values_can_be_left_out() -> None:
    batch = plain_flows(2)
    for given, whole in zip(objects(batch, omit_defaults=True), objects(batch), strict=True):
        assert given == {name: value for name, value in whole.items() if value not in _DEFAULTS}
        assert "tcpControlBits" not in given


def test_extra_elements_are_added_and_times_can_be_dates() -> None:
    (first, *_) = objects(plain_flows(1), elements=("sourcePodName", "octetDeltaCount"), time_format="iso8601")
    assert first["sourcePodName"] == ""
    assert first["octetDeltaCount"] == 1500
    assert first["flowEndSeconds"] == "2023-11-14T22:13:30Z"
