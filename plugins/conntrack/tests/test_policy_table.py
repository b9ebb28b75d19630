from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowjoin.api import PolicyRule
from flowjoin_conntrack._policy_table import PolicyTable, Span, rules_of


def document(*entries: Any) -> bytes:
    return json.dumps({"policies": entries}).encode()


def entry(rule: int, name: str, **more: Any) -> dict[str, Any]:
    return {"rule": rule, "policyName": name, **more}


def seen(table: PolicyTable, at: float, *entries: dict[str, Any]) -> PolicyTable:
    return table.updated(rules_of(document(*entries), most=100), at, most=100)


def name(table: PolicyTable, rule_id: int, at: float | None = None, generation: int = 0) -> str | None:
    found = table.rule(rule_id, generation, at)
    return None if found is None else found.policy_name


def test_a_list_is_read() -> None:
    given_rules = rules_of(
        document(
            {
                "rule": 7,
                "generation": 3,
                "policyName": "allow-web",
                "policyNamespace": "shop",
                "policyUid": "u",
                "policyType": "antrea",
                "ruleName": "r",
                "ruleAction": "reject",
                "from": "1970-01-01T00:01:00Z",
                "more": "is left alone",
            }
        ),
        most=1,
    )
    rule = PolicyRule(
        policy_name="allow-web",
        policy_type=2,
        policy_namespace="shop",
        policy_uid="u",
        rule_name="r",
        rule_action=3,
    )
    assert given_rules == {7: Span(rule=rule, generation=3, since=60.0)}


