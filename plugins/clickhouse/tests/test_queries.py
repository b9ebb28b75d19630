"""What the pages ask in SQL is answered rightly, from rows that the exporter inserted."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from clickhouse_lane import context, deliver
from clickhouse_process import ClickHouseProcess

from flowjoin.api import AddressFamily, FlowBatch, Secret, Value
from flowjoin.testing.batches import standard_flow
from flowjoin_clickhouse import ClickHouseConfig
from flowjoin_clickhouse._exporter import open_clickhouse

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
WEB: dict[str, Value] = {"sourcePodNamespace": "shop", "sourcePodName": "web-1"}
CART: dict[str, Value] = {"destinationPodNamespace": "shop", "destinationPodName": "cart-0"}
NO_POLICY: dict[str, Value] = {
    f"{side}NetworkPolicy{part}": value
    for side in ("ingress", "egress")
    for part, value in (("Name", ""), ("Namespace", ""), ("RuleAction", 0))
}


def flow(*parts: dict[str, Value], family: AddressFamily = AddressFamily.IPV4, **changes: Value) -> FlowBatch:
    given: dict[str, Value] = {"flowEndSeconds": int(time.time()), "destinationServicePortName": "", "flowType": 2}
    for part in (NO_POLICY, *parts, changes):
        given |= part
    return standard_flow(family, **given)


def rows() -> list[FlowBatch]:
    cart = {"destinationServicePortName": "shop/cart:http", "destinationTransportPort": 80}
    closed = {
        "ingressNetworkPolicyRuleAction": 2,
        "ingressNetworkPolicyNamespace": "shop",
        "ingressNetworkPolicyName": "closed",
    }
    no_telnet = {"egressNetworkPolicyRuleAction": 3, "egressNetworkPolicyName": "no-telnet"}
    outside = {"destinationIPv4Address": "192.0.2.9", "destinationPodNamespace": "", "destinationPodName": ""}
    nobody = {"sourcePodNamespace": "", "sourcePodName": ""}
    return [
        # One flow with two rows, and another one of the same two Pods.
        flow(WEB, CART, cart, sourceTransportPort=1000, octetDeltaCount=100, reverseOctetDeltaCount=1000),
        flow(WEB, CART, cart, sourceTransportPort=1000, octetDeltaCount=10, reverseOctetDeltaCount=0),
        flow(WEB, CART, cart, sourceTransportPort=1001, octetDeltaCount=1, reverseOctetDeltaCount=0),
        flow(
            nobody,
            CART,
            closed,
            family=AddressFamily.IPV6,
            sourceIPv6Address="2001:db8::7",
            destinationTransportPort=22,
            octetDeltaCount=60,
            reverseOctetDeltaCount=0,
            packetDeltaCount=2,
            flowType=4,
        ),
        flow(
            WEB,
            outside,
            no_telnet,
            destinationTransportPort=23,
            octetDeltaCount=50,
            reverseOctetDeltaCount=0,
            packetDeltaCount=1,
            flowType=3,
        ),
        # Two hours ago.
        flow(
            WEB,
            CART,
            flowEndSeconds=int(time.time()) - 7200,
            octetDeltaCount=7,
            reverseOctetDeltaCount=0,
            destinationTransportPort=81,
        ),
    ]


def statements(page: str) -> list[str]:
    return re.findall(r"^```sql\n(SELECT .*?);?\n```$", (HOW_TO / page).read_text(encoding="utf-8"), re.M | re.S)


async def test_the_questions_are_answered(server: ClickHouseProcess, database: str, password: str) -> None:
    assert password
    config = ClickHouseConfig(
        database_url=server.url, database=database, password=Secret("env", "CH_PASSWORD"), create_schema=True
    )
    async with open_clickhouse(config, context()) as exporter:
        for number, batch in enumerate(rows()):
            await deliver(exporter, batch.with_id(f"{number}"))

    def ask(statement: str) -> list[list[Any]]:
        return server.query(re.sub(r"\bFROM (flows\w*)", rf"FROM {database}.\1", statement))

    most, denied, unspoken, outward, service, minutes = statements("ask-who-talked-to-whom.md")
    assert ask(most) == [
        ["shop/web-1", "shop/cart-0", 80, 111, 1000],
        ["2001:db8::7", "shop/cart-0", 22, 60, 0],
        ["shop/web-1", "192.0.2.9", 23, 50, 0],
    ]
    assert [row[:5] for row in ask(denied)] == [
        ["2001:db8::7", "shop/cart-0", 22, "ingress shop/closed", 2],
        ["shop/web-1", "192.0.2.9", 23, "egress /no-telnet", 1],
    ]
    assert ask(unspoken) == [["shop", "shop", 1118]]
    assert ask(outward) == [["shop", "web-1", "192.0.2.9", 50]]
    assert ask(service) == [["shop", "web-1", 2, 111]]
    assert sum(octets for _minute, _namespace, octets in ask(minutes)) == 228
