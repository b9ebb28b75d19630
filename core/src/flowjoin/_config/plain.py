"""Bound values back into the file's notation, for the JSON Schema, the docs and tests; and plain values into nodes."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from flowjoin._config.durations import format_duration
from flowjoin._config.fields import Settings, fields_of, mapping_value, sequence_item, split_annotated, union_members
from flowjoin._config.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from flowjoin._config.sizes import format_octets
from flowjoin.api._settings import Duration, Octets, Secret

__all__ = ["Plain", "dataclass_to_plain", "mapping_of", "node_to_plain", "to_plain"]

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"


def to_plain(value: Any, hint: Any) -> Plain:
    """A value of that type as an operator writes it; a Secret as ``***``."""
    hint, _ = split_annotated(hint)
    if value is None:
        return None
    if isinstance(value, Secret):
        return str(value)
    if isinstance(value, Settings):
        return node_to_plain(value.node)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "from_text"):
        return dataclass_to_plain(value)
    members = union_members(hint)
    if len(members) > 1:
        hint = next((member for member in members if _holds(member, value)), str)
    else:
        (hint,) = members
    if hint is Duration:
        return format_duration(value)
    if hint is Octets:
        return format_octets(value)
    if (item := sequence_item(hint)) is not None:
        return [to_plain(child, item) for child in value]
    if (item := mapping_value(hint)) is not None:
        return {key: to_plain(child, item) for key, child in value.items()}
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bool | int | float | str) and not isinstance(value, Path):
        return value
    return str(value)  # Path, and what reads itself from text


def dataclass_to_plain(instance: Any) -> dict[str, Plain]:
    """Key to value; a plugin's settings stand among the keys of their entry."""
    plain: dict[str, Plain] = {}
    for spec in fields_of(type(instance)):
        value = getattr(instance, spec.name)
        if isinstance(value, Settings):
            plain.update(node_to_plain(value.node))  # type: ignore[arg-type]  # a mapping gives a dictionary
        else:
            plain[spec.key] = to_plain(value, spec.hint)
    return plain


def node_to_plain(node: Node) -> Plain:
    """What YAML would make of it."""
    if isinstance(node, MappingNode):
        return {entry.key: node_to_plain(entry.value) for entry in node.entries}
    if isinstance(node, SequenceNode):
        return [node_to_plain(item) for item in node.items]
    return _scalar(node)


def mapping_of(values: Mapping[str, Plain], line: int) -> MappingNode:
    """Keys and values as if they stood in the file, all on one line."""
    entries = tuple(Entry(key=key, value=_node(value, line), line=line) for key, value in values.items())
    return MappingNode(entries=entries, line=line)


def _node(value: Plain, line: int) -> Node:
    if isinstance(value, dict):
        return mapping_of(value, line)
    if isinstance(value, list):
        return SequenceNode(items=tuple(_node(item, line) for item in value), line=line)
    if value is None:
        return ScalarNode(text="", kind="null", line=line)
    if isinstance(value, bool):
        return ScalarNode(text="true" if value else "false", kind="bool", line=line)
    if isinstance(value, int | float):
        return ScalarNode(text=str(value), kind="int" if isinstance(value, int) else "float", line=line)
    return ScalarNode(text=value, kind="str", line=line)


def _scalar(node: ScalarNode) -> Plain:
    if node.quoted or node.kind == "str":
        return node.text
    if node.kind == "null":
        return None
    if node.kind == "bool":
        return node.text.lower() in ("true", "yes", "on")
    try:
        return int(node.text, 0) if node.kind == "int" else float(node.text)
    except ValueError:  # 010, 1:30, .inf: as written
        return node.text


def _holds(hint: Any, value: Any) -> bool:
    hint, _ = split_annotated(hint)
    if hint in (Duration, Octets):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(hint, type) and isinstance(value, hint)
