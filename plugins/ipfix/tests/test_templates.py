"""Templates have Antrea's elements in Antrea's order, to the octet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowjoin.api import AddressFamily, FlowBatch, FlowOrigin, FlowSchema
from flowjoin.testing import every_data_type, numbered_flows, plain_flows, standard_flow
from flowjoin.wire import Template, default_registry, encode_message, encode_template_set
from flowjoin_ipfix._elements import element_names
from flowjoin_ipfix._encode import DataRecordEncoder
from flowjoin_ipfix._templates import TemplateBook

V4, V6 = AddressFamily.IPV4, AddressFamily.IPV6
DATA = Path(__file__).parent / "data" / "templates.txt"
# compatibility and kind, names, UUIDs: octets of a Template's Message, of the least record over IPv4 and over IPv6
SIZES = {
    ("antrea-2.3 agent", True, False): (312, 116, 152),
    ("antrea-2.7 agent", True, False): (320, 124, 184),
    ("antrea-2.3 aggregator", True, False): (528, 303, 339),
    ("antrea-2.7 aggregator", True, False): (536, 311, 371),
    ("antrea-2.7 aggregator", False, True): (504, 442, 502),
    ("antrea-2.7 aggregator", True, True): (608, 455, 515),
    ("antrea-2.7 aggregator", False, False): (416, 296, 356),
    ("antrea-2.3 proxy", True, False): (352, 144, 180),
    ("antrea-2.7 proxy", True, False): (360, 152, 212),
}
AGENT_TEMPLATE = """
000a013800000000000000002fc239a2000201280100002a00960004009700040088000100070002000b0002000400010056000800550008
000200080001000800080004000c000480560008000072798055000800007279800200080000727980010008000072798065ffff0000dcba
8064ffff0000dcba8068ffff0000dcba8067ffff0000dcba8066ffff0000dcba8069ffff0000dcba806c00020000dcba806dffff0000dcba
806effff0000dcba806fffff0000dcba807300010000dcba808dffff0000dcba808b00010000dcba8070ffff0000dcba8071ffff0000dcba
807600010000dcba808effff0000dcba808c00010000dcba8088ffff0000dcba808900010000dcba8099ffff0000dcba809affff0000dcba
809bffff0000dcba809cffff0000dcba809dffff0000dcba806a00040000dcba
"""


def golden() -> dict[str, list[str]]:
    lists: dict[str, list[str]] = {}
    for line in DATA.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lists[line.strip("[]")] = names = []
        elif line:
            names.append(line)
    return lists


def book_of(what: str, **settings: Any) -> TemplateBook:
    compatibility, kind = what.split()
    return TemplateBook(default_registry(), kind, compatibility=compatibility, **settings)  # type: ignore[arg-type]


def message_of(template: Template, domain: int = 0) -> bytes:
    return encode_message(
        [encode_template_set([template])], export_time=0, sequence_number=0, observation_domain_id=domain
    )


@pytest.mark.parametrize(("case", "names"), golden().items())
def test_each_list_is_antreas(case: str, names: list[str]) -> None:
    compatibility, kind, *switches = case.split()
    settings = {"names": "names" in switches, "uids": "uids" in switches}
    listed = element_names(kind, V4, compatibility=compatibility, **settings)  # type: ignore[arg-type]
    assert list(listed) == names
    # Of the original exporter both addresses are there, in either family.
    twins = [name if name.startswith("original") else name.replace("IPv4", "IPv6") for name in names]
    assert list(element_names(kind, V6, compatibility=compatibility, **settings)) == twins  # type: ignore[arg-type]


@pytest.mark.parametrize(("case", "sizes"), SIZES.items(), ids=str)
def test_templates_and_least_records_have_antreas_sizes(
    case: tuple[str, bool, bool], sizes: tuple[int, int, int]
) -> None:
    what, names, uids = case
    ipv4, ipv6 = book_of(what, names=names, uids=uids).templates
    assert (ipv4.template_id, ipv6.template_id) == (256, 257)
    assert len(message_of(ipv4)) == len(message_of(ipv6)) == sizes[0]
    for template, family, least in ((ipv4, V4, sizes[1]), (ipv6, V6, sizes[2])):
        assert template.minimum_record_length == least
        schema = standard_flow(family).schema
        empty = FlowBatch.from_columns(schema, {"flowType": [0]})
        assert len(DataRecordEncoder(template, 65515).write(empty).octets) == least


def test_the_agents_template_is_the_same_to_the_octet() -> None:
    template = book_of("antrea-2.3 agent").templates[0]
    assert message_of(template, domain=801257890) == bytes.fromhex(AGENT_TEMPLATE)


def test_both_families_have_their_template_before_any_row() -> None:
    book = book_of("antrea-2.7 aggregator")
    assert [template.template_id for template in book.templates] == [256, 257]
    assert book.template_of(numbered_flows(1, V4).schema).template_id == 256
    assert book.template_of(numbered_flows(1, V6).schema).template_id == 257


def test_a_plain_flow_has_the_template_of_its_own_columns() -> None:
    book = book_of("antrea-2.7 aggregator")
    plain = plain_flows(1)
    assert book.template_of(plain_flows(1, V6).schema).template_id == 259
    template = book.template_of(plain.schema)
    assert template.template_id == 258
    assert tuple(field.element.name for field in template.fields) == plain.schema.names
    assert book.template_of(every_data_type().schema).template_id == 260
    assert book.template_of(plain.schema) is template


def test_extra_elements_come_after_the_usual_ones_in_both_families() -> None:
    book = book_of("antrea-2.7 aggregator", extra=True)
    assert list(book.templates) == []
    batch = numbered_flows(2).with_columns({"bgpSourceAsNumber": [64496, 64497]})
    template = book.template_of(batch.schema)
    names = [field.element.name for field in template.fields]
    usual = golden()["antrea-2.7 aggregator names"]
    assert names == [*usual, "appProtocolName", "httpVals", "bgpSourceAsNumber"]
    ids = {each.template_id: [field.element.name for field in each.fields] for each in book.templates}
    assert sorted(ids) == [256, 257]
    assert "sourceIPv6Address" in ids[257]
    assert ids[257][-1] == "bgpSourceAsNumber"


def test_what_a_switch_leaves_out_is_no_extra_element() -> None:
    book = book_of("antrea-2.7 aggregator", names=False, extra=True)
    names = [field.element.name for field in book.template_of(standard_flow(V4).schema).fields]
    assert "sourcePodName" not in names
    assert "sourcePodUUID" not in names


def test_elements_that_no_template_has_are_named_once() -> None:
    book = book_of("antrea-2.7 aggregator")
    schema = numbered_flows(1).with_columns({"bgpSourceAsNumber": [64496]}).schema
    assert book.untold(schema) == ("bgpSourceAsNumber",)
    assert book.untold(schema) == ()
    assert book.untold(plain_flows(1).schema) == ()


def uncounted(family: AddressFamily = V4) -> FlowSchema:
    """Of a source that counts nothing."""
    names = ("sourceTransportPort", "protocolIdentifier", "flowType")
    registry = default_registry()
    elements = tuple(map(registry.by_name, names))
    return FlowSchema(origin=FlowOrigin.SOURCE, family=family, elements=elements, registry=registry)


def test_flows_that_nobody_counted_have_a_template_without_counters() -> None:
    book = book_of("antrea-2.7 aggregator")
    template = book.template_of(uncounted())
    assert template.template_id == 260
    names = [field.element.name for field in template.fields]
    assert "packetDeltaCount" not in names
    assert "reverseOctetTotalCount" not in names
    assert "sourceTransportPort" in names
    assert book.template_of(numbered_flows(1, V4).schema).template_id == 256  # others keep theirs


def test_an_agents_template_has_counters_whoever_counted() -> None:
    assert book_of("antrea-2.7 agent").template_of(uncounted()).template_id == 256
