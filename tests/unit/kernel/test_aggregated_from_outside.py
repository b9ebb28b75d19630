"""Flows from outside: the Node that takes the connection forwards it, with source NAT, to a Pod elsewhere."""

from __future__ import annotations

import pytest
from hand_made import Record
from joined_flows import REJECT, one
from kernel_harness import Harness

from flowjoin._model.flow_key import FlowKey

pytestmark = pytest.mark.usefixtures("kernel_form")


# From-external flows: the Node that takes the connection forwards it, with source NAT, to a Pod elsewhere.
T = 1_700_000_000
EXTERNAL: Record = {
    "flowType": 4,
    "sourceIPv4Address": "172.18.0.1",
    "sourceTransportPort": 38746,
    "destinationIPv4Address": "10.244.1.3",
    "destinationTransportPort": 80,
    "protocolIdentifier": 6,
    "proxySnatIPv4": "10.244.2.1",
    "proxySnatPort": 52391,
    "destinationServiceIPv4": "172.18.0.2",
    "destinationClusterIPv4": "172.18.0.2",
    "destinationServicePort": 82,
    "destinationServicePortName": "namespace/service-name:serviceportname",
    "flowStartSeconds": T,
    "flowEndSeconds": T + 60,
}
AT_THE_POD: Record = {
    "flowType": 2,
    "sourceIPv4Address": "10.244.2.1",
    "sourceTransportPort": 52391,
    "destinationIPv4Address": "10.244.1.3",
    "destinationTransportPort": 80,
    "protocolIdentifier": 6,
    "destinationPodNamespace": "some-namespace",
    "destinationPodName": "nginx-deployment-HASH",
    "flowStartSeconds": T,
    "flowEndSeconds": T + 120,
}
SNAT_KEY = FlowKey(
    source="10.244.2.1", destination="10.244.1.3", protocol_identifier=6, source_port=52391, destination_port=80
)


@pytest.mark.parametrize("halves", [(EXTERNAL, AT_THE_POD), (AT_THE_POD, EXTERNAL)], ids=["outside first", "pod first"])
def test_the_halves_of_a_flow_from_outside_meet_at_the_snat_address(halves: tuple[Record, Record]) -> None:
    harness = Harness()
    harness.send(halves[0])
    assert harness.kernel.lookup(SNAT_KEY) is not None
    assert harness.rows() == []
    harness.send(halves[1])
    (row,) = harness.rows()
    assert row["flowType"] == 4
    assert (row["sourceIPv4Address"], row["sourceTransportPort"]) == ("172.18.0.1", 38746)
    assert (row["proxySnatIPv4"], row["proxySnatPort"]) == ("10.244.2.1", 52391)
    assert (row["destinationPodNamespace"], row["destinationPodName"]) == ("some-namespace", "nginx-deployment-HASH")
    assert (row["destinationServiceIPv4"], row["destinationClusterIPv4"]) == ("172.18.0.2", "172.18.0.2")
    assert row["destinationServicePort"] == 82
    assert row["destinationServicePortName"] == "namespace/service-name:serviceportname"
    assert row["flowEndSeconds"] == T + 120
    # and later records of either Node go on meeting there
    harness.send(EXTERNAL | {"flowEndSeconds": T + 180}, AT_THE_POD | {"flowEndSeconds": T + 190})
    assert harness.statistics.flows_held == 1
    assert one(harness)["sourceIPv4Address"] == "172.18.0.1"


@pytest.mark.parametrize(
    ("record", "waits"),
    [
        (EXTERNAL, True),
        ({name: value for name, value in EXTERNAL.items() if name != "proxySnatIPv4"}, False),
        (EXTERNAL | {"destinationPodName": "pod"}, False),  # one Node sees it all
        (EXTERNAL | {"flowType": 3}, False),
        (EXTERNAL | {"ingressNetworkPolicyRuleAction": REJECT}, False),
        (AT_THE_POD, True),
    ],
)
def test_only_the_outer_half_of_a_flow_from_outside_waits(record: Record, waits: bool) -> None:
    harness = Harness()
    harness.send(record)
    assert harness.statistics.flows_waiting == waits
