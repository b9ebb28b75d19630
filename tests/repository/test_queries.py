"""What the page on questions answers with jq is right, for lines with and without defaults."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flowjoin.api import AddressFamily
from flowjoin.api.lines import JsonLines
from flowjoin.testing import standard_flow

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "ask-who-talked-to-whom.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## In a log file")[2].partition("\n## ")[0]
WORDS, MOST, DENIED = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)

NO_POLICY = {
    f"{side}NetworkPolicy{part}": value
    for side in ("ingress", "egress")
    for part, value in (("Name", ""), ("Namespace", ""), ("RuleAction", 0))
}
CART = {
    "sourcePodNamespace": "shop",
    "sourcePodName": "web-1",
    "destinationPodNamespace": "shop",
    "destinationPodName": "cart-0",
}
ROWS = [
    # The same flow twice, and another of the same two Pods: deltas add up.
    standard_flow(**NO_POLICY, **CART, destinationTransportPort=80, octetDeltaCount=100, reverseOctetDeltaCount=1000),
    standard_flow(**NO_POLICY, **CART, destinationTransportPort=80, octetDeltaCount=10, reverseOctetDeltaCount=0),
    # From outside, over IPv6, dropped on the way in.
    standard_flow(
        AddressFamily.IPV6,
        **{
            **NO_POLICY,
            "ingressNetworkPolicyRuleAction": 2,
            "ingressNetworkPolicyNamespace": "shop",
            "ingressNetworkPolicyName": "closed",
        },
        sourceIPv6Address="2001:db8::7",
        sourcePodNamespace="",
        sourcePodName="",
        destinationPodNamespace="shop",
        destinationPodName="cart-0",
        destinationTransportPort=22,
        flowEndSeconds=1_700_000_000,
        octetDeltaCount=60,
        reverseOctetDeltaCount=0,
    ),
    # To outside, rejected by a policy of the whole cluster.
    standard_flow(
        **{**NO_POLICY, "egressNetworkPolicyRuleAction": 3, "egressNetworkPolicyName": "no-telnet"},
        sourcePodNamespace="shop",
        sourcePodName="web-1",
        destinationIPv4Address="192.0.2.9",
        destinationPodNamespace="",
        destinationPodName="",
        destinationTransportPort=23,
        flowEndSeconds=1_700_000_001,
        octetDeltaCount=50,
        reverseOctetDeltaCount=0,
    ),
]


@pytest.fixture(params=[False, True], ids=["every element", "defaults left out"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, require_program: Callable[[str], str]) -> Path:
    require_program("jq")
    lines = JsonLines(omit_defaults=request.param)
    (tmp_path / "flows.jsonl").write_bytes(b"".join(piece for batch in ROWS for piece in lines.render(batch)))
    return tmp_path


def answer(folder: Path, command: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", WORDS + command],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_who_talked_most_to_whom(folder: Path) -> None:
    assert answer(folder, MOST) == [
        "1110\tshop/web-1\tshop/cart-0:80",
        "60\t2001:db8::7\tshop/cart-0:22",
        "50\tshop/web-1\t192.0.2.9:23",
    ]


def test_what_was_denied_and_by_which_policy(folder: Path) -> None:
    assert answer(folder, DENIED) == [
        "1700000000\t2001:db8::7\tshop/cart-0:22\tingress shop/closed",
        "1700000001\tshop/web-1\t192.0.2.9:23\tegress /no-telnet",
    ]
