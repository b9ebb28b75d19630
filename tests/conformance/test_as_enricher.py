"""The enricher that the guide shows passes the kit. docs/how-to/write-an-enricher.md shows this too."""

import pytest
from as_enricher import Config, flowjoin_enricher_types

from flowjoin.api import EnricherType
from flowjoin.testing import EnricherConformance, EnricherExample, standard_flow


class TestAsNumbers(EnricherConformance):
    @pytest.fixture
    def enricher_type(self) -> EnricherType:
        return flowjoin_enricher_types()[0]

    @pytest.fixture
    def config(self) -> Config:
        return Config(networks={"192.0.2.0/24": 64496, "192.0.2.128/25": 64497})

    @pytest.fixture
    def example(self) -> EnricherExample:
        batch = standard_flow(sourceIPv4Address="192.0.2.1", destinationIPv4Address="192.0.2.200")
        return EnricherExample(batch=batch, columns={"bgpSourceAsNumber": [64496], "bgpDestinationAsNumber": [64497]})

    @pytest.mark.xfail(strict=True, reason="it is shown in a guide, and in no distribution")
    async def test_entry_point(self, subject):
        await super().test_entry_point(subject)
