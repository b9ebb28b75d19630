from __future__ import annotations

import pytest

from flowjoin._config.endpoint import Endpoint


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("[::]:4739", "::", 4739),
        (":4739", "::", 4739),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("localhost:65535", "localhost", 65535),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
    ],
)
def test_host_and_port_are_read(text: str, host: str, port: int) -> None:
    assert Endpoint.from_text(text) == Endpoint(host=host, port=port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4739",
        "host",
        "host:",
        "host:x",
        "host:65536",
        "host:-1",
        "host:٣",
        "::1",
        "[::1",
        "[host]:1",
        "a b:1",
        "a/b:1",
        "host:0000004739",
        "x" * 254 + ":1",
        "host:" + "1" * 5000,
    ],
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Endpoint.from_text(text)


def test_a_port_that_is_too_great_is_named() -> None:
    with pytest.raises(ValueError, match=r'^"\[::\]:99999" has the port 99999; a port is from 0 to 65535$'):
        Endpoint.from_text("[::]:99999")


@pytest.mark.parametrize("text", ["me:hunter2@h:80", "https://me:hunter2@h:80", "me:hunter2@[::1]"])
def test_no_error_repeats_what_may_be_a_password(text: str) -> None:
    with pytest.raises(ValueError, match=r'^an address has no user and no password; write text such as "'):
        Endpoint.from_text(text)


def test_an_endpoint_prints_as_it_is_written() -> None:
    assert [str(Endpoint.from_text(text)) for text in ("[::]:4739", "h:1")] == ["[::]:4739", "h:1"]
