from __future__ import annotations

import struct

from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema
from flowjoin._model.information_element import DataType, ElementId, InformationElement, MergeRule
from flowjoin._model.schemas import build_schemas
from flowjoin._model.state_layout import Derivation, StateLayout, Storage, storage_of
from flowjoin.wire import default_registry

REGISTRY = default_registry()
NAMES = (
    "sourcePodName",
    "flowStartSeconds",
    "flowStartMilliseconds",
    "sourceIPv4Address",
    "octetTotalCount",
    "tcpState",
)
SCHEMA = FlowSchema(
    origin=FlowOrigin.PLAIN,
    family=AddressFamily.IPV4,
    elements=tuple(REGISTRY.by_name(name) for name in NAMES),
    registry=REGISTRY,
)
HIDDEN = InformationElement(name="hidden", element_id=ElementId(0), data_type=DataType.UNSIGNED64)
LAYOUT = StateLayout(
    SCHEMA,
    leading=("octetTotalCount",),
    hidden=(HIDDEN,),
    derived={"flowStartSeconds": Derivation("flowStartMilliseconds", lambda value: value // 1000)},
)


def test_leading_slots_come_first_and_interned_ones_last_without_gaps() -> None:
    assert list(LAYOUT.slots) == [
        "octetTotalCount",
        "hidden",
        "flowStartMilliseconds",
        "sourceIPv4Address",
        "sourcePodName",
        "tcpState",
    ]
    assert [slot.offset for slot in LAYOUT.slots.values()] == [0, 8, 16, 24, 28, 32]
    assert LAYOUT.struct.format == "<QQQ4sII"
    assert (LAYOUT.interned_offset, LAYOUT.interned_count) == (28, 2)


def test_every_column_finds_its_slot_or_the_one_it_is_derived_from() -> None:
    assert LAYOUT.source_positions == (4, 2, 2, 3, 0, 5)


def test_every_real_schema_is_laid_out_whole() -> None:
    schemas = build_schemas(REGISTRY, extra=["bgpNextHopIPv4Address", "interfaceName", "samplingProbability"])
    for (origin, _), schema in schemas.items():
        if origin in (FlowOrigin.AGGREGATED, FlowOrigin.PLAIN):
            layout = StateLayout(schema)
            assert set(layout.slots) == set(schema.names)
            assert layout.struct.size == sum(struct.calcsize(slot.format) for slot in layout.slots.values())


def test_values_are_stored_by_what_they_are() -> None:
    assert storage_of(REGISTRY.by_name("sourcePodUUID")) == (Storage.OCTETS, "16s")
    assert storage_of(REGISTRY.by_name("sourceIPv6Address")) == (Storage.ADDRESS, "16s")
    assert storage_of(REGISTRY.by_name("sourcePodName")) == (Storage.INTERNED, "I")
    assert storage_of(REGISTRY.by_name("mplsTopLabelStackSection"))[0] is Storage.INTERNED
    assert storage_of(REGISTRY.by_name("samplingProbability")) == (Storage.NUMBER, "d")


def test_a_slot_knows_its_merge_rule() -> None:
    assert LAYOUT.slots["octetTotalCount"].rule is MergeRule.MAX
    assert LAYOUT.slots["hidden"].rule is MergeRule.COMPUTED
    assert LAYOUT.offset("tcpState") == 32
