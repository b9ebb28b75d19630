from __future__ import annotations

import pytest

from flowjoin._config.load import load_config


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("", "127.0.0.1:10348"),
        ("apiServer: {apiPort: 0}", "127.0.0.1:10348"),
        ("apiServer: {apiPort: 8080}", "127.0.0.1:8080"),
        ("apiServer: {apiPort: 8080, address: '[::1]:9090'}", "[::1]:9090"),
    ],
)
def test_the_http_servers_address_wins_over_its_port(text: str, endpoint: str) -> None:
    assert str(load_config(text).config.api_server.endpoint) == endpoint
