"""/loglevel: asks for the log's level and changes it, with numbers as Antrea has them, and names; pure.

Antrea's number is a verbosity: 0 tells what operators read, 4 and more what developers do. Here they are ``info`` and
``debug``; ``warning`` and ``error`` are below what a number can say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import parse_qs

from flowjoin._api_server.figures import Figures, LogLevel
from flowjoin._api_server.replies import JSON, Reply, text_reply

__all__ = ["log_level_reply"]

_LEVELS: Final = ("debug", "info", "warning", "error")
_DEBUG_FROM: Final = 4
_MAX_DIGITS: Final = 9
_REFUSED: Final = "log level must be a positive integer"  # Antrea's words, which people search for
_OF_THIS_PAGE: Final = (None, b"none", b"same-origin")


def log_level_reply(figures: Figures, method: str, query_string: bytes, headers: Mapping[bytes, bytes]) -> Reply:
    """The reply to a question, or to a wish, which is done."""
    given = parse_qs(query_string.decode("latin-1"), keep_blank_values=True).get("level")
    if given is None:
        level, verbosity = figures.log_level
        name = (("flowjoin-log-level", level),)
        return Reply(status=200, body=f"{json.dumps(verbosity)}\n".encode(), content_type=JSON, headers=name)
    if headers.get(b"sec-fetch-site") not in _OF_THIS_PAGE:
        return text_reply(403, "a page of another site must not change anything here")
    text = given[0]
    if text in _LEVELS:
        level, verbosity = cast(LogLevel, text), _DEBUG_FROM if text == "debug" else 0
    elif text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        verbosity = int(text)
        level = "debug" if verbosity >= _DEBUG_FROM else "info"
    else:
        return text_reply(400, f"{_REFUSED}, or one of {', '.join(_LEVELS)}")
    if method == "GET":
        figures.set_log_level(level, verbosity)
    return Reply(status=200, body=b"")
