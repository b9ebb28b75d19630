from __future__ import annotations

import pytest

from flowjoin._config.load import load_config
from flowjoin._model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("", "127.0.0.1:10348"),
        ("apiServer: {apiPort: 0}", "127.0.0.1:10348"),
        ("apiServer: {apiPort: 8080}", "127.0.0.1:8080"),
        ("apiServer: {apiPort: 8080, address: '[::1]:9090'}", "[::1]:9090"),
        ("apiServer: {apiPort: 8080, address: none}", "None"),
    ],
)
def test_the_http_servers_address_wins_over_its_port(text: str, endpoint: str) -> None:
    assert str(load_config(text).config.api_server.endpoint) == endpoint


@pytest.mark.parametrize(
    ("text", "is_asked_for"),
    [
        ("", False),
        ("apiServer: {apiPort: 10348}", False),
        ("apiServer: {apiPort: 0}", False),
        ("apiServer: {apiPort: 8080}", True),
        ("apiServer: {address: '127.0.0.1:10348'}", True),
    ],
)
def test_whoever_chose_where_the_http_server_listens_has_asked_for_it(text: str, is_asked_for: bool) -> None:
    assert load_config(text).config.api_server.is_asked_for is is_asked_for


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.9.10:1", "'[::1]:1'", "localhost:1", "none"])
def test_an_http_server_for_this_machine_alone_is_available(address: str) -> None:
    load_config(f"collectors: []\napiServer: {{address: {address}}}\n").require_available()


@pytest.mark.parametrize(
    ("more", "is_available"),
    [
        ("tls: selfSigned, token: {file: /t}", True),
        ("tls: selfSigned, reviewTokens: true", True),
        ("tls: {certificate: /c, key: /k, clientCA: /a}", True),
        ("tls: {certificate: /c, key: /k}", False),
        ("tls: selfSigned", False),
        ("token: {file: /t}", False),
        ("openMetrics: true, tls: selfSigned", False),
    ],
)
def test_others_may_reach_it_with_tls_and_a_way_to_say_who_asks(more: str, is_available: bool) -> None:
    loaded = load_config(f"collectors: []\napiServer: {{address: '[::]:1', {more}}}\n")
    assert (loaded.unavailable is None) == is_available


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "'[::]:1'", "':1'", "192.0.2.1:1", "example.org:1", "'[::ffff:1.2.3.4]:1'"]
)
def test_an_http_server_that_others_reach_is_refused_with_one_sentence(address: str) -> None:
    loaded = load_config(f"collectors: []\napiServer: {{address: {address}}}\n", "f.yaml")
    with pytest.raises(ConfigError, match=r"f\.yaml:2: apiServer\.address: others reach this address, and the HTTP"):
        loaded.require_available()
