from __future__ import annotations

import pytest

from flowjoin._api_server.flow_query import BadQuery, FlowQuery, parse_query
from flowjoin._model.flow_key import FlowFilter, FlowKey


def parsed(text: str) -> FlowQuery:
    return parse_query(text.encode())


@pytest.mark.parametrize(
    ("text", "flow_filter"),
    [
        ("", FlowFilter()),
        ("srcip=&proto=&srcport=", FlowFilter()),
        ("srcip=10.0.0.2&&dstip=10.0.0.1", FlowFilter(source="10.0.0.2", destination="10.0.0.1")),
        ("srcport=8080", FlowFilter(source_port=8080)),
        ("dstport=065535", FlowFilter(destination_port=65535)),
        ("proto=255", FlowFilter(protocol_identifier=255)),
        ("proto=0&srcport=0&dstport=00", FlowFilter()),  # 0 counts as not given
        ("srcip=2001%3Adb8%3A%3A1", FlowFilter(source="2001:db8::1")),
        ("srcport=1&srcport=x", FlowFilter(source_port=1)),
        ("colour=blue&SRCPORT=1", FlowFilter()),
    ],
)
def test_what_is_given_narrows_and_what_is_empty_or_zero_does_not(text: str, flow_filter: FlowFilter) -> None:
    assert parsed(text) == FlowQuery(flow_filter=flow_filter)


def test_all_five_name_one_flow() -> None:
    query = parsed("srcip=10.0.0.1&dstip=10.0.0.2&proto=6&srcport=1&dstport=2")
    assert query.key == FlowKey(
        source="10.0.0.1", destination="10.0.0.2", protocol_identifier=6, source_port=1, destination_port=2
    )


@pytest.mark.parametrize("last", ["", "&dstport=0", "&dstport="])
def test_four_and_a_zero_name_no_single_flow(last: str) -> None:
    assert parsed(f"srcip=10.0.0.1&dstip=10.0.0.2&proto=6&srcport=1{last}").key is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("proto=tcp", 'Error when parsing protocol: "tcp" is not a decimal number'),
        ("srcport=tcp-port", 'Error when parsing source port: "tcp-port" is not a decimal number'),
        ("dstport=tcp-port", 'Error when parsing destination port: "tcp-port" is not a decimal number'),
        ("proto=256", 'Error when parsing protocol: "256" is not from 0 to 255'),
        ("srcport=65536", 'Error when parsing source port: "65536" is not from 0 to 65535'),
        ("srcport=-1", 'Error when parsing source port: "-1" is not a decimal number'),
        ("srcport=%2B1", 'Error when parsing source port: "+1" is not a decimal number'),
        ("dstport=%D9%A1", "Error when parsing destination port:"),  # a digit, of another script
        ("dstport=" + "9" * 5000, f'Error when parsing destination port: "{"9" * 50}" is not from 0 to 65535'),
        ("&".join(f"a{number}=1" for number in range(65)), "Error when parsing query: more than 64 parameters"),
    ],
)
def test_a_number_that_is_none_is_named(text: str, problem: str) -> None:
    with pytest.raises(BadQuery) as caught:
        parsed(text)
    assert str(caught.value).startswith(problem)


def test_any_octets_are_a_query_or_a_bad_one() -> None:
    for octet in range(256):
        assert parse_query(b"x=" + bytes([octet])).key is None
