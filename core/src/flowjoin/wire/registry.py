"""The elements flowjoin knows without a plugin: IANA's, their reverses, and Antrea's."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.information_element import DataType, ElementId, EnterpriseNumber, InformationElement, MergeRule
from flowjoin.wire import _elements_antrea, _elements_iana

__all__ = ["ANTREA", "IANA", "IANA_REVERSE", "default_registry"]

IANA: Final = EnterpriseNumber(0)
IANA_REVERSE: Final = EnterpriseNumber(29305)  # RFC 5103 section 6.1
ANTREA: Final = EnterpriseNumber(56506)

# RFC 5103 section 6.1: what says something about the flow or the exporter as a whole has no reverse.
NOT_REVERSIBLE: Final = frozenset(
    {
        "biflowDirection",
        "collectorIPv4Address",
        "collectorIPv6Address",
        "collectorTransportPort",
        "commonPropertiesId",
        "exportInterface",
        "exportProtocolVersion",
        "exportTransportProtocol",
        "exportedFlowRecordTotalCount",
        "exportedMessageTotalCount",
        "exportedOctetTotalCount",
        "exporterIPv4Address",
        "exporterIPv6Address",
        "exporterTransportPort",
        "flowId",
        "flowKeyIndicator",
        "ignoredOctetTotalCount",
        "ignoredPacketTotalCount",
        "notSentFlowTotalCount",
        "notSentOctetTotalCount",
        "notSentPacketTotalCount",
        "observationDomainId",
        "observedFlowTotalCount",
        "paddingOctets",
        "templateId",
    }
)


@functools.cache
def default_registry() -> ElementRegistry:
    """The registry every program starts from; made once."""
    iana = tuple(_elements(IANA, _elements_iana.ROWS))
    reverse = (_reverse(element) for element in iana if element.name not in NOT_REVERSIBLE)
    return ElementRegistry((*iana, *reverse, *_elements(ANTREA, _elements_antrea.ROWS)))


def _elements(
    enterprise_number: EnterpriseNumber, rows: tuple[tuple[int, str, str, str, str, int, str], ...]
) -> Iterator[InformationElement]:
    for element_id, name, data_type, semantics, units, length, merge_rule in rows:
        yield InformationElement(
            name=name,
            element_id=ElementId(element_id),
            enterprise_number=enterprise_number,
            data_type=DataType(data_type),
            length=length,
            semantics=semantics,
            units=units,
            merge_rule=MergeRule(merge_rule) if merge_rule else None,
        )


def _reverse(element: InformationElement) -> InformationElement:
    return InformationElement(
        name=f"reverse{element.name[0].upper()}{element.name[1:]}",
        element_id=element.element_id,
        enterprise_number=IANA_REVERSE,
        data_type=element.data_type,
        length=element.length,
        semantics=element.semantics,
        units=element.units,
        merge_rule=element.merge_rule,
    )
