"""Rewrites the tables in reference/configuration.md from the dataclasses: ``python docs/configuration_tables.py``.

The prose is written by hand; between ``<!-- keys of X -->`` and ``<!-- end -->`` stands what X says.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from flowjoin._config import antrea, antrea_agent, model
from flowjoin._config.endpoint import Endpoint
from flowjoin._config.fields import (
    FieldSpec,
    Settings,
    fields_of,
    mapping_value,
    sequence_item,
    split_annotated,
    union_members,
)
from flowjoin._config.plain import to_plain
from flowjoin.api import Bounds, Duration, Octets, Secret

PAGE: Final = Path(__file__).parent / "reference" / "configuration.md"
_BLOCK: Final = re.compile(r"(<!-- keys of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_WORDS: Final = {
    Duration: "duration",
    Octets: "size",
    Secret: "secret",
    Endpoint: "host:port",
    Path: "path",
    str: "text",
    int: "integer",
    float: "number",
    bool: "`true` or `false`",
}


def described_classes() -> dict[str, type[Any]]:
    """Every dataclass that some key of a file is bound to, by name."""
    found: dict[str, type[Any]] = {}
    waiting: list[type[Any]] = [model.Config, *antrea.SECTIONS.values(), antrea_agent.FlowExporter]
    while waiting:
        cls = waiting.pop(0)
        if found.setdefault(cls.__name__, cls) is not cls:
            raise ValueError(f"two dataclasses are called {cls.__name__}")
        waiting.extend(inner for spec in fields_of(cls) for inner in _inner(spec.hint) if inner not in found.values())
    return found


def updated(text: str) -> str:
    """The page with its tables as they should be."""
    classes = described_classes()
    return _BLOCK.sub(lambda match: f"{match[1]}{table(classes[match[2]])}{match[3]}", text)


def table(cls: type[Any]) -> str:
    """The keys of one dataclass."""
    lines = ["| Key | Type | Default | Live | Meaning |", "|---|---|---|---|---|"]
    for spec in fields_of(cls):
        if spec.hint is not Settings:
            cells = (f"`{spec.key}`", _type(spec.hint, spec.bounds), _default(spec), "yes" if spec.is_live else "")
            lines.append("".join(f"| {cell} " if cell else "| " for cell in (*cells, spec.documentation)) + "|")
    return "\n".join(lines) + "\n"


def _inner(hint: Any) -> Iterator[type[Any]]:
    hint, _ = split_annotated(hint)
    for member in union_members(hint):
        item = sequence_item(member) or mapping_value(member)
        if item is not None:
            yield from _inner(item)
        elif isinstance(member, type) and dataclasses.is_dataclass(member) and member not in (Settings, Endpoint):
            yield member


def _type(hint: Any, bounds: Bounds | None) -> str:
    hint, metadata = split_annotated(hint)
    bounds = next((item for item in metadata if isinstance(item, Bounds)), bounds)
    members = union_members(hint)
    if len(members) > 1:
        return " or ".join(_type(member, bounds) for member in members)
    (hint,) = members
    if hint in _WORDS:
        return _WORDS[hint] + (_range(hint, bounds) if bounds else "")
    if get_origin(hint) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "name of a data type"
    if (item := sequence_item(hint)) is not None:
        return f"list: {_type(item, bounds)}"
    return f"[keys](#{hint.__name__.lower()})"


def _range(hint: Any, bounds: Bounds) -> str:
    low, high = (None if edge is None else to_plain(edge, hint) for edge in (bounds.minimum, bounds.maximum))
    return f", {low} to {high}" if high is not None else f", at least {low}"


def _default(spec: FieldSpec) -> str:
    if spec.required:
        return "required"
    plain = to_plain(spec.default, spec.hint)
    if plain is None or plain == "" or isinstance(plain, dict):
        return ""
    return f"`{plain if isinstance(plain, str) else json.dumps(plain)}`"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
