"""Short replies: health, metrics, Antrea's counters, refusals; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from flowjoin._api_server.figures import ComponentState, Phase

__all__ = [
    "JSON",
    "Reply",
    "health_reply",
    "liveness_reply",
    "readiness_reply",
    "record_metrics_reply",
    "status_reply",
    "text_reply",
]

_TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
_BAD_STATES: Final = frozenset({"degraded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole reply.

    Attributes:
        headers: beyond those of type and length.
    """

    status: int
    body: bytes
    content_type: str = _TEXT
    headers: tuple[tuple[str, str], ...] = ()


def text_reply(status: int, text: str, *, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """One line for people."""
    return Reply(status=status, body=f"{text}\n".encode(), headers=headers)


def status_reply(status: int, problem: str, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """Why somebody is not let in, in the form that clients of Kubernetes know."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": problem, "code": status}
    return Reply(status=status, body=f"{json.dumps(body)}\n".encode(), content_type=JSON, headers=headers)


def record_metrics_reply(counters: Mapping[str, int | bool]) -> Reply:
    """Antrea's counters: what is 0 or false is left out."""
    body = json.dumps({key: value for key, value in counters.items() if value}, separators=(",", ":"))
    return Reply(status=200, body=f"{body}\n".encode(), content_type=JSON)


def liveness_reply() -> Reply:
    """Whoever answers is alive: its loop turns."""
    return text_reply(200, "ok")


def readiness_reply(phase: Phase, components: Sequence[ComponentState], query_string: bytes) -> Reply:
    """Whether Messages are taken in.

    A component that fails does not count: exporting processes must not be turned away from the one that keeps their
    records until it recovers.
    """
    return _report("readyz", phase, components, phase is Phase.READY, query_string)


def health_reply(phase: Phase, components: Sequence[ComponentState], query_string: bytes, name: str = "") -> Reply:
    """Whether everything works, or the one component of that name."""
    if name:
        components = [component for component in components if component.name == name]
        if not components:
            return text_reply(404, f"there is no component {_line(name)[:100]}; /healthz?verbose names all")
    is_good = not any(component.state in _BAD_STATES for component in components)
    if not name:
        is_good = is_good and phase is Phase.READY
    return _report("healthz", phase, components, is_good, query_string)


def _report(what: str, phase: Phase, components: Sequence[ComponentState], is_good: bool, query_string: bytes) -> Reply:
    query = parse_qs(query_string.decode("latin-1"), keep_blank_values=True)
    status = 200 if is_good else 503
    if query.get("output") == ["json"]:
        report = {
            "status": "ok" if is_good else "failed",
            "phase": phase.value,
            "components": [
                {
                    "component": component.name,
                    "state": component.state,
                    "problem": component.problem,
                    "failures": component.failures,
                }
                for component in components
            ],
        }
        return Reply(status=status, body=f"{json.dumps(report)}\n".encode(), content_type=JSON)
    if is_good and "verbose" not in query:
        return text_reply(status, "ok")
    lines = [f"[{'+' if phase is Phase.READY else '-'}]core {phase.value}"]
    for component in components:
        is_bad = component.state in _BAD_STATES
        problem = f": {_line(component.problem)} ({component.failures} failures)" if is_bad else ""
        lines.append(f"[{'-' if is_bad else '+'}]{component.name} {component.state}{problem}")
    lines.append(f"{what} check {'passed' if is_good else 'failed'}")
    return text_reply(status, "\n".join(lines))


def _line(text: str) -> str:
    """What others wrote, on one line."""
    return "".join(character if character.isprintable() else " " for character in text)
