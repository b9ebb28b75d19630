from __future__ import annotations

import pytest

from flowjoin._config.flow_collector_address import FlowCollectorAddress, parse_flow_collector_address


def parse(text: str) -> FlowCollectorAddress:
    return parse_flow_collector_address(text, 4739, "tcp")


LONG = "fe80:ffff:ffff:ffff:ffff:ffff:ffff:ffff"


@pytest.mark.parametrize(
    ("text", "host", "port", "protocol"),
    [
        ("1.2.3.4:80:udp", "1.2.3.4", 80, "udp"),
        ("1.2.3.4:80", "1.2.3.4", 80, "tcp"),
        ("1.2.3.4", "1.2.3.4", 4739, "tcp"),
        (f"[{LONG}]:80:tcp", LONG, 80, "tcp"),
        ("[::1]:80", "::1", 80, "tcp"),
        ("[::1]::udp", "::1", 4739, "udp"),
        ("[::1]", "::1", 4739, "tcp"),
        ("flow-aggregator/flow-aggregator::tcp", "flow-aggregator/flow-aggregator", 4739, "tcp"),
        ("flow-aggregator/flow-aggregator:14739:grpc", "flow-aggregator/flow-aggregator", 14739, "grpc"),
        ("collector:65535:tls", "collector", 65535, "tls"),
    ],
)
def test_the_parts_that_are_given_win_over_the_defaults(text: str, host: str, port: int, protocol: str) -> None:
    assert parse(text) == FlowCollectorAddress(host=host, port=port, protocol=protocol)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (":abbbsctp::", "flow collector address is given in invalid format"),
        ("::1", "connection over 1 transport proto is not supported"),
        ("fe80::1:2:3", "flow collector address is given in invalid format"),
        ("", "flow collector address is given in invalid format: the host is missing"),
        ("x[::1]:80", "flow collector address is given in invalid format"),
        ("1.2.3.4:80:sctp", "connection over sctp transport proto is not supported"),
        ("1.2.3.4:80:", "connection over  transport proto is not supported"),
        ("1.2.3.4:80:TCP", "connection over TCP transport proto is not supported"),
        ("collector:str:tcp", 'invalid port str: strconv.Atoi: parsing "str": invalid syntax'),
        ("collector:", 'invalid port : strconv.Atoi: parsing "": invalid syntax'),
        ("collector:+-5:tcp", 'invalid port +-5: strconv.Atoi: parsing "+-5": invalid syntax'),
        ("collector:78900:tcp", "port 78900 is out of range, valid range is 1-65535"),
        ("collector:0", "port 0 is out of range, valid range is 1-65535"),
        ("collector:-1", "port -1 is out of range, valid range is 1-65535"),
    ],
)
def test_what_is_no_address_is_refused_in_antreas_words(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert str(caught.value) == sentence


def test_host_and_port_are_joined_with_brackets_around_ipv6_only() -> None:
    assert [str(parse(text)) for text in ("[::1]:80", "1.2.3.4:80")] == ["[::1]:80", "1.2.3.4:80"]
