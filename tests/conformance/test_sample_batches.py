"""Sample batches are what the core sends."""

from __future__ import annotations

import pytest

from flowjoin.api import AddressFamily, FlowOrigin
from flowjoin.api.schemas import AGGREGATED_NAMES, PLAIN_NAMES, of_family
from flowjoin.testing import numbered_flows, plain_flows, standard_flow


@pytest.mark.parametrize("family", AddressFamily)
def test_sample_batches_have_the_columns_of_the_core(family: AddressFamily) -> None:
    for batch, origin, names in (
        (standard_flow(family), FlowOrigin.AGGREGATED, AGGREGATED_NAMES),
        (numbered_flows(2, family), FlowOrigin.AGGREGATED, AGGREGATED_NAMES),
        (plain_flows(2, family), FlowOrigin.PLAIN, PLAIN_NAMES),
    ):
        assert batch.schema.origin is origin
        assert batch.schema.names == tuple(of_family(name, family) for name in names)
