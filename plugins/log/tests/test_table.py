"""The table for people: aligned, one line per flow, nothing in it steers the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowjoin.api import AddressFamily, FlowBatch
from flowjoin.testing import compare_with_golden_file, hostile_flows, plain_flows, standard_flow
from flowjoin.testing.batches import HOSTILE_TEXTS
from flowjoin_log._table import TableWriter, human_count, human_octets

DATA = Path(__file__).parent / "data"
DAY = 1_764_460_800  # 2025-11-30T00:00:00Z


def rendered(*batches: FlowBatch, width: int = 120, colours: bool = False) -> str:
    writer = TableWriter(width=width, colours=colours)
    return b"".join(chunk for batch in batches for chunk in writer.render(batch)).decode()


def examples() -> list[FlowBatch]:
    none: dict[str, int | str] = {
        "egressNetworkPolicyRuleAction": 0,
        "egressNetworkPolicyName": "",
        "ingressNetworkPolicyRuleAction": 0,
        "ingressNetworkPolicyName": "",
        "flowEndSeconds": DAY + 3600,
    }
    shop = {"sourcePodName": "frontend-7d4b9c", "sourcePodNamespace": "shop", "destinationPodNamespace": "shop"}
    return [
        standard_flow(**{**none, **shop, "destinationPodName": "cart-0", "octetTotalCount": 12_345_678}),
        standard_flow(
            **{
                **none,
                **shop,
                "destinationPodName": "ledger-0",
                "egressNetworkPolicyRuleAction": 1,
                "egressNetworkPolicyName": "allow-shop",
                "egressNetworkPolicyNamespace": "shop",
                "ingressNetworkPolicyRuleAction": 2,
                "ingressNetworkPolicyName": "deny-all",
                "ingressNetworkPolicyNamespace": "bank",
                "octetTotalCount": 74,
                "packetTotalCount": 1,
            }
        ),
        standard_flow(**{**none, **shop, "destinationPodName": "", "destinationServicePortName": "shop/cart:http"}),
        standard_flow(
            **{
                **none,
                "sourcePodName": "",
                "destinationPodName": "",
                "destinationServicePortName": "",
                "egressNetworkPolicyRuleAction": 3,
                "egressNetworkPolicyName": "cluster-wide",
                "egressNetworkPolicyNamespace": "",
                "protocolIdentifier": 17,
            }
        ),
        standard_flow(
            AddressFamily.IPV6,
            **{
                **none,
                "sourcePodName": "",
                "destinationPodName": "",
                "destinationServicePortName": "",
                "protocolIdentifier": 58,
                "packetTotalCount": 4,
                "octetTotalCount": 416,
            },
        ),
        standard_flow(
            AddressFamily.IPV6,
            **{
                **none,
                "sourcePodName": "",
                "destinationPodName": "",
                "destinationServicePortName": "",
                "packetTotalCount": 0,
                "octetTotalCount": 0,
                "flowEndSeconds": DAY + 86_400,
            },
        ),
        plain_flows(2),
    ]


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_table_looks_as_it_was_approved(width: int) -> None:
    compare_with_golden_file(DATA / f"table-{width}.txt", rendered(*examples(), width=width).encode())


@pytest.mark.parametrize("width", [80, 100, 120, 140, 160, 240])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for line in rendered(*examples(), hostile_flows(), width=width).splitlines():
        assert len(line) <= width, line


def test_each_flow_is_one_line_and_the_heading_comes_once_a_day() -> None:
    lines = rendered(*examples(), plain_flows(300)).splitlines()
    assert len(lines) == 2 + 6 + 2 + 300
    assert [line[:10] for line in lines if "SOURCE" in line] == ["2025-11-30", "2025-12-01"]


def test_nothing_a_peer_sends_steers_the_terminal() -> None:
    text = rendered(hostile_flows())
    assert text.count("\n") == len(HOSTILE_TEXTS) + 1
    assert all(character.isprintable() for character in text.replace("\n", ""))


def test_colours_are_around_the_verdict_and_the_heading_only() -> None:
    coloured, plain = rendered(*examples(), colours=True), rendered(*examples())
    assert "\x1b[31mDrop\x1b[0m bank/deny-all" in coloured
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (12_345, "12.3 kB"),
        (99_949, "99.9 kB"),
        (99_951, "100 kB"),
        (999_499, "999 kB"),
        (999_501, "1.00 MB"),
        (30_472_817_041, "30.5 GB"),
        (2**64 - 1, "18.4 EB"),
    ],
)
def test_octets_have_three_digits_and_a_unit(octets: int, text: str) -> None:
    assert human_octets(octets) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0"), (9_999_999, "9999999"), (12_345_678, "12.3M")])
def test_packets_are_counted_up_to_seven_digits(count: int, text: str) -> None:
    assert human_count(count) == text
