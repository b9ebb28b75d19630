"""Every form of ``databaseURL`` is understood, and what leads nowhere is refused in Antrea's words."""

from __future__ import annotations

import pytest

from flowjoin.api import ConfigError
from flowjoin_clickhouse import ClickHouseConfig
from flowjoin_clickhouse._url import EmbeddedDestination, HttpDestination, parse_database_url


@pytest.mark.parametrize(
    ("url", "place", "warns_of_port"),
    [
        ("tcp://127.0.0.1:9000", "http://127.0.0.1:8123", False),
        ("tcp://clickhouse-clickhouse.flow-visibility.svc:9000", None, False),
        ("tcp://ch.example", "http://ch.example:8123", False),
        ("tcp://127.0.0.1:19000", "http://127.0.0.1:8123", True),
        ("tls://127.0.0.1:9440", "https://127.0.0.1:8443", False),
        ("tls://127.0.0.1:9000", "https://127.0.0.1:8443", True),
        ("tcp://[2001:db8::1]:9000", "http://[2001:db8::1]:8123", False),
    ],
)
def test_a_native_url_leads_to_the_http_interface_with_one_warning(
    url: str, place: str | None, warns_of_port: bool
) -> None:
    destination = parse_database_url(url)
    assert isinstance(destination, HttpDestination)
    assert str(destination) == (place or "http://clickhouse-clickhouse.flow-visibility.svc:8123")
    assert destination.warning.startswith(f"{url} names ClickHouse's native protocol; rows go to its HTTP interface")
    assert ("httpPort" in destination.warning) == warns_of_port


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("https://127.0.0.1:9000", "https://127.0.0.1:9000"),
        ("http://ch.example", "http://ch.example:8123"),
        ("https://ch.example", "https://ch.example:8443"),
    ],
)
def test_an_http_url_is_taken_as_it_is(url: str, place: str) -> None:
    destination = parse_database_url(url)
    assert (str(destination), getattr(destination, "warning", None)) == (place, "")


def test_http_port_names_the_port_of_a_native_url_and_nothing_is_left_to_say_of_it() -> None:
    destination = parse_database_url("tcp://127.0.0.1:19000", 18123)
    assert str(destination) == "http://127.0.0.1:18123"
    assert isinstance(destination, HttpDestination)
    assert "httpPort" not in destination.warning


@pytest.mark.parametrize(
    ("url", "path"), [("chdb:///var/lib/flows", "/var/lib/flows"), ("chdb://memory", None), ("chdb://memory/", None)]
)
def test_chdb_is_the_engine_inside(url: str, path: str | None) -> None:
    assert parse_database_url(url) == EmbeddedDestination(path=path)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("abc://127.0.0.1:9000", "connection over abc transport protocol is not supported"),
        ("127.0.0.1:9000", "failed to parse ClickHouse database URL"),
        ("", "failed to parse ClickHouse database URL"),
        ("tcp://", "failed to parse ClickHouse database URL"),
        ("tcp://h:99999", "failed to parse ClickHouse database URL"),
        ("tcp://[::1", "failed to parse ClickHouse database URL"),
        (
            "tcp://127.0.0.1:9000/path",
            "invalid ClickHouse database URL 'tcp://127.0.0.1:9000/path': path, query string",
        ),
        ("tcp://127.0.0.1:9000?key=value", "path, query string or user info should not be set"),
        ("chdb://", "chdb:///PATH"),
        ("chdb:///", "chdb:///PATH"),
        ("chdb://relative/path", "chdb:///PATH"),
    ],
)
def test_what_leads_nowhere_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("?", r"\?")) as caught:
        ClickHouseConfig(database_url=url)
    assert caught.value.path == "databaseURL"


def test_user_info_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match=r"invalid ClickHouse database URL 'tcp://\*\*\*@127\.0") as caught:
        parse_database_url("tcp://user:hunter2@127.0.0.1:9000")
    assert "hunter2" not in str(caught.value)


def test_only_the_embedded_engine_makes_its_schema_unasked() -> None:
    assert ClickHouseConfig(database_url="chdb://memory").may_create
    assert not ClickHouseConfig(database_url="tcp://h:9000").may_create
    assert ClickHouseConfig(database_url="tcp://h:9000", create_schema=True).may_create
    assert not ClickHouseConfig(database_url="chdb://memory", create_schema=False).may_create
