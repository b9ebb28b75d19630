"""A batch becomes one Native block with the same values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_block import read_block

from flowjoin.api import AddressFamily, FlowBatch
from flowjoin.testing.batches import every_data_type, hostile_flows, numbered_flows, plain_flows, standard_flow
from flowjoin_clickhouse._columns import insert_columns
from flowjoin_clickhouse._encode import encode


def block(batch: FlowBatch, columns: Sequence[str], *, unset_addresses_empty: bool = True) -> bytes:
    pieces = encode(batch, columns, cluster_uuid="a-uuid", unset_addresses_empty=unset_addresses_empty)
    return b"".join(octets for column in pieces for octets in column)


@pytest.mark.parametrize("compatibility", ["antrea-2.3", "antrea-2.7"])
@pytest.mark.parametrize(
    "batch", [numbered_flows(300), hostile_flows(), plain_flows(4)], ids=["joined", "hostile", "plain"]
)
def test_each_column_has_each_rows_value(batch: FlowBatch, compatibility: str) -> None:
    columns = insert_columns(compatibility)
    found = read_block(block(batch, columns))
    assert tuple(found) == columns
    for name in columns:
        kind, values = found[name]
        if name == "clusterUUID":
            assert values == [b"a-uuid"] * len(batch)
        elif name == "destinationClusterIP":
            expected = ["" if text == "0.0.0.0" else text for text in batch.address_text("destinationCluster")]
            assert [value.decode() for value in values] == expected
        elif name in ("sourceIP", "destinationIP"):
            assert [value.decode() for value in values] == list(batch.column(name.replace("IP", "IPv4Address")))
        elif kind == "String":
            assert [value.decode() for value in values] == list(batch.column(name))
        else:
            assert values == list(batch.column(name)), name


def test_every_abstract_data_type_has_a_form() -> None:
    batch = every_data_type()
    names = [name for name in batch.schema.names if name.startswith("example")]
    found = read_block(block(batch, names))
    for name in names:
        kind, values = found[name]
        expected = list(batch.column(name))
        if kind == "String":
            assert values == [value if isinstance(value, bytes) else str(value).encode() for value in expected]
        elif kind == "IPv6":
            assert values[0] == "::"
            assert values[1] in ("::ffff:192.0.2.1", "::ffff:c000:201")
        elif kind.startswith("DateTime64"):
            assert [value % 2**64 for value in values] == expected
        elif kind.startswith("Float"):
            assert [value if math.isfinite(value) else str(value) for value in values] == [
                value if math.isfinite(value) else str(value) for value in expected if isinstance(value, float)
            ]
        else:
            assert values == expected, name


@pytest.mark.parametrize(("family", "unset"), [(AddressFamily.IPV4, b"0.0.0.0"), (AddressFamily.IPV6, b"::")])
def test_an_unset_cluster_address_is_as_the_release_writes_it(family: AddressFamily, unset: bytes) -> None:
    address = {f"destinationClusterIPv{family.value}": unset.decode()}
    batch = standard_flow(family, **address)
    for empty, expected in ((True, b""), (False, unset)):
        found = read_block(block(batch, ["destinationClusterIP"], unset_addresses_empty=empty))
        assert found["destinationClusterIP"][1] == [expected]


@given(st.lists(st.text(), min_size=1, max_size=20))
def test_any_texts_come_back(texts: list[str]) -> None:
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    batch = FlowBatch.from_columns(numbered_flows(0).schema, {"sourcePodName": clean})
    values = read_block(block(batch, ["sourcePodName"]))["sourcePodName"][1]
    assert [value.decode() for value in values] == clean
