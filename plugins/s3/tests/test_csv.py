"""Lines of CSV are Antrea's, byte for byte, in both of its releases; quoting is a choice."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any, Final

import pytest

from flowjoin.api import AddressFamily, FlowBatch
from flowjoin.testing import every_data_type, hostile_flows, numbered_flows, plain_flows, standard_flow
from flowjoin.testing.batches import HOSTILE_TEXTS
from flowjoin_s3 import S3Config
from flowjoin_s3._columns import columns_of
from flowjoin_s3._encode import make_writer

ANTREA_2_3: Final = "antrea-2.3"
ANTREA_2_7: Final = "antrea-2.7"
UUID: Final = "27d8ad47-6d28-4c5a-9d25-7d9b8a1f5e02"
INSERTED_AT: Final = 1637707000

_START: Final = (
    "1637706961,1637706973,1637706974,1637706975,3,10.10.0.79,10.10.0.80,44752,5201,6,823188,30472817041,241333,"
    "8982624938,471111,24500996,136211,7083284,perftest-a,antrea-test,k8s-node-control-plane,perftest-b,antrea-test-b,"
    "k8s-node-control-plane-b,10.10.1.10,"
)
_POLICIES: Final = (
    "5202,perftest,test-flow-aggregator-networkpolicy-ingress-allow,antrea-test-ns,"
    "test-flow-aggregator-networkpolicy-rule,2,1,test-flow-aggregator-networkpolicy-egress-allow,antrea-test-ns-e,"
    "test-flow-aggregator-networkpolicy-rule-e,"
)
_LABELS: Final = """'{"antrea-e2e":"perftest-a","app":"iperf"}','{"antrea-e2e":"perftest-b","app":"iperf"}',"""
_RATES: Final = "15902813472,12381344,15902813473,15902813474,12381345,12381346,"
# What the tests of Antrea's uploader expect of its standard record, in 2.3 and 2.7.
LINE_2_3: Final = (
    f"{_START}{_POLICIES}5,4,TIME_WAIT,11,{_LABELS}{_RATES}{UUID},{INSERTED_AT},test-egress,172.18.0.1,http,"
    "mockHttpString,test-egress-node\n"
)
LINE_2_7: Final = (
    f"{_START}10.10.2.10,{_POLICIES}1,3,TIME_WAIT,2,{_LABELS}{_RATES}{UUID},{INSERTED_AT},test-egress,172.18.0.1,"
    "test-egress-node\n"
)


def record_of_2_3() -> FlowBatch:
    return standard_flow(
        egressNetworkPolicyRuleAction=5,
        egressNetworkPolicyType=4,
        flowType=11,
        appProtocolName="http",
        httpVals="mockHttpString",
    )


def rendered(batch: FlowBatch, compatibility: str = ANTREA_2_7, **keys: Any) -> str:
    config = replace(S3Config(bucket_name="flows", csv_quoting="antrea"), **keys)
    writer = make_writer(config, compatibility=compatibility, cluster_uuid=UUID, inserted_at=INSERTED_AT)
    return b"".join(writer.render(batch)).decode()


def test_the_standard_record_gives_the_line_of_antrea_2_3() -> None:
    assert rendered(record_of_2_3(), ANTREA_2_3) == LINE_2_3


def test_the_standard_record_gives_the_line_of_antrea_2_7() -> None:
    assert rendered(standard_flow()) == LINE_2_7


def test_the_releases_have_54_and_53_columns() -> None:
    assert len(columns_of(ANTREA_2_3)) == 54
    assert len(columns_of(ANTREA_2_7)) == 53
    assert columns_of(ANTREA_2_3)[51:] == ("appProtocolName", "httpVals", "egressNodeName")
    assert columns_of(ANTREA_2_7)[24:26] == ("destinationClusterIP", "destinationServiceIP")
    assert columns_of(ANTREA_2_7)[47:50] == (
        "reverseThroughputFromDestinationNode",
        "clusterUUID",
        "timeInserted",
    )


def test_rfc4180_quotes_labels_as_any_other_field() -> None:
    line = rendered(standard_flow(), csv_quoting="rfc4180")
    row = dict(zip(columns_of(ANTREA_2_7), next(csv.reader([line])), strict=True))
    assert row["sourcePodLabels"] == '{"antrea-e2e":"perftest-a","app":"iperf"}'
    assert "'" not in line


def test_labels_that_are_not_there_are_two_single_quotes() -> None:
    row = rendered(plain_flows(1)).rstrip("\n").split(",")
    assert row[columns_of(ANTREA_2_7).index("sourcePodLabels")] == "''"


def test_the_ipv6_record_has_its_addresses_in_the_same_columns() -> None:
    row = rendered(standard_flow(AddressFamily.IPV6), csv_quoting="rfc4180")
    by_column = dict(zip(columns_of(ANTREA_2_7), next(csv.reader([row])), strict=True))
    assert by_column["sourceIP"] == "2001:0:3238:dfe1:63::fefb"
    assert by_column["destinationIP"] == "2001:0:3238:dfe1:63::fefc"
    assert by_column["destinationClusterIP"] == "2001:0:3238:dfe1:64::a"
    assert by_column["destinationServiceIP"] == "2001:0:3238:dfe1:65::a"
    assert by_column["egressIP"] == "2001:0:3238:dfe1::ac12:1"


@pytest.mark.parametrize(
    ("compatibility", "family", "expected"),
    [
        (ANTREA_2_3, AddressFamily.IPV4, "0.0.0.0"),
        (ANTREA_2_3, AddressFamily.IPV6, "::"),
        (ANTREA_2_7, AddressFamily.IPV4, ""),
        (ANTREA_2_7, AddressFamily.IPV6, ""),
    ],
)
def test_an_unset_cluster_address_is_zero_in_2_3_and_empty_in_2_7(
    compatibility: str, family: AddressFamily, expected: str
) -> None:
    row = rendered(plain_flows(1, family), compatibility).rstrip("\n").split(",")
    assert row[columns_of(compatibility).index("destinationClusterIP")] == expected


@pytest.mark.parametrize("compatibility", [ANTREA_2_3, ANTREA_2_7])
def test_rfc4180_gives_every_text_back(compatibility: str) -> None:
    text = rendered(hostile_flows(), compatibility, csv_quoting="rfc4180")
    rows = [dict(zip(columns_of(compatibility), row, strict=True)) for row in csv.reader(io.StringIO(text, newline=""))]
    assert [row["sourcePodName"] for row in rows] == list(HOSTILE_TEXTS)
    assert [row["sourcePodLabels"] for row in rows] == list(HOSTILE_TEXTS)
    assert {row["octetTotalCount"] for row in rows} == {str(2**64 - 1)}


def test_antreas_quoting_leaves_commas_and_quotes_and_keeps_one_flow_one_line() -> None:
    lines = rendered(hostile_flows()).split("\n")[:-1]
    assert len(lines) == len(HOSTILE_TEXTS)
    assert ',say "hello",' in lines[1]
    assert ",'say \"hello\"'," in lines[1]
    assert ",two lines," in lines[2]
    assert ",'carriage return'," in lines[3]
    assert "\r" not in "".join(lines)


def test_extra_elements_come_last_and_only_once() -> None:
    batch = every_data_type()
    names = ("exampleOctetArray", "exampleBoolean", "sourcePodName", "exampleBoolean", "exampleDateTimeMilliseconds")
    rows = [line.split(",") for line in rendered(batch, elements=names).split("\n")[:-1]]
    assert {len(row) for row in rows} == {53 + 3}
    assert rows[0][53:] == ["", "false", "0"]
    assert rows[2][53:] == ["ff" * 300, "true", str(2**64 - 1)]


def test_times_are_epochs_or_dates() -> None:
    batch = numbered_flows(2)
    assert rendered(batch).startswith("1637706961,")
    row = rendered(batch, time_format="iso8601").split("\n")[1].split(",")
    assert row[:2] == ["2021-11-23T22:36:01Z", "2021-11-23T22:36:13Z"]
    assert "2021-11-23T22:36:40Z" in row  # timeInserted


def test_a_header_names_the_columns() -> None:
    writer = make_writer(
        S3Config(bucket_name="flows"), compatibility=ANTREA_2_7, cluster_uuid=UUID, inserted_at=INSERTED_AT
    )
    assert writer.header == (",".join(columns_of(ANTREA_2_7)) + "\n").encode()
