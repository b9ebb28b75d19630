from __future__ import annotations

import pytest

from flowjoin._kernel.flow_keys import KeyFilter, aggregated_key, key_of, plain_key
from flowjoin._kernel.original_exporters import exporter_key, packed_pair
from flowjoin._model.flow_key import FlowFilter, FlowKey

V4 = aggregated_key(b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02", 1234, 5678, 6)
V6 = aggregated_key(b"\x20\x01" + bytes(13) + b"\x01", b"\x20\x01" + bytes(13) + b"\x02", 1, 2, 17)


def test_a_key_is_the_5_tuple_in_network_order() -> None:
    assert bytes.fromhex("0a000001 0a000002 04d2 162e 06") == V4
    assert (len(V4), len(V6)) == (13, 37)


def test_a_question_names_the_same_octets() -> None:
    assert (
        key_of(
            FlowKey(
                source="10.0.0.1",
                destination="10.0.0.2",
                protocol_identifier=6,
                source_port=1234,
                destination_port=5678,
            )
        )
        == V4
    )
    assert (
        key_of(
            FlowKey(
                source="2001:0::1", destination="2001::2", protocol_identifier=17, source_port=1, destination_port=2
            )
        )
        == V6
    )
    plain = FlowKey(
        source="10.0.0.1",
        destination="10.0.0.2",
        protocol_identifier=6,
        source_port=1234,
        destination_port=5678,
        original_exporter="192.0.2.9",
        observation_domain_id=3,
        ingress_interface=4,
        icmp_type_code=5,
    )
    assert key_of(plain) == plain_key(V4, exporter_key(*packed_pair("192.0.2.9")), 3, 4, 5)
    assert len(key_of(plain) or b"") == 39


@pytest.mark.parametrize(
    "question",
    [
        FlowKey(source="", destination="10.0.0.2", protocol_identifier=6),
        FlowKey(source="10.0.0.1", destination="10.0.0.2", protocol_identifier=256),
        FlowKey(source="10.0.0.1", destination="10.0.0.2", protocol_identifier=6, original_exporter="host"),
    ],
)
def test_what_no_flow_can_have_is_no_key(question: FlowKey) -> None:
    assert key_of(question) is None


@pytest.mark.parametrize("key", [V4, plain_key(V4, bytes(16), 0, 0, 0)])
def test_a_filter_matches_if_all_its_parts_do(key: bytes) -> None:
    assert KeyFilter(FlowFilter()).matches(key)
    assert KeyFilter(FlowFilter(source="10.0.0.1", destination="10.0.0.2")).matches(key)
    assert KeyFilter(FlowFilter(protocol_identifier=6, source_port=1234, destination_port=5678)).matches(key)
    for other in (
        FlowFilter(source="10.0.0.2"),
        FlowFilter(destination="::"),
        FlowFilter(source="no address"),
        FlowFilter(source=""),
        FlowFilter(protocol_identifier=17),
        FlowFilter(source_port=1),
        FlowFilter(destination_port=0),
    ):
        assert not KeyFilter(other).matches(key)


def test_an_exporter_has_one_key_in_either_family() -> None:
    assert packed_pair("192.0.2.1") == packed_pair("::ffff:192.0.2.1") == (bytes([192, 0, 2, 1]), bytes(16))
    assert exporter_key(*packed_pair("192.0.2.1")) == bytes(10) + b"\xff\xff" + bytes([192, 0, 2, 1])
    assert exporter_key(*packed_pair("")) == bytes(16)
    assert exporter_key(*packed_pair("2001:db8::1"))[:4] == b"\x20\x01\x0d\xb8"
