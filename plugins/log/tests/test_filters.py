"""Which flows are written."""

from __future__ import annotations

import pytest

from flowjoin.testing import standard_flow
from flowjoin.wire import default_registry
from flowjoin_log import FilterConfig
from flowjoin_log._config import LogConfig, check
from flowjoin_log._filters import FlowFilters

UNPROTECTED, EGRESS_DROP, INGRESS_REJECT, ALLOWED = (0, 0), (0, 2), (3, 0), (1, 1)
RECORDS = (UNPROTECTED, EGRESS_DROP, INGRESS_REJECT, ALLOWED)


def filters(*pairs: tuple[tuple[str, ...], tuple[str, ...]]) -> tuple[FilterConfig, ...]:
    return tuple(
        FilterConfig(ingress_network_policy_rule_actions=ingress, egress_network_policy_rule_actions=egress)
        for ingress, egress in pairs
    )


@pytest.mark.parametrize(
    ("configured", "passing"),
    [
        (filters(), RECORDS),
        (filters((("None",), ("None",))), (UNPROTECTED,)),
        (filters((("Drop", "Reject"), ()), ((), ("Drop", "Reject"))), (EGRESS_DROP, INGRESS_REJECT)),
        (filters((("None",), ()), ((), ("None",))), (UNPROTECTED, EGRESS_DROP, INGRESS_REJECT)),
        (filters(((), ())), RECORDS),
        (filters((("Permit",), ())), ()),
        (filters((("Permit", "Allow"), ())), (ALLOWED,)),
    ],
)
def test_antreas_table_of_filters(configured: tuple[FilterConfig, ...], passing: tuple[tuple[int, int], ...]) -> None:
    flow_filters = FlowFilters(configured)
    assert tuple(record for record in RECORDS if flow_filters.passes(*record)) == passing
    for ingress, egress in RECORDS:
        batch = standard_flow(ingressNetworkPolicyRuleAction=ingress, egressNetworkPolicyRuleAction=egress)
        assert len(flow_filters.apply(batch)) == ((ingress, egress) in passing)


def test_the_action_255_is_not_what_an_unknown_name_stands_for() -> None:
    assert not FlowFilters(filters((("Permit",), ()))).passes(255, 255)


def test_a_batch_that_passes_whole_is_not_copied() -> None:
    batch = standard_flow()
    assert FlowFilters(filters((("Drop",), ()))).apply(batch) is batch


def test_check_names_each_unknown_action_with_its_place_and_the_nearest() -> None:
    config = LogConfig(path="-", filters=filters((("Permit", "Drop"), ("dropp",)), ((), ("reject",))))
    remarks = check(config, default_registry())
    assert [(each.path, each.problem) for each in remarks] == [
        (
            "filters[0].ingressNetworkPolicyRuleActions[0]",
            '"Permit" is no action and never matches; the actions are None, Allow, Drop, Reject',
        ),
        (
            "filters[0].egressNetworkPolicyRuleActions[0]",
            '"dropp" is no action and never matches; did you mean "Drop"?',
        ),
        (
            "filters[1].egressNetworkPolicyRuleActions[0]",
            '"reject" is no action and never matches; did you mean "Reject"?',
        ),
    ]
    assert (
        check(LogConfig(path="-", filters=filters((("None", "Allow"), ("Drop", "Reject")))), default_registry()) == []
    )
