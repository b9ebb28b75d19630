from __future__ import annotations

import json
from typing import Any

import pytest
from api_fakes import SCHEMAS, batch, flow

from flowjoin._api_server.figures import Compatibility
from flowjoin._api_server.flow_records import json_records, keys_of
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin

NEW = [
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "tcpState",
    "flowStartSeconds",
    "flowEndSeconds",
    "flowEndSecondsFromSourceNode",
    "flowEndSecondsFromDestinationNode",
    "flowType",
    "sourcePodName",
    "sourcePodNamespace",
    "sourceNodeName",
    "destinationPodName",
    "destinationPodNamespace",
    "destinationNodeName",
    "destinationServicePort",
    "destinationServicePortName",
    "ingressNetworkPolicyNamespace",
    "ingressNetworkPolicyName",
    "ingressNetworkPolicyRuleName",
    "ingressNetworkPolicyRuleAction",
    "egressNetworkPolicyNamespace",
    "egressNetworkPolicyName",
    "egressNetworkPolicyRuleName",
    "egressNetworkPolicyRuleAction",
    "flowEndReason",
    "egressName",
    "egressIP",
    "egressNodeName",
    "packetTotalCount",
    "reversePacketTotalCount",
    "octetTotalCount",
    "reverseOctetTotalCount",
    "packetDeltaCount",
    "reversePacketDeltaCount",
    "octetDeltaCount",
    "reverseOctetDeltaCount",
    "throughput",
    "reverseThroughput",
]
ADDRESSES = {
    4: ("sourceIPv4Address", "destinationIPv4Address", "destinationClusterIPv4", "destinationServiceIPv4"),
    6: ("sourceIPv6Address", "destinationIPv6Address", "destinationClusterIPv6", "destinationServiceIPv6"),
}
EXTRA = {"bgpNextHopIPv4Address", "applicationName"}


def records(rows: list[dict[str, Any]], compatibility: Compatibility, **about: Any) -> list[dict[str, Any]]:
    return [json.loads(text) for text in json_records(batch(rows, **about), compatibility)]


@pytest.mark.parametrize("family", [4, 6])
def test_antrea_2_7_has_its_fixed_keys_and_what_the_operator_added(family: int) -> None:
    keys = keys_of(SCHEMAS[FlowOrigin.AGGREGATED, AddressFamily(family)], "antrea-2.7")
    extra = EXTRA if family == 4 else {"bgpNextHopIPv4Address", "applicationName"}
    assert set(keys) == {*NEW, *ADDRESSES[family], *extra}


def test_antrea_2_3_has_every_element_of_its_record() -> None:
    keys = set(keys_of(SCHEMAS[FlowOrigin.AGGREGATED, AddressFamily.IPV4], "antrea-2.3")) - EXTRA
    assert len(keys) == 69
    assert {"octetDeltaCountFromSourceNode", "appProtocolName", "httpVals", "sourcePodLabels", "clusterId"} <= keys
    assert not {"sourcePodUUID", "proxySnatIPv4", "proxySnatPort", "destinationServiceIPv4"} & keys


def test_a_plain_flow_has_antrea_2_7s_keys_and_its_own() -> None:
    (record,) = records([flow("10.0.0.1", "10.0.0.2", 1, 2)], "antrea-2.7", origin=FlowOrigin.PLAIN)
    assert record.keys() >= {*NEW, *ADDRESSES[4], "originalObservationDomainId", "ingressInterface", "tcpControlBits"}
    assert record["sourcePodName"] == ""
    (record,) = records([flow("10.0.0.1", "10.0.0.2", 1, 2)], "antrea-2.3", origin=FlowOrigin.PLAIN)
    assert "ingressInterface" in record
    assert "sourcePodName" not in record


def test_numbers_are_numbers_and_addresses_text() -> None:
    (record,) = records([flow("10.0.0.1", "10.0.0.2", 8080, 3700) | {"octetTotalCount": 2**64 - 1}], "antrea-2.7")
    assert record["sourceIPv4Address"] == "10.0.0.1"
    assert record["sourceTransportPort"] == 8080
    assert record["flowStartSeconds"] == 1_637_706_961
    assert record["octetTotalCount"] == 2**64 - 1


@pytest.mark.parametrize(("compatibility", "unset"), [("antrea-2.7", ""), ("antrea-2.3", "0.0.0.0")])
def test_an_unset_address_of_cluster_is_empty_since_antrea_2_7(compatibility: Compatibility, unset: str) -> None:
    (record,) = records([flow("0.0.0.0", "255.255.255.255", 68, 67, 17)], compatibility)
    assert record["destinationClusterIPv4"] == unset
    assert record["sourceIPv4Address"] == "0.0.0.0"  # of a host that asks for its address: it is set


def test_names_from_the_network_leave_as_ascii_json() -> None:
    name = 'a"\\\n\u2028\ufffd</script>ä'
    (text,) = json_records(batch([flow("10.0.0.1", "10.0.0.2", 1, 2) | {"sourcePodName": name}]), "antrea-2.7")
    assert text.isascii()
    assert "\n" not in text
    assert json.loads(text)["sourcePodName"] == name