@pytest.mark.parametrize(
    ("octets", "sentence"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", 'no list "policies"'),
        (b"{}", 'no list "policies"'),
        (document(1), r"policies\[0\] is no mapping"),
        (document({"rule": 1}), r"policies\[0\] has no policyName"),
        (document(entry(0, "a")), r"policies\[0\]\.rule is no number from 1"),
        (document(entry(2**32, "a")), r"policies\[0\]\.rule is no number"),
        (document({"policyName": "a"}), r"policies\[0\]\.rule is no number"),
        (document(entry(True, "a")), r"policies\[0\]\.rule is no number"),
        (document(entry(1, "a"), entry(1, "b")), r"policies\[1\] has the rule 1 again"),
        (document(entry(1, "a", policyType="other")), r"policies\[0\]\.policyType is none of kubernetes, antrea"),
        (document(entry(1, "a", ruleAction=[])), r"policies\[0\]\.ruleAction is none of"),
        (document(entry(1, "a", ruleName=5)), r"policies\[0\]\.ruleName is no text"),
        (document(entry(1, "a" * 1025)), r"policies\[0\]\.policyName is no text of at most 1024"),
        (document(entry(1, "a", generation=-1)), r"policies\[0\]\.generation is no number"),
        (document(entry(1, "a", **{"from": "yesterday"})), r"policies\[0\]\.from is no time with its zone"),
        (document(entry(1, "a", **{"from": "2026-01-02T03:04:05"})), r"policies\[0\]\.from is no time with its zone"),
        (document(*[entry(number, "a") for number in range(1, 4)]), "3 rules, more than maxRules"),
    ],
)
def test_what_is_no_list_is_refused_with_its_place(octets: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        rules_of(octets, most=2)


def test_a_rule_is_known_from_the_first_list_that_has_it() -> None:
    table = seen(PolicyTable(), 100.0, entry(1, "a"))
    assert [name(table, 1, at) for at in (99.0, 100.0, 500.0)] == [None, "a", "a"]
    assert name(table, 1) == "a"
    assert name(table, 2, 100.0) is None


def test_a_list_is_true_for_a_while_and_then_nobody_knows() -> None:
    table = seen(PolicyTable(fresh=10.0), 100.0, entry(1, "a"))
    assert [name(table, 1, at) for at in (110.0, 110.1, None)] == ["a", None, "a"]
    assert name(table.still(105.0), 1, 115.0) == "a"


def test_a_number_that_was_given_out_for_the_first_time_was_nobody_elses() -> None:
    table = seen(PolicyTable(), 100.0, entry(1, "a", generation=1), entry(2, "b", generation=2))
    assert (name(table, 1, 5.0), name(table, 2, 5.0)) == ("a", None)


def test_a_list_may_say_itself_since_when() -> None:
    table = seen(PolicyTable(), 100.0, entry(1, "a", **{"from": "1970-01-01T00:01:00Z"}))
    assert [name(table, 1, at) for at in (59.0, 60.0)] == [None, "a"]


@pytest.mark.parametrize("generations", [({}, {}), ({"generation": 1}, {"generation": 2})])
def test_a_number_given_out_again_is_none_while_nobody_knows_which(generations: tuple[Any, Any]) -> None:
    old, new = generations
    table = seen(PolicyTable(), 100.0, entry(1, "old", **old))
    table = seen(table, 105.0, entry(1, "old", **old))
    table = seen(table, 110.0, entry(1, "new", **new))
    assert [name(table, 1, at) for at in (100.0, 105.0, 106.0, 109.0, 110.0)] == ["old", "old", None, None, "new"]
    assert name(table, 1) == "new"


def test_an_answer_that_nothing_changed_is_as_good_as_a_list() -> None:
    table = seen(PolicyTable(), 100.0, entry(1, "old")).still(105.0)
    table = seen(table, 110.0, entry(1, "new"))
    assert [name(table, 1, at) for at in (105.0, 106.0)] == ["old", None]


def test_a_rule_that_is_gone_is_that_of_connections_from_before() -> None:
    table = seen(seen(PolicyTable(), 100.0, entry(1, "old")), 110.0)
    assert [name(table, 1, at) for at in (100.0, 101.0, 110.0, None)] == ["old", None, None, None]
    table = seen(table, 120.0, entry(1, "new"))
    assert [name(table, 1, at) for at in (100.0, 115.0, 120.0)] == ["old", None, "new"]


def test_a_generation_is_asked_for_by_its_number() -> None:
    table = seen(PolicyTable(), 100.0, entry(1, "old", generation=4))
    table = seen(table, 110.0, entry(1, "new", generation=5))
    assert [name(table, 1, generation=number) for number in (4, 5, 6)] == ["old", "new", None]


def test_a_rule_of_the_same_generation_may_be_renamed() -> None:
    table = seen(PolicyTable(), 100.0, entry(1, "old", generation=4))
    table = seen(table, 110.0, entry(1, "new", generation=4))
    assert [name(table, 1, at) for at in (99.0, 100.0, 110.0)] == [None, "new", "new"]


def test_what_is_gone_is_bounded() -> None:
    table = PolicyTable()
    for number in range(1, 20):
        table = table.updated(rules_of(document(entry(number, "a")), most=5), float(number), most=3)
    assert sorted(table.spans) == [16, 17, 18, 19]
    for number in range(30):
        table = seen(table, 100.0 + number, entry(1, f"name-{number}"))
    assert len(table.spans[1]) == 8
    assert name(table, 1, 129.0) == "name-29"


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", "c", None])), max_size=30))
def test_the_answer_is_never_another_rules_name(steps: list[tuple[int, str | None]]) -> None:
    """A world in which numbers change hands at any time, and lists that show it now and then."""
    table = PolicyTable(fresh=0.0)
    now, truth = 0.0, dict[int, str | None]()
    history: list[tuple[float, dict[int, str | None]]] = [(0.0, {})]
    for number, (rule_id, holder) in enumerate(steps):
        now += 1.0
        truth[rule_id] = holder
        history.append((now, dict(truth)))
        if number % 3 == 0:
            now += 0.5
            table = seen(table, now, *[entry(one, who) for one, who in sorted(truth.items()) if who is not None])
    for began, then in history:
        for rule_id in (1, 2, 3):
            found = name(table, rule_id, began + 0.25)
            # A rule whose number went to another and back between two lists is the same to whoever sees only those.
            assert found in (None, then.get(rule_id)) or _came_back(history, rule_id, began, found)


def _came_back(history: list[tuple[float, dict[int, str | None]]], rule_id: int, at: float, found: str | None) -> bool:
    earlier = [holders.get(rule_id) for began, holders in history if at - 4 <= began < at]
    later = [holders.get(rule_id) for began, holders in history if at < began <= at + 4]
    return found in earlier and found in later


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["policies", "rule", "policyName", "from", "generation"]), inner)
        ),
    )
)
def test_any_document_is_a_list_or_refused(parsed: object) -> None:
    with contextlib.suppress(ValueError):
        for rule_id, span in rules_of(json.dumps(parsed).encode(), most=10).items():
            assert rule_id >= 1
            assert span.rule.policy_name


@given(st.binary(max_size=200))
def test_any_octets_are_a_list_or_refused(octets: bytes) -> None:
    with contextlib.suppress(ValueError):
        rules_of(octets, most=10)
