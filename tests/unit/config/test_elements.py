from __future__ import annotations

import pytest

from flowjoin._config.load import load_config, resolve_elements
from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import ConfigError
from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, MergeRule

AS_NUMBER = InformationElement(name="bgpSourceAsNumber", element_id=ElementId(16), data_type=DataType.UNSIGNED32)
REGISTRY = ElementRegistry([AS_NUMBER])


def resolve(elements: str) -> tuple[InformationElement, ...]:
    return resolve_elements(load_config(f"recordContents: {{elements: {elements}}}", "f"), REGISTRY)


def test_names_are_looked_up_and_definitions_made_in_order() -> None:
    tenant = InformationElement(
        name="tenant",
        element_id=ElementId(7),
        enterprise_number=EnterpriseNumber(32473),
        data_type=DataType.STRING,
        merge_rule=MergeRule.FILL,
    )
    assert resolve("[{name: tenant, id: 7, type: string, mergeRule: fill}, bgpSourceAsNumber]") == (tenant, AS_NUMBER)


@pytest.mark.parametrize(
    ("elements", "sentence"),
    [
        (
            "[bgpSourceAsNumbr]",
            'f:1: recordContents.elements[0]: no element is named "bgpSourceAsNumbr"; '
            'did you mean "bgpSourceAsNumber"?',
        ),
        ("[tenant]", 'f:1: recordContents.elements[0]: no element is named "tenant"; define it with name, id and type'),
        (
            "[{name: bgpSourceAsNumber, id: 7, type: string}]",
            'f:1: recordContents.elements[0]: "bgpSourceAsNumber" (32473/7) is registered already; '
            "write its name alone",
        ),
        (
            "[{name: other, id: 16, enterprise: 0, type: string}]",
            'f:1: recordContents.elements[0]: "other" (0/16) is registered already; write its name alone',
        ),
        (
            "[bgpSourceAsNumber, bgpSourceAsNumber]",
            'f:1: recordContents.elements: "bgpSourceAsNumber" is given 2 times; once is enough',
        ),
        (
            "[{name: a, id: 7, type: string}, {name: b, id: 7, type: string}]",
            "f:1: recordContents.elements: the number 32473/7 is given to 2 elements; give each its own",
        ),
    ],
)
def test_an_element_that_cannot_be_is_named_with_its_place(elements: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(elements)
    assert str(caught.value) == sentence
