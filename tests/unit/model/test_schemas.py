from __future__ import annotations

import pytest

from flowjoin._model.errors import ConfigError
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin
from flowjoin._model.schemas import AGGREGATED_NAMES, PROXY_NAMES, build_schemas, of_family
from flowjoin.wire import default_registry

REGISTRY = default_registry()
SCHEMAS = build_schemas(REGISTRY)
# what Antrea's own lists do not have
HTTP = {"appProtocolName", "httpVals"}


def test_aggregated_columns_are_antreas_with_names_and_uids_and_http() -> None:
    names = [name for name in AGGREGATED_NAMES if name not in HTTP]
    assert len(names) == 79
    assert names[:3] == ["flowStartSeconds", "flowEndSeconds", "flowEndReason"]
    assert names[51] == "destinationServiceIPv4"
    assert names[52:55] == [
        "octetDeltaCountFromSourceNode",
        "octetDeltaCountFromDestinationNode",
        "octetTotalCountFromSourceNode",
    ]
    assert names[-3:] == ["sourcePodLabels", "destinationPodLabels", "clusterId"]
    at = AGGREGATED_NAMES.index("egressNodeName")
    assert AGGREGATED_NAMES[at + 1 : at + 3] == ("appProtocolName", "httpVals")


def test_template_sizes_are_those_of_antrea() -> None:
    schema = SCHEMAS[FlowOrigin.AGGREGATED, AddressFamily.IPV4]
    elements = [element for element in schema.elements if element.name not in HTTP]
    assert 24 + sum(8 if element.enterprise_number else 4 for element in elements) == 608
    least = sum(1 if element.length == 65535 else element.length for element in elements)
    assert least == 455
    elements = [e for e in SCHEMAS[FlowOrigin.AGGREGATED, AddressFamily.IPV6].elements if e.name not in HTTP]
    assert sum(1 if element.length == 65535 else element.length for element in elements) == 515


def test_proxy_columns_end_with_the_origin_and_the_direction() -> None:
    assert PROXY_NAMES[-5:] == (
        "clusterId",
        "originalObservationDomainId",
        "originalExporterIPv4Address",
        "originalExporterIPv6Address",
        "flowDirection",
    )
    # names alone, as Antrea's Proxy mode has them
    assert len([name for name in PROXY_NAMES if not name.endswith("UUID") and name not in HTTP]) == 50


@pytest.mark.parametrize("origin", FlowOrigin)
def test_a_schema_has_the_addresses_of_its_family_alone(origin: FlowOrigin) -> None:
    for family, other in ((AddressFamily.IPV4, "IPv6"), (AddressFamily.IPV6, "IPv4")):
        names = SCHEMAS[origin, family].names
        assert not [name for name in names if other in name and not name.startswith("originalExporter")]
        assert f"sourceIPv{family.value}Address" in names


def test_the_original_exporter_is_told_in_both_families() -> None:
    for family in AddressFamily:
        names = SCHEMAS[FlowOrigin.PLAIN, family].names
        assert {"originalExporterIPv4Address", "originalExporterIPv6Address"} <= set(names)


def test_extra_elements_are_columns_of_every_schema_once() -> None:
    schemas = build_schemas(
        REGISTRY, extra=["bgpSourceAsNumber", "vlanId", "vlanId", "sourceIPv6Address", "sourcePodName"]
    )
    aggregated = schemas[FlowOrigin.AGGREGATED, AddressFamily.IPV4]
    assert aggregated.names == (*AGGREGATED_NAMES, "bgpSourceAsNumber", "vlanId")
    plain = schemas[FlowOrigin.PLAIN, AddressFamily.IPV4]
    assert plain.names == (*SCHEMAS[FlowOrigin.PLAIN, AddressFamily.IPV4].names, "sourcePodName")


def test_an_element_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="noSuchElement"):
        build_schemas(REGISTRY, extra=["noSuchElement"])


def test_a_twin_has_the_other_familys_name() -> None:
    assert of_family("icmpTypeCodeIPv4", AddressFamily.IPV6) == "icmpTypeCodeIPv6"
    assert of_family("originalExporterIPv4Address", AddressFamily.IPV6) == "originalExporterIPv4Address"
    assert of_family("tcpState", AddressFamily.IPV6) == "tcpState"
