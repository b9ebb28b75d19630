from __future__ import annotations

import pytest

from flowjoin._generator.config import TrafficConfig
from flowjoin._generator.records import AGENT_ELEMENTS, AgentRecords, observation_domain_of
from flowjoin._generator.traffic import Traffic
from flowjoin._model.flow_schema import AddressFamily
from flowjoin.wire import default_registry


@pytest.mark.parametrize(
    ("name", "domain"),
    # Vectors of FNV-1, 32 bits, from the algorithm's own test suite.
    [("", 0x811C9DC5), ("a", 0x050C5D7E), ("foobar", 0x31F0B262)],
)
def test_the_observation_domain_is_fnv_1_of_the_nodes_name(name, domain):
    assert observation_domain_of(name) == domain


def test_the_templates_are_256_for_ipv4_and_257_for_ipv6_with_43_elements():
    templates = AgentRecords(default_registry()).templates
    assert [(family, template.template_id, len(template.fields)) for family, template in templates.items()] == [
        (AddressFamily.IPV4, 256, 43),
        (AddressFamily.IPV6, 257, 43),
    ]
    # With every string empty, as the shortest record is.
    assert templates[AddressFamily.IPV4].minimum_record_length == 124
    assert templates[AddressFamily.IPV6].minimum_record_length == 184


def test_deltas_are_what_came_since_the_record_before():
    maker = AgentRecords(default_registry())
    for flow in Traffic(TrafficConfig(flows=50, updates=2), ends_at=1_700_000_000):
        for half in flow.halves:
            records = [dict(zip(AGENT_ELEMENTS, maker.record(flow, half, n), strict=True)) for n in range(3)]
            for kind in ("packet", "octet"):
                assert sum(record[f"{kind}DeltaCount"] for record in records) == records[-1][f"{kind}TotalCount"]
                reverse = kind.capitalize()
                assert (
                    sum(record[f"reverse{reverse}DeltaCount"] for record in records)
                    == records[-1][f"reverse{reverse}TotalCount"]
                )
