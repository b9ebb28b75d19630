import pytest

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.information_element import (
    VARIABLE_LENGTH,
    DataType,
    ElementId,
    EnterpriseNumber,
    InformationElement,
)


def element(name: str, element_id: int) -> InformationElement:
    return InformationElement(
        name=name,
        element_id=ElementId(element_id),
        enterprise_number=EnterpriseNumber(32473),
        data_type=DataType.STRING,
    )


RACK = element("rack", 1)


def test_an_element_is_found_by_name_and_by_number():
    registry = ElementRegistry([RACK])
    assert registry.by_name("rack") is registry.get(32473, 1) is RACK
    assert (list(registry), len(registry)) == ([RACK], 1)


def test_what_is_not_there_is_a_key_error_by_name_and_none_by_number():
    registry = ElementRegistry([RACK])
    assert registry.get(0, 1) is None
    with pytest.raises(KeyError, match="row"):
        registry.by_name("row")


def test_an_extended_registry_has_more_and_leaves_the_first_as_it_was():
    registry = ElementRegistry([RACK])
    assert len(registry.extended([element("row", 2)])) == 2
    assert len(registry) == 1


@pytest.mark.parametrize("taken", [element("rack", 2), element("row", 1)])
def test_a_name_or_a_number_cannot_be_taken_twice(taken):
    with pytest.raises(ValueError, match="meets another of the same"):
        ElementRegistry([RACK]).extended([taken])


def test_an_unknown_element_is_octets_named_by_its_numbers():
    unknown = ElementRegistry.unknown(9, 4242, 3)
    assert (unknown.name, unknown.data_type, unknown.length) == ("9/4242", DataType.OCTET_ARRAY, 3)
    assert unknown.default == bytes(3)
    assert ElementRegistry.unknown(9, 1).length == ElementRegistry.unknown(9, 1, 0).length == VARIABLE_LENGTH
