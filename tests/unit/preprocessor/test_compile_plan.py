from __future__ import annotations

import pytest

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_schema import FlowOrigin
from flowjoin._model.plan import Plan
from flowjoin._model.schemas import build_schemas
from flowjoin._model.template import FieldSpecifier, Template, TemplateId
from flowjoin._preprocessor.compile_plan import PlanCompiler
from flowjoin.wire import default_registry

REGISTRY = default_registry()
SCHEMAS = build_schemas(REGISTRY)
ADDRESSES = ("sourceIPv4Address", "destinationIPv4Address")


def field(name: str, length: int | None = None) -> FieldSpecifier:
    element = REGISTRY.by_name(name)
    return FieldSpecifier(element, element.length if length is None else length)


def template(*fields: str | FieldSpecifier, is_options: bool = False) -> Template:
    specified = tuple(field(each) if isinstance(each, str) else each for each in fields)
    return Template(10, TemplateId(256), specified, is_options, int(is_options))


def compiled(*fields: str | FieldSpecifier, is_proxy: bool = False) -> Plan:
    plan = PlanCompiler(REGISTRY, SCHEMAS, is_proxy=is_proxy)(template(*fields))
    assert plan is not None
    return plan


def moves(plan: Plan) -> dict[str, int]:
    return {move.element: move.field_index for move in plan.moves}


def test_only_antreas_flow_type_makes_an_aggregated_flow() -> None:
    assert compiled(*ADDRESSES, "flowType").origin is FlowOrigin.AGGREGATED
    assert compiled(*ADDRESSES, "sourcePodName").origin is FlowOrigin.PLAIN
    assert compiled(*ADDRESSES, "flowType", is_proxy=True).origin is FlowOrigin.PROXY
    other = ElementRegistry.unknown(1234, 137, 1)
    assert compiled(*ADDRESSES, FieldSpecifier(other, 1, is_known=False)).origin is FlowOrigin.PLAIN


def test_options_have_no_plan() -> None:
    assert PlanCompiler(REGISTRY, SCHEMAS)(template("exporterIPv4Address", is_options=True)) is None


def test_elements_are_found_by_name_wherever_they_stand() -> None:
    plan = compiled("flowType", "destinationIPv4Address", "octetDeltaCount", "sourceIPv4Address")
    assert moves(plan) == {"flowType": 0, "destinationIPv4Address": 1, "octetDeltaCount": 2, "sourceIPv4Address": 3}
    assert (plan.has_ipv4, plan.has_ipv6, plan.dropped) == (True, False, ())


def test_families_are_told_by_pairs_of_addresses() -> None:
    plan = compiled(*ADDRESSES, "sourceIPv6Address")
    assert (plan.has_ipv4, plan.has_ipv6) == (True, False)
    plan = compiled(*ADDRESSES, "sourceIPv6Address", "destinationIPv6Address")
    assert (plan.has_ipv4, plan.has_ipv6) == (True, True)


def test_of_a_repeated_element_the_first_counts_and_the_others_are_named() -> None:
    plan = compiled("octetDeltaCount", "octetDeltaCount", "octetDeltaCount")
    assert moves(plan) == {"octetDeltaCount": 0}
    assert plan.dropped == ("octetDeltaCount", "octetDeltaCount")


def test_what_a_flow_has_no_place_for_is_named_but_padding_is_not() -> None:
    unknown = FieldSpecifier(ElementRegistry.unknown(64_000, 999, 4), 4, is_known=False)
    plan = compiled(
        *ADDRESSES, unknown, "flowType", "vlanId", "paddingOctets", "throughput", "octetDeltaCountFromSourceNode"
    )
    assert plan.dropped == ("64000/999", "vlanId", "throughput", "octetDeltaCountFromSourceNode")


def test_an_extra_element_of_the_configuration_has_a_place() -> None:
    schemas = build_schemas(REGISTRY, extra=["vlanId"])
    plan = PlanCompiler(REGISTRY, schemas)(template("flowType", "vlanId"))
    assert plan is not None
    assert moves(plan) == {"flowType": 0, "vlanId": 1}


def test_times_that_plain_flows_are_computed_from_are_taken() -> None:
    plan = compiled(
        "flowStartNanoseconds", "systemInitTimeMilliseconds", "flowEndSysUpTime", "flowEndDeltaMicroseconds"
    )
    assert plan.dropped == ()
    assert compiled("flowType", "flowStartNanoseconds").dropped == ("flowStartNanoseconds",)


@pytest.mark.parametrize("order", [1, -1])
def test_initiator_and_responder_are_deltas_unless_there_are_proper_ones(order: int) -> None:
    names = ["initiatorOctets", "responderPackets"]
    assert moves(compiled(*names)) == {"octetDeltaCount": 0, "reversePacketDeltaCount": 1}
    both = ["initiatorOctets", "octetDeltaCount"][::order]
    plan = compiled(*both)
    assert moves(plan) == {"octetDeltaCount": both.index("octetDeltaCount")}
    assert plan.dropped == ("initiatorOctets",)


@pytest.mark.parametrize(
    "odd",
    [
        field("octetDeltaCount", 16),
        field("octetDeltaCount", 65535),
        field("sourceIPv4Address", 16),
        field("flowStartMilliseconds", 4),
        field("initiatorOctets", 16),
    ],
)
def test_a_field_whose_length_does_not_fit_its_type_is_dropped(odd: FieldSpecifier) -> None:
    plan = compiled(odd)
    assert (plan.moves, plan.dropped) == ((), (odd.element.name,))


def test_octets_of_another_size_than_their_place_are_dropped() -> None:
    plan = compiled("flowType", field("sourcePodUUID", 4), field("destinationPodUUID", 0), "sourceNodeUUID")
    assert plan.dropped == ("sourcePodUUID",)


def test_reduced_size_and_empty_fields_fit() -> None:
    assert compiled(field("octetDeltaCount", 3), field("packetDeltaCount", 0)).dropped == ()


def test_proxy_mode_keeps_everything_but_repeats() -> None:
    unknown = FieldSpecifier(ElementRegistry.unknown(64_000, 999, 4), 4, is_known=False)
    plan = compiled(*ADDRESSES, unknown, "vlanId", "initiatorOctets", "flowStartMilliseconds", "vlanId", is_proxy=True)
    assert plan.extra == (2, 3, 4, 5)
    assert plan.dropped == ("vlanId",)
    assert moves(plan) == {"sourceIPv4Address": 0, "destinationIPv4Address": 1, "flowStartMilliseconds": 5}


def test_equal_templates_have_equal_plans() -> None:
    names = (*ADDRESSES, "flowType", "vlanId")
    assert compiled(*names) == compiled(*names)
