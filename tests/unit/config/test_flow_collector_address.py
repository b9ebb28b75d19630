from __future__ import annotations

import pytest

from flowjoin._config.flow_collector_address import FlowCollectorAddress, parse_flow_collector_address


def parse(text: str) -> FlowCollectorAddress:
    return parse_flow_collector_address(text, 4739, "tcp", protocols=("tcp", "udp"))


INVALID = "flow collector address is given in invalid format"

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
        (":abbbsctp::", f'{INVALID}: ":abbbsctp::" has too many colons; write host:4739:tcp'),
        ("::1", f'{INVALID}: "::1" needs brackets around the IPv6 address; write [::1]:4739:tcp'),
        (
            "fe80::1:2:3",
            f'{INVALID}: "fe80::1:2:3" needs brackets around the IPv6 address; write [fe80::1:2:3]:4739:tcp',
        ),
        ("", f"{INVALID}: the host is missing; write host:4739:tcp"),
        ("x[::1]:80", f'{INVALID}: "x[::1]:80" has something before the bracket; write host:4739:tcp'),
        ("[collect:or]:80", f'{INVALID}: "collect:or" in brackets is no IPv6 address'),
        ("collec tor:80", f'{INVALID}: "collec tor" is neither an address nor a host name; write host:4739:tcp'),
        ("tcp://collector:80", f'{INVALID}: "tcp://collector:80" is a URL; write host:4739:tcp'),
        (
            "1.2.3.4:80:sctp",
            "connection over sctp transport proto is not supported; write tcp or udp, as in host:4739:tcp",
        ),
        ("h:80:quic", "connection over quic transport proto is not supported; write tcp or udp, as in host:4739:tcp"),
        ("h:4739:tpc", 'connection over tpc transport proto is not supported; did you mean "tcp"?'),
        ("h:80:", "connection over  transport proto is not supported; write tcp or udp, as in host:4739:tcp"),
        ("h:80:TCP", 'connection over TCP transport proto is not supported; did you mean "tcp"?'),
        ("h:str:tcp", 'invalid port str: strconv.Atoi: parsing "str": invalid syntax; write host:4739:tcp'),
        ("collector:", 'invalid port : strconv.Atoi: parsing "": invalid syntax; write host:4739:tcp'),
        ("h:+-5:tcp", 'invalid port +-5: strconv.Atoi: parsing "+-5": invalid syntax; write host:4739:tcp'),
        ("collector:78900:tcp", "port 78900 is out of range, valid range is 1-65535"),
        ("collector:0", "port 0 is out of range, valid range is 1-65535"),
        ("collector:-1", "port -1 is out of range, valid range is 1-65535"),
    ],
)
def test_what_is_no_address_is_refused_in_antreas_words_and_with_what_would_be_right(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("text", ["me:hunter2@h:4739", "tcp://me:hunter2@h", "me:hunter2@h", "me:hunter2@h:4739:tcp"])
def test_no_error_repeats_what_may_be_a_password(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert str(caught.value) == f"{INVALID}: an address has no user and no password; write host:4739:tcp"


def test_host_and_port_are_joined_with_brackets_around_ipv6_only() -> None:
    assert [str(parse(text)) for text in ("[::1]:80", "1.2.3.4:80")] == ["[::1]:80", "1.2.3.4:80"]
