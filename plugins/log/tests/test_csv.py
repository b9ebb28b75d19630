"""Lines of CSV are Antrea's, byte for byte, in both of its releases; quoting is a choice."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Final

import pytest

from flowjoin.api import AddressFamily, FlowBatch
from flowjoin.testing import every_data_type, hostile_flows, numbered_flows, plain_flows, standard_flow
from flowjoin.testing.batches import HOSTILE_TEXTS
from flowjoin_log import LogConfig
from flowjoin_log._columns import columns_of
from flowjoin_log._exporter import make_writer

ANTREA_2_3: Final = "antrea-2.3"
ANTREA_2_7: Final = "antrea-2.7"

# Antrea 2.3's own test writes these two lines for its standard record: pretty, and in numbers.
PRETTY_2_3: Final = (
    "1637706961,1637706973,10.10.0.79,10.10.0.80,44752,5201,TCP,perftest-a,antrea-test,k8s-node-control-plane,"
    "perftest-b,antrea-test-b,k8s-node-control-plane-b,10.10.1.10,5202,perftest,"
    "test-flow-aggregator-networkpolicy-ingress-allow,antrea-test-ns,test-flow-aggregator-networkpolicy-rule,"
    "Drop,K8sNetworkPolicy,test-flow-aggregator-networkpolicy-egress-allow,antrea-test-ns-e,"
    "test-flow-aggregator-networkpolicy-rule-e,Invalid,Invalid,test-egress,172.18.0.1,http,mockHttpString,"
    "test-egress-node\n"
)
NUMBERS_2_3: Final = (
    "1637706961,1637706973,10.10.0.79,10.10.0.80,44752,5201,6,perftest-a,antrea-test,k8s-node-control-plane,"
    "perftest-b,antrea-test-b,k8s-node-control-plane-b,10.10.1.10,5202,perftest,"
    "test-flow-aggregator-networkpolicy-ingress-allow,antrea-test-ns,test-flow-aggregator-networkpolicy-rule,"
    "2,1,test-flow-aggregator-networkpolicy-egress-allow,antrea-test-ns-e,"
    "test-flow-aggregator-networkpolicy-rule-e,5,4,test-egress,172.18.0.1,http,mockHttpString,test-egress-node\n"
)
# Antrea 2.7: a Service's address, no layer 7.
PRETTY_2_7: Final = PRETTY_2_3.replace("10.10.1.10,5202", "10.10.1.10,10.10.1.10,5202").replace(
    "http,mockHttpString,", ""
)


def antreas_record() -> FlowBatch:
    return standard_flow(
        egressNetworkPolicyRuleAction=5,
        egressNetworkPolicyType=4,
        flowType=11,
        appProtocolName="http",
        httpVals="mockHttpString",
        destinationServiceIPv4="10.10.1.10",
    )


def rendered(batch: FlowBatch, compatibility: str = ANTREA_2_7, **keys: object) -> str:
    config = replace(LogConfig(path="flows.log"), **keys)  # type: ignore[arg-type]  # LogConfig's own keys
    writer = make_writer(config, compatibility=compatibility, terminal_width=None, colours=False)
    return b"".join(writer.render(batch)).decode()


@pytest.mark.parametrize("quoting", ["antrea", "rfc4180"])
@pytest.mark.parametrize(
    ("compatibility", "pretty_print", "expected"),
    [(ANTREA_2_3, True, PRETTY_2_3), (ANTREA_2_3, False, NUMBERS_2_3), (ANTREA_2_7, True, PRETTY_2_7)],
)
def test_the_standard_record_gives_antreas_line(
    compatibility: str, pretty_print: bool, expected: str, quoting: str
) -> None:
    line = rendered(antreas_record(), compatibility, pretty_print=pretty_print, csv_quoting=quoting)
    assert line == expected


def test_the_ipv6_record_has_its_addresses_in_the_same_columns() -> None:
    line = rendered(standard_flow(AddressFamily.IPV6)).rstrip("\n").split(",")
    by_column = dict(zip(columns_of(ANTREA_2_7), line, strict=True))
    assert by_column["sourceIP"] == "2001:0:3238:dfe1:63::fefb"
    assert by_column["destinationIP"] == "2001:0:3238:dfe1:63::fefc"
    assert by_column["destinationClusterIP"] == "2001:0:3238:dfe1:64::a"
    assert by_column["destinationServiceIP"] == "2001:0:3238:dfe1:65::a"
    assert by_column["egressIP"] == "2001:0:3238:dfe1::ac12:1"


def test_the_releases_have_31_and_30_columns() -> None:
    assert len(columns_of(ANTREA_2_3)) == 31
    assert len(columns_of(ANTREA_2_7)) == 30
    assert set(columns_of(ANTREA_2_3)) - set(columns_of(ANTREA_2_7)) == {"appProtocolName", "httpVals"}
    assert set(columns_of(ANTREA_2_7)) - set(columns_of(ANTREA_2_3)) == {"destinationServiceIP"}


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
    line = rendered(plain_flows(1, family), compatibility).rstrip("\n").split(",")
    assert line[columns_of(compatibility).index("destinationClusterIP")] == expected


def test_a_plain_flow_has_its_times_and_empty_kubernetes_columns() -> None:
    assert (
        rendered(plain_flows(1))
        == "1700000000,1700000010,192.0.2.1,198.51.100.7,40000,443,UDP,,,,,,,,,0,,,,,,,,,,,,,,\n"
    )


@pytest.mark.parametrize(
    ("protocol", "name"),
    [(1, "ICMP"), (2, "IGMP"), (6, "TCP"), (17, "UDP"), (58, "IPv6-ICMP"), (132, "SCTP"), (0, "Unknown Protocol")],
)
def test_protocols_have_names(protocol: int, name: str) -> None:
    assert rendered(standard_flow(protocolIdentifier=protocol)).split(",")[6] == name


@pytest.mark.parametrize(("number", "name"), [(0, ""), (1, "Allow"), (2, "Drop"), (3, "Reject"), (4, "Invalid")])
def test_rule_actions_have_names(number: int, name: str) -> None:
    line = rendered(standard_flow(ingressNetworkPolicyRuleAction=number)).split(",")
    assert line[columns_of(ANTREA_2_7).index("ingressNetworkPolicyRuleAction")] == name


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, ""),
        (1, "K8sNetworkPolicy"),
        (2, "AntreaNetworkPolicy"),
        (3, "AntreaClusterNetworkPolicy"),
        (4, "Invalid"),
    ],
)
def test_policy_types_have_names_and_the_youngest_one_is_invalid_as_in_antrea(number: int, name: str) -> None:
    line = rendered(standard_flow(egressNetworkPolicyType=number)).rstrip("\n").split(",")
    assert line[columns_of(ANTREA_2_7).index("egressNetworkPolicyType")] == name


def test_what_a_reader_of_rfc_4180_reads_is_what_was_sent() -> None:
    rows = list(csv.reader(io.StringIO(rendered(hostile_flows()), newline="")))
    column = columns_of(ANTREA_2_7).index("sourcePodName")
    assert [row[column] for row in rows] == list(HOSTILE_TEXTS)
    assert {len(row) for row in rows} == {30}


def test_with_antreas_quoting_each_flow_is_one_line_whatever_it_holds() -> None:
    text = rendered(hostile_flows(), csv_quoting="antrea")
    assert text.count("\n") == len(HOSTILE_TEXTS)
    assert "\r" not in text


def test_extra_elements_follow_in_their_order_once_each() -> None:
    line = rendered(standard_flow(), elements=("octetTotalCount", "flowType", "egressIP", "octetTotalCount"))
    assert line.rstrip("\n").split(",")[29:] == ["test-egress-node", "30472817041", "2"]


def test_every_data_type_has_a_text() -> None:
    batch = every_data_type()
    names = tuple(name for name in batch.schema.names if name.startswith("example"))
    rows = list(csv.reader(io.StringIO(rendered(batch, elements=names, time_format="iso8601"), newline="")))
    second = dict(zip(names, rows[1][30:], strict=True))
    assert second["exampleOctetArray"] == "00"
    assert second["exampleBoolean"] == "true"
    assert second["exampleSigned64"] == str(-(2**63))
    assert second["exampleFloat32"] == "NaN"
    assert second["exampleDateTimeSeconds"] == "1970-01-01T00:00:01Z"
    assert second["exampleDateTimeNanoseconds"] == "1970-01-01T00:00:00.000000001Z"
    third = dict(zip(names, rows[2][30:], strict=True))
    assert third["exampleDateTimeMilliseconds"] == "+584556019-04-03T14:25:51.615Z"


def test_slices_join_without_a_seam() -> None:
    whole = rendered(numbered_flows(600))
    parts = "".join(rendered(numbered_flows(200, first=first)) for first in (0, 200, 400))
    assert whole == parts
    assert whole.count("\n") == 600


def test_the_header_names_the_columns() -> None:
    writer = make_writer(LogConfig(path="x"), compatibility=ANTREA_2_7, terminal_width=None, colours=False)
    assert writer.header.decode().rstrip("\n").split(",") == list(columns_of(ANTREA_2_7))
