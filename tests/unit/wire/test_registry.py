from collections import Counter

import pytest

from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, InformationElement, MergeRule
from flowjoin.wire.registry import ANTREA, IANA, IANA_REVERSE, NOT_REVERSIBLE, default_registry


def get(enterprise_number: int, element_id: int) -> InformationElement:
    element = default_registry().get(enterprise_number, element_id)
    assert element is not None
    return element


def test_it_is_made_once():
    assert default_registry() is default_registry()


def test_it_has_all_three_registries_whole():
    count = Counter(element.enterprise_number for element in default_registry())
    assert count == {IANA: 502, IANA_REVERSE: 502 - 25, ANTREA: 73}
    assert {e.element_id for e in default_registry() if e.enterprise_number == ANTREA} == set(range(100, 173))


@pytest.mark.parametrize(
    ("enterprise_number", "element_id", "name", "data_type", "length", "semantics", "units"),
    [
        (0, 1, "octetDeltaCount", DataType.UNSIGNED64, 8, "deltaCounter", "octets"),
        (0, 6, "tcpControlBits", DataType.UNSIGNED16, 2, "flags", ""),
        (0, 27, "sourceIPv6Address", DataType.IPV6_ADDRESS, 16, "default", ""),
        (0, 56, "sourceMacAddress", DataType.MAC_ADDRESS, 6, "default", ""),
        (0, 86, "packetTotalCount", DataType.UNSIGNED64, 8, "totalCounter", "packets"),
        (0, 150, "flowStartSeconds", DataType.DATE_TIME_SECONDS, 4, "default", "seconds"),
        (0, 291, "basicList", DataType.BASIC_LIST, VARIABLE_LENGTH, "list", ""),
        (0, 533, "pathDelaySumDeltaMicroseconds", DataType.UNSIGNED64, 8, "deltaCounter", ""),
        (29305, 1, "reverseOctetDeltaCount", DataType.UNSIGNED64, 8, "deltaCounter", "octets"),
        (29305, 236, "reverseVRFname", DataType.STRING, VARIABLE_LENGTH, "default", ""),
        (56506, 101, "sourcePodName", DataType.STRING, VARIABLE_LENGTH, "default", ""),
        (56506, 116, "ingressNetworkPolicyRulePriority", DataType.SIGNED32, 4, "quantity", ""),
        (56506, 145, "throughput", DataType.UNSIGNED64, 8, "quantity", "bits per second"),
        (56506, 159, "sourcePodUUID", DataType.OCTET_ARRAY, 16, "identifier", ""),
        (56506, 171, "proxySnatIPv6", DataType.IPV6_ADDRESS, 16, "identifier", ""),
    ],
)
def test_an_element_has_the_facts_of_its_registry(
    enterprise_number, element_id, name, data_type, length, semantics, units
):
    element = get(enterprise_number, element_id)
    assert (element.name, element.data_type, element.length) == (name, data_type, length)
    assert (element.semantics, element.units) == (semantics, units)
    assert default_registry().by_name(name) is element


def test_forwarding_status_is_wide_enough_for_every_length_seen():
    # RFC 7270 has it in one octet; IANA widened it to four, which reduced-size encoding shortens.
    assert get(0, 89).data_type is DataType.UNSIGNED32


@pytest.mark.parametrize("element_id", [515, 520, 525])
def test_an_unsigned256_is_kept_as_octets(element_id):
    assert get(0, element_id).data_type is DataType.OCTET_ARRAY


def test_what_is_no_property_of_one_direction_has_no_reverse():
    assert len(NOT_REVERSIBLE) == 25
    for name in NOT_REVERSIBLE:
        forward = default_registry().by_name(name)
        assert default_registry().get(IANA_REVERSE, forward.element_id) is None


def test_every_reverse_has_the_type_and_rules_of_its_forward():
    for reverse in default_registry():
        if reverse.enterprise_number == IANA_REVERSE:
            forward = get(0, reverse.element_id)
            assert reverse.name == "reverse" + forward.name[0].upper() + forward.name[1:]
            assert (reverse.data_type, reverse.length, reverse.semantics, reverse.merge_rule) == (
                forward.data_type,
                forward.length,
                forward.semantics,
                forward.merge_rule,
            )


def test_only_what_its_semantics_would_merge_wrongly_has_a_merge_rule():
    rules = {e.name: e.merge_rule for e in default_registry() if e.merge_rule and e.enterprise_number == IANA}
    assert rules == {
        "maximumIpTotalLength": MergeRule.MAX,
        "maximumTTL": MergeRule.MAX,
        "maximumLayer2TotalLength": MergeRule.MAX,
        # registered as deltaCounter, but means and extremes do not add up
        "pathDelayMeanDeltaMicroseconds": MergeRule.LATEST,
        "pathDelayMinDeltaMicroseconds": MergeRule.LATEST,
        "pathDelayMaxDeltaMicroseconds": MergeRule.MAX,
    }


def test_netflow_v9_leftovers_are_unknown():
    assert [i for i in (0, *range(65, 70), 97, *range(105, 128), 416, 419, 534) if default_registry().get(0, i)] == []
