from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowjoin_conntrack._config import DeniedConfig, DeniedRule
from flowjoin_conntrack._verdict import DROP, REJECT, Verdict, verdict_of


@pytest.mark.parametrize(
    ("prefix", "wanted"),
    [
        ("fj:ingress:drop:7", Verdict(action=DROP, direction="ingress", rule_id=7)),
        ("fj:egress:reject:4294967295 ", Verdict(action=REJECT, direction="egress", rule_id=4294967295)),
        ("fj:ingress:reject", Verdict(action=REJECT, direction="ingress")),
        ("fj:egress:drop:implicit", Verdict(action=DROP, direction="egress", is_implicit=True)),
        ("fj:ingress:drop:4294967296", Verdict(action=DROP, direction="ingress")),  # no rule has that number
        ("fj:ingress:allow:7", Verdict()),
        ("dropped: ", Verdict()),
        ("", Verdict()),
    ],
)
def test_a_prefix_says_what_was_done(prefix: str, wanted: Verdict) -> None:
    assert verdict_of((), prefix, 0) == wanted


def test_the_first_rule_that_fits_counts() -> None:
    config = DeniedConfig(
        group=5,
        rules=(
            DeniedRule(prefix="web-", direction="ingress", rule=7),
            DeniedRule(mark=0x20, mask=0xF0, action="reject", direction="egress"),
            DeniedRule(prefix="web", action="reject"),
        ),
    )
    rules = config.verdict_rules
    assert verdict_of(rules, "web-1 ", 0x21) == Verdict(action=DROP, direction="ingress", rule_id=7)
    assert verdict_of(rules, "web1", 0x21) == Verdict(action=REJECT, direction="egress")
    assert verdict_of(rules, "web1", 0x31) == Verdict(action=REJECT)
    assert verdict_of(rules, "fj:ingress:drop:9", 0x31) == Verdict(direction="ingress", rule_id=9)


def test_a_rule_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match='needs "prefix" or "mark"'):
        DeniedRule(direction="ingress")


@given(st.text(max_size=128), st.integers(0, 0xFFFFFFFF))
def test_any_prefix_is_a_verdict(prefix: str, mark: int) -> None:
    verdict = verdict_of((), prefix, mark)
    assert verdict.action in (DROP, REJECT)
    assert 0 <= verdict.rule_id <= 0xFFFFFFFF
