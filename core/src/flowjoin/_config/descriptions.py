"""What an error says about a value: what may stand there, what does, and what was probably meant; pure."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from flowjoin._config.durations import format_duration
from flowjoin._config.fields import (
    Settings,
    fields_of,
    mapping_value,
    sequence_item,
    split_annotated,
    union_members,
)
from flowjoin._config.nodes import MappingNode, Node, ScalarNode, SequenceNode
from flowjoin._config.sizes import format_octets
from flowjoin._model.nearest import nearest
from flowjoin.api._settings import Bounds, Duration, Octets, Secret

__all__ = ["describe", "known_instead", "meant", "show"]

_SHOWN: Final = 60  # characters of a wrong value that an error repeats
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9_]*(\.[0-9]*)?", re.ASCII)
_UNQUOTED: Final[dict[Any, re.Pattern[str]]] = {
    bool: re.compile("true|false|yes|no|on|off", re.IGNORECASE),
    int: _NUMBER,
    float: _NUMBER,
}
_LISTED: Final = 12  # more known keys than that help nobody in one sentence


def known_instead(word: str, known: Iterable[str]) -> str:
    """The half-sentence that helps with an unknown key: the nearest one, or all of them."""
    names = tuple(known)
    near = nearest(word, names)
    if near is not None:
        return f'did you mean "{near}"?'
    if len(names) > _LISTED:
        return "docs/reference/configuration.md lists what is known here"
    return f"known here: {', '.join(names)}" if names else "nothing is known here"


def describe(hint: Any, bounds: Bounds | None = None) -> str:
    """What an operator may write there, to follow "must be" or "give"."""
    hint, metadata = split_annotated(hint)
    bounds = next((item for item in metadata if isinstance(item, Bounds)), bounds)
    members = union_members(hint)
    if len(members) > 1:
        each = [describe(member, bounds) for member in members]
        return (", or " if any("," in one for one in each[:-1]) else " or ").join(each)
    (hint,) = members
    if hint is Duration:
        return f"a duration such as 30s or 1m30s{_range(bounds, format_duration)}"
    if hint is Octets:
        return f"a size such as 256MiB or 4096{_range(bounds, lambda number: format_octets(int(number)))}"
    if hint is int:
        return f"a whole number{_range(bounds, lambda number: str(int(number)))}"
    if hint is float:
        return f"a number{_range(bounds, str)}"
    if hint is bool:
        return "true or false"
    if hint is str:
        return "text"
    if hint is Path:
        return "a path"
    if hint is Secret:
        return "{file: PATH} or {env: NAME}"
    if words := _words(hint):
        return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    if (item := sequence_item(hint)) is not None:
        return f"a list, each item {describe(item, bounds)}"
    if mapping_value(hint) is not None:
        return "a mapping"
    if hasattr(hint, "from_text"):
        return f"text such as {hint.EXAMPLE}" if hasattr(hint, "EXAMPLE") else "text"
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return f"a mapping with the keys {', '.join(spec.key for spec in fields_of(hint) if spec.hint is not Settings)}"
    raise TypeError(f"a configuration field cannot have the type {hint!r}")


def _range(bounds: Bounds | None, show: Callable[[float], str]) -> str:
    if bounds is None:
        return ""
    if bounds.maximum is None:
        return f", at least {show(bounds.minimum)}"
    return f" from {show(bounds.minimum)} to {show(bounds.maximum)}"


def show(node: Node) -> str:
    """A wrong value as an error repeats it."""
    if isinstance(node, SequenceNode):
        return "a list"
    if isinstance(node, MappingNode):
        return "a mapping"
    if node.kind == "null":
        return "nothing"
    return f'"{node.text}"' if len(node.text) <= _SHOWN else f'"{node.text[:_SHOWN]}…"'


def meant(node: Node, hint: Any) -> str:
    """What was probably meant, as the end of a sentence; empty where that cannot be told."""
    hint, _ = split_annotated(hint)
    members = [split_annotated(member)[0] for member in union_members(hint)]
    if not isinstance(node, ScalarNode) or not node.text:
        return ""
    if node.quoted and any(member in _UNQUOTED and _UNQUOTED[member].fullmatch(node.text) for member in members):
        return "; leave the quotes out"
    near = nearest(node.text, [word for member in members for word in _words(member)])
    return f'; did you mean "{near}"?' if near is not None else ""


def _words(hint: Any) -> tuple[str, ...]:
    """The words of a choice; none for another type."""
    if get_origin(hint) is Literal:
        return tuple(str(value) for value in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return tuple(str(member.value) for member in hint)
    return ()
