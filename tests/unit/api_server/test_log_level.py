from __future__ import annotations

import pytest
from api_fakes import FakeFigures

from flowjoin._api_server.log_level import log_level_reply


def test_without_a_parameter_the_verbosity_is_a_json_number_and_the_head_has_the_name() -> None:
    reply = log_level_reply(FakeFigures(), "GET", b"", {})
    assert (reply.status, reply.body, reply.content_type) == (200, b"0\n", "application/json")
    assert reply.headers == (("flowjoin-log-level", "info"),)


@pytest.mark.parametrize(
    ("text", "level", "verbosity"),
    [
        ("0", "info", 0),
        ("3", "info", 3),
        ("4", "debug", 4),
        ("10", "debug", 10),
        ("debug", "debug", 4),
        ("warning", "warning", 0),
        ("error", "error", 0),
    ],
)
def test_a_number_or_a_name_changes_the_level_and_gets_an_empty_body(text: str, level: str, verbosity: int) -> None:
    figures = FakeFigures()
    reply = log_level_reply(figures, "GET", b"level=" + text.encode(), {})
    assert (reply.status, reply.body) == (200, b"")
    assert figures.log_level == (level, verbosity)
    assert log_level_reply(figures, "GET", b"", {}).body == f"{verbosity}\n".encode()


@pytest.mark.parametrize("text", ["", "-1", "1.5", "loud", "Debug", "%C2%B2", "9999999999", " 1"])
def test_anything_else_is_400_in_antreas_words_and_changes_nothing(text: str) -> None:
    figures = FakeFigures()
    reply = log_level_reply(figures, "GET", b"level=" + text.encode(), {})
    assert reply.status == 400
    assert reply.body.startswith(b"log level must be a positive integer")
    assert len(figures.levels) == 1


def test_head_changes_nothing() -> None:
    figures = FakeFigures()
    assert log_level_reply(figures, "HEAD", b"level=4", {}).status == 200
    assert len(figures.levels) == 1


@pytest.mark.parametrize(("site", "status"), [(b"cross-site", 403), (b"same-site", 403), (b"none", 200)])
def test_a_page_of_another_site_changes_nothing(site: bytes, status: int) -> None:
    figures = FakeFigures()
    assert log_level_reply(figures, "GET", b"level=4", {b"sec-fetch-site": site}).status == status
    assert (len(figures.levels) == 1) == (status == 403)
