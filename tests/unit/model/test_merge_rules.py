from __future__ import annotations

from dataclasses import replace

import pytest

from flowjoin._model.errors import ConfigError
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin
from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, MergeRule
from flowjoin._model.merge_rules import AGGREGATED_RULES, PLAIN_RULES, merge_rule
from flowjoin._model.schemas import AGGREGATED_NAMES, PLAIN_NAMES
from flowjoin.wire import default_registry

REGISTRY = default_registry()
EXTRA = InformationElement(
    name="extra", element_id=ElementId(1), enterprise_number=EnterpriseNumber(32473), data_type=DataType.UNSIGNED64
)
# The 20 elements that Antrea joins, in one family, then the UIDs and the Service's address.
JOINED = {
    *("sourcePodName", "sourcePodNamespace", "sourceNodeName"),
    *("destinationPodName", "destinationPodNamespace", "destinationNodeName"),
    *("destinationClusterIPv4", "destinationServicePort", "destinationServicePortName"),
    *("ingressNetworkPolicyName", "ingressNetworkPolicyNamespace", "ingressNetworkPolicyRuleAction"),
    *("ingressNetworkPolicyType", "ingressNetworkPolicyRuleName"),
    *("egressNetworkPolicyName", "egressNetworkPolicyNamespace", "egressNetworkPolicyRuleAction"),
    *("egressNetworkPolicyType", "egressNetworkPolicyRuleName"),
    *("sourcePodUUID", "destinationPodUUID", "sourceNodeUUID", "destinationNodeUUID"),
    *("ingressNetworkPolicyUUID", "egressNetworkPolicyUUID", "destinationServiceIPv4"),
}
LABELS = {"sourcePodLabels", "destinationPodLabels"}  # given by no agent; ours if a record has them


def test_the_tables_name_the_columns_of_their_kind_and_no_others() -> None:
    assert set(AGGREGATED_RULES) == set(AGGREGATED_NAMES)
    assert set(PLAIN_RULES) == set(PLAIN_NAMES)


def test_what_is_joined_is_what_antrea_joins() -> None:
    assert {name for name, rule in AGGREGATED_RULES.items() if rule is MergeRule.FILL} == JOINED | LABELS


@pytest.mark.parametrize("family", AddressFamily)
def test_an_ipv6_element_follows_its_ipv4_twin(family: AddressFamily) -> None:
    name = f"destinationClusterIPv{family.value}"
    assert merge_rule(REGISTRY.by_name(name), FlowOrigin.AGGREGATED) is MergeRule.FILL


@pytest.mark.parametrize(
    ("element", "rule"),
    [
        (replace(EXTRA, semantics="deltaCounter"), MergeRule.SUM),
        (replace(EXTRA, semantics="totalCounter"), MergeRule.MAX),
        (replace(EXTRA, semantics="identifier"), MergeRule.LATEST),
        (replace(EXTRA, semantics="deltaCounter", merge_rule=MergeRule.FIRST), MergeRule.FIRST),
        (replace(EXTRA, semantics="deltaCounter", data_type=DataType.STRING, length=65535), MergeRule.LATEST),
        (replace(EXTRA, semantics="totalCounter", data_type=DataType.OCTET_ARRAY, length=4), MergeRule.LATEST),
        (replace(EXTRA, merge_rule=MergeRule.FILL), MergeRule.FILL),
    ],
)
def test_an_extra_element_follows_its_own_rule_else_its_semantics(element: InformationElement, rule: MergeRule) -> None:
    for origin in (FlowOrigin.AGGREGATED, FlowOrigin.PLAIN):
        assert merge_rule(element, origin) is rule


@pytest.mark.parametrize(
    "element",
    [
        replace(EXTRA, merge_rule=MergeRule.KEY),
        replace(EXTRA, merge_rule=MergeRule.PER_SIDE),
        replace(EXTRA, merge_rule=MergeRule.COMPUTED),
        replace(EXTRA, merge_rule=MergeRule.SUM, data_type=DataType.FLOAT64),
        replace(EXTRA, merge_rule=MergeRule.MAX, data_type=DataType.IPV4_ADDRESS),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(element: InformationElement) -> None:
    with pytest.raises(ConfigError, match="extra"):
        merge_rule(element, FlowOrigin.AGGREGATED)
