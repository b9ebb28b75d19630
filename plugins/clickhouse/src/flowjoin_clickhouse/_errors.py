"""What a failure means: the data's fault, or the destination's for now; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError

from flowjoin.api import RetryableExportError

__all__ = [
    "NotAllowedError",
    "RefusedError",
    "SchemaError",
    "StillRunningError",
    "cause_of",
    "is_about_rights",
    "is_about_rows",
    "one_line",
    "without_secrets",
]

# The server's error codes for values that it will never take. Everything else may pass: what an operator can mend
# (no such table, wrong password, read-only, disk full) and what passes by itself (overload, restart).
_ABOUT_ROWS: Final = frozenset(
    {
        6,  # CANNOT_PARSE_TEXT
        26,  # CANNOT_PARSE_QUOTED_STRING
        27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
        38,  # CANNOT_PARSE_DATE
        41,  # CANNOT_PARSE_DATETIME
        69,  # ARGUMENT_OUT_OF_BOUND
        72,  # CANNOT_PARSE_NUMBER
        131,  # TOO_LARGE_STRING_SIZE
        321,  # VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
        349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
        376,  # CANNOT_PARSE_UUID
        395,  # FUNCTION_THROW_IF_VALUE_IS_NON_ZERO, of a materialised view
        407,  # DECIMAL_OVERFLOW
        469,  # VIOLATED_CONSTRAINT
        675,  # CANNOT_PARSE_IPV4
        676,  # CANNOT_PARSE_IPV6
        691,  # UNKNOWN_ELEMENT_OF_ENUM
    }
)
_ABOUT_RIGHTS: Final = frozenset(
    {
        164,  # READONLY, which forbids the question's settings
        452,  # SETTING_CONSTRAINT_VIOLATION
        497,  # ACCESS_DENIED
    }
)
_TOO_MANY_PARTS: Final = 252
_ONE_INSERT: Final = "partitions for single INSERT block"  # the same code also means a table that cannot keep up
_LONGEST: Final = 500
_SHORTEST_SECRET: Final = 4  # characters; what is shorter is none, and part of many words
_SPACES: Final = re.compile(r"\s+")
_WHO: Final = re.compile(r"\w+\(host=\S+ port=\d+\): ")  # urllib3's name for the connection


class RefusedError(Exception):
    """The server will not take these rows together."""


class SchemaError(RetryableExportError):
    """The table is not as it must be; rows wait until somebody mends it.

    Attributes:
        missing: columns that are not there.
    """

    def __init__(self, problem: str, *, missing: tuple[str, ...] = ()) -> None:
        super().__init__(problem)
        self.missing = missing


class StillRunningError(RetryableExportError):
    """The server still does what was asked of it before; what becomes of that is not known yet."""


class NotAllowedError(Exception):
    """This user may not ask, or may not make what was to be made."""


def is_about_rights(code: int | None) -> bool:
    """Whether this user will not be answered another time either."""
    return code in _ABOUT_RIGHTS


def is_about_rows(code: int | None, message: str) -> bool:
    """Whether fewer or other rows could be taken."""
    return code in _ABOUT_ROWS or (code == _TOO_MANY_PARTS and _ONE_INSERT in message)


def cause_of(exc: Exception) -> str:
    """What went wrong, in the words of whoever saw it: the library's repeat the statement, which is long."""
    cause = exc.__cause__
    if isinstance(cause, MaxRetryError) and cause.reason is not None:
        cause = cause.reason
    if not isinstance(cause, HTTPError):
        return str(exc)
    words = " ".join(map(str, cause.args)) if isinstance(cause, ProtocolError) else str(cause)
    return _WHO.sub("", words)


def one_line(message: str) -> str:
    """A server's message, short enough for a log line."""
    text = _SPACES.sub(" ", message).strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def without_secrets(message: str, secrets: Iterable[str]) -> str:
    """The message with stars in place of each."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            message = message.replace(secret, "***")
    return message
