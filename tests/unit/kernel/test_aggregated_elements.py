"""Elements that are merged by rules of their own: HTTP transactions, the cluster, extra elements."""

from __future__ import annotations

import pytest
from hand_made import AGENT, D1, D2, S1, S2, Record, data_set, message, template_set
from joined_flows import one
from kernel_harness import Harness

from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, MergeRule

pytestmark = pytest.mark.usefixtures("kernel_form")

V = (
    '"{hostname:10.10.0.1,url:/public/,http_user_agent:curl/7.74.0,http_content_type:text/html,'
    'http_method:GET,protocol:HTTP/1.1,status:200,length:153}"'
)


def with_http(*values: str) -> Harness:
    harness = Harness()
    names = [*AGENT, "appProtocolName", "httpVals"]
    for end, value in enumerate(values, start=1):
        harness.send(S1 | {"flowType": 1, "flowEndSeconds": end, "httpVals": value}, names=names)
    return harness


def test_http_transactions_of_all_records_are_kept() -> None:
    assert one(with_http('{"0":' + V + "}", '{"1":' + V + "}"))["httpVals"] == '{"0":' + V + ',"1":' + V + "}"


def test_http_text_that_is_no_such_json_is_replaced_and_counted() -> None:
    harness = with_http("mockHttpString", '{"1":2}')
    assert one(harness)["httpVals"] == '{"1":2}'
    assert harness.statistics.http_vals_replaced == 1


def test_records_without_the_http_element_leave_it_alone() -> None:
    harness = with_http('{"1":2}')
    harness.send(S1 | {"flowType": 1, "flowEndSeconds": 9})
    assert one(harness)["httpVals"] == '{"1":2}'


def test_our_cluster_is_told_unless_the_record_tells_its_own() -> None:
    harness = Harness(cluster_id="ours")
    names = [*AGENT, "clusterId"]
    harness.send(
        S1 | {"flowType": 1, "clusterId": "theirs"}, S1 | {"flowType": 1, "sourceTransportPort": 1}, names=names
    )
    harness.send(S1 | {"flowType": 1, "sourceTransportPort": 2})
    assert [row["clusterId"] for row in harness.stored()] == ["theirs", "ours", "ours"]


def test_elements_map_by_name_in_any_order_and_unknown_ones_are_counted() -> None:
    harness = Harness()
    harness.send(S1, D1, names=[*reversed(AGENT), "unknown", "paddingOctets", "octetTotalCount"])
    (row,) = harness.rows()
    assert (row["octetTotalCount"], row["sourcePodName"], row["destinationPodName"]) == (1020, "pod1", "pod2")
    assert harness.statistics.elements_dropped == {"64000/999": 2, "octetTotalCount": 2}


def test_every_agent_and_every_order_of_halves_is_joined_whatever_its_template() -> None:
    old_agent = [name for name in AGENT if name not in ("egressNodeName", "proxySnatPort", "proxySnatIPv4")]
    harness = Harness()
    harness.send(S1, names=old_agent)
    harness.send(D1)
    (row,) = harness.rows()
    assert (row["egressNodeName"], row["proxySnatIPv4"], row["destinationPodName"]) == ("", "0.0.0.0", "pod2")


def counter_element(name: str, number: int, rule: MergeRule | None, semantics: str = "") -> InformationElement:
    import hand_made

    hand_made.FIELDS[name] = (number, 32473, 4)
    return InformationElement(
        name=name,
        element_id=ElementId(number),
        enterprise_number=EnterpriseNumber(32473),
        data_type=DataType.UNSIGNED32,
        merge_rule=rule,
        semantics=semantics,
    )


def test_extra_elements_follow_their_merge_rules() -> None:
    elements = (
        counter_element("testFirst", 11, MergeRule.FIRST),
        counter_element("testLatest", 12, None),
        counter_element("testMaximum", 13, None, "totalCounter"),
        counter_element("testSum", 14, None, "deltaCounter"),
    )
    names = [element.name for element in elements]
    harness = Harness(elements=elements, extra=names)
    first: Record = {"testFirst": 5, "testLatest": 5, "testMaximum": 9, "testSum": 2**32 - 10}
    later: Record = {"testFirst": 6, "testLatest": 6, "testMaximum": 8, "testSum": 4}
    harness.send(S1 | first, D1 | later, S2 | later, names=[*AGENT, *names])
    row = one(harness)
    assert (row["testFirst"], row["testLatest"], row["testMaximum"]) == (5, 6, 9)
    assert row["testSum"] == 2**32 - 6  # of the side that reported last, never of both
    harness.send(S2 | later | {"flowEndSeconds": 12}, names=[*AGENT, *names])
    assert one(harness)["testSum"] == 2**32 - 2
    harness.send(S2 | later | {"flowEndSeconds": 13}, names=[*AGENT, *names])
    assert one(harness)["testSum"] == 2**32 - 1  # the most the element can say
    harness.send(D1 | later | {"flowEndSeconds": 5}, names=[*AGENT, *names])  # not the latest
    assert one(harness)["testSum"] == 2**32 - 1
    harness.send(S2 | later | {"flowEndSeconds": 14})  # without them: nothing changes
    assert one(harness)["testLatest"] == 6
    harness.expire()
    assert (one(harness)["testSum"], one(harness)["testMaximum"]) == (0, 9)


def test_several_records_in_one_set_are_merged_in_order() -> None:
    harness = Harness()
    harness.send_message(message(template_set(AGENT), data_set(AGENT, S1, D1), data_set(AGENT, S2, D2)))
    assert [row["octetTotalCount"] for row in harness.rows()] == [2050]
