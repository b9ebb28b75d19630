"""Schemas, and values of every data type, for the tests of batches."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from flowjoin._model.address_text import ipv4_text, ipv6_text, mac_text
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema
from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, Value
from flowjoin.wire.registry import default_registry

UUID = InformationElement(
    name="aUUID",
    element_id=ElementId(1),
    enterprise_number=EnterpriseNumber(32473),
    data_type=DataType.OCTET_ARRAY,
    length=16,
)
OF_EACH_TYPE = (
    *(
        InformationElement(
            name=f"a{data_type.value[0].upper()}{data_type.value[1:]}",
            element_id=ElementId(number),
            enterprise_number=EnterpriseNumber(32473),
            data_type=data_type,
        )
        for number, data_type in enumerate(DataType, 2)
    ),
    UUID,
)
REGISTRY = default_registry().extended(OF_EACH_TYPE)


def schema_of(
    *names: str, family: AddressFamily = AddressFamily.IPV4, registry: ElementRegistry = REGISTRY
) -> FlowSchema:
    return FlowSchema(
        origin=FlowOrigin.PLAIN,
        family=family,
        elements=tuple(registry.by_name(name) for name in names),
        registry=registry,
    )


WIDE = schema_of(*(element.name for element in OF_EACH_TYPE))


def _float32(value: float) -> float:
    packed: float = struct.unpack("f", struct.pack("f", value))[0]
    return packed


def values_of(element: InformationElement) -> st.SearchStrategy[Any]:
    data_type = element.data_type
    bits = element.length * 8
    if data_type.value.startswith(("unsigned", "dateTime")):
        return st.integers(0, 2**bits - 1)
    if data_type.value.startswith("signed"):
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if element is UUID:
        return st.binary(min_size=16, max_size=16)
    simple: dict[DataType, st.SearchStrategy[Any]] = {
        DataType.FLOAT32: st.floats(width=32).map(_float32),
        DataType.FLOAT64: st.floats(),
        DataType.BOOLEAN: st.booleans(),
        DataType.STRING: st.text(max_size=5),
        DataType.IPV4_ADDRESS: st.binary(min_size=4, max_size=4).map(ipv4_text),
        DataType.IPV6_ADDRESS: st.binary(min_size=16, max_size=16).map(ipv6_text),
        DataType.MAC_ADDRESS: st.binary(min_size=6, max_size=6).map(mac_text),
    }
    return simple.get(data_type, st.binary(max_size=5))


ROWS: st.SearchStrategy[list[tuple[Value, ...]]] = st.lists(
    st.tuples(*(values_of(element) for element in WIDE.elements)), max_size=8
)
