"""The look-up that the guide shows passes the kit. docs/how-to/write-an-enricher.md shows this too."""

import pytest
from pods_lookup import Config, flowjoin_lookup_types

from flowjoin.api import LookupType, Pod
from flowjoin.testing import LookupConformance, LookupExample


class TestPods(LookupConformance):
    @pytest.fixture
    def lookup_type(self) -> LookupType:
        return flowjoin_lookup_types()[0]

    @pytest.fixture
    def config(self) -> Config:
        return Config(pods={"10.10.0.5": "web-1"})

    @pytest.fixture
    def examples(self) -> list[LookupExample]:
        return [LookupExample(method="pod", arguments=("10.10.0.5",), answer=Pod(namespace="default", name="web-1"))]

    @pytest.mark.xfail(strict=True, reason="it is shown in a guide, and in no distribution")
    async def test_entry_point(self, subject):
        await super().test_entry_point(subject)
