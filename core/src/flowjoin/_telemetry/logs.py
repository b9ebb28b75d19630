"""Structured logs to one stream: JSON lines for programs, ``key=value`` for people.

Every line goes the same way: level, rate limit, time, traceback, redaction, rendering. A ``Logs`` is made once and
handed down; nothing is configured globally, and plugins configure nothing.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from flowjoin._model.errors import said_by
from flowjoin._telemetry.rate_limit import RateLimit

__all__ = ["LogFormat", "LogLevel", "Logs", "redacted"]

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_ORDER: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

_SECRET_KEYS: Final = re.compile(r"password|passwd|secret|token|authorization|credential", re.IGNORECASE)
_SECRET_IN_URL: Final = re.compile(r"(?<=://)[^/\s@:]*:[^/\s@]*(?=@)")
_HIDDEN: Final = "***"


class _StreamWriter:
    """Writes finished lines; a stream that is gone costs the line, never the program."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = 0

    def line(self, text: str) -> None:
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # closed pipe, closed file
            self.lost += 1

    debug = info = warning = error = critical = line


class Logs:
    """Makes loggers that share a stream, a level and a rate limit."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        log_format: LogFormat = "console",
        level: LogLevel = "info",
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.level: LogLevel = level
        self.format: LogFormat = log_format
        self._writer = _StreamWriter(stream if stream is not None else sys.stderr)
        self._limit = RateLimit()
        self._clock = clock
        self._wall_clock = wall_clock
        self._processors: list[Processor] = [
            self._check_level,
            self._check_rate,
            self._add_time,
            structlog.processors.format_exc_info,
            _redact,
            _RENDER[log_format],
        ]

    def change(self, level: LogLevel, log_format: LogFormat) -> None:
        """Write otherwise from now on; loggers that were handed out follow."""
        self.level = level
        self.format = log_format
        self._processors[-1] = _RENDER[log_format]

    @property
    def lost(self) -> int:
        """Lines that the stream did not take."""
        return self._writer.lost

    def logger(self, **facts: object) -> FilteringBoundLogger:
        """A logger whose lines all carry these facts; ``name`` tells instances of one component apart.

        A line with the fact ``is_answer`` answers something that an operator did, and is never suppressed.
        """
        logger = structlog.wrap_logger(
            self._writer,
            processors=self._processors,
            wrapper_class=structlog.make_filtering_bound_logger(0),
            context_class=dict,
        )
        return cast(FilteringBoundLogger, logger.bind(**facts))

    def statement(self, event: str, facts: Mapping[str, object]) -> None:
        """A line that is written whatever the level: what the program owes at its end."""
        entry: Any = {**facts, "event": event, "level": "info"}
        for processor in self._processors[2:]:
            entry = processor(None, "info", entry)
        self._writer.line(entry)

    def text(self, text: str) -> None:
        """Lines for people, as they are; only where the log is for people."""
        assert self.format == "console", "a program reads these lines"
        self._writer.line(text)

    def report_suppressed(self, *, everything: bool = False) -> None:
        """Tell what was suppressed and has not been told by a later line."""
        for suppressed in self._limit.drain(self._clock(), everything=everything):
            event, *rest = suppressed.key
            facts = {"of": event, "lines": suppressed.count}
            facts.update({key: value for key, value in zip(("original_exporter", "name"), rest, strict=False) if value})
            self._write("info", "lines_suppressed", facts)

    def _write(self, method: str, event: str, facts: dict[str, Any]) -> None:  # past the rate limit
        entry: EventDict = {**facts, "event": event}
        try:
            rendered: Any = self._check_level(None, method, entry)
            for processor in self._processors[2:]:
                rendered = processor(None, method, rendered)
        except structlog.DropEvent:
            return
        self._writer.line(rendered)

    def _check_level(self, _logger: WrappedLogger, method: str, entry: EventDict) -> EventDict:
        if _ORDER[method] < _ORDER[self.level]:
            raise structlog.DropEvent
        entry["level"] = method
        return entry

    def _check_rate(self, _logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
        if entry.pop("is_answer", False):  # to what an operator just did: never suppressed
            return entry
        key = (str(entry["event"]), str(entry.get("original_exporter", "")), str(entry.get("name", "")))
        suppressed = self._limit.admit(key, self._clock())
        if suppressed is None:
            raise structlog.DropEvent
        if suppressed:
            entry["suppressed"] = suppressed
        return entry

    def _add_time(self, _logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
        moment = datetime.fromtimestamp(self._wall_clock(), UTC)
        entry["time"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return entry


def redacted(text: str) -> str:
    """A text of others, such as an error's, without the passwords of the URLs in it."""
    return _SECRET_IN_URL.sub(_HIDDEN, text)


def _redact(_logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
    for key, value in entry.items():
        if _SECRET_KEYS.search(key):
            entry[key] = _HIDDEN
        elif isinstance(value, str):
            entry[key] = redacted(value)
        elif isinstance(value, BaseException):
            entry[key] = redacted(f"{type(value).__name__}: {said_by(value)}")
    return entry


def _render_json(_logger: WrappedLogger, _method: str, entry: MutableMapping[str, Any]) -> str:
    first = {key: entry.pop(key) for key in ("time", "level", "event")}
    facts = {**first, **entry}
    try:
        return json.dumps(facts, default=_shown, allow_nan=False)
    except (ValueError, TypeError, RecursionError):  # not a number, a list that holds itself, a tuple as a key
        return json.dumps(
            {key: value if isinstance(value, str | int) else _shown(value) for key, value in facts.items()}
        )


def _shown(value: object) -> str:
    """The repr of a value that JSON has no form for; whatever a caller hands over, its line is written."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - whatever a foreign __repr__ raises
        return f"<{type(value).__name__}>"


def _render_console(_logger: WrappedLogger, _method: str, entry: MutableMapping[str, Any]) -> str:
    moment, level, event = (entry.pop(key) for key in ("time", "level", "event"))
    traceback = entry.pop("exception", None)
    facts = "".join(f" {key}={_plain(value)}" for key, value in entry.items())
    tail = "" if traceback is None else "\n" + "\n".join(f"    {_printable(line)}" for line in traceback.splitlines())
    return f"{moment} {level:7} {_plain(event)}{facts}{tail}"


def _plain(value: object) -> str:
    """Text as it is where no reader can mistake it: what peers send must not write lines or move the cursor."""
    text = value if isinstance(value, str) else _shown(value)
    is_plain = text and text.isprintable() and not any(character in text for character in " \"'=")
    return text if is_plain else repr(text)


def _printable(line: str) -> str:
    return line if line.isprintable() else repr(line)[1:-1]


_RENDER: Final[Mapping[LogFormat, Processor]] = {"console": _render_console, "json": _render_json}
