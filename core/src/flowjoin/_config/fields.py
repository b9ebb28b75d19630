"""What a configuration dataclass says about its keys: read once, for the binder, the JSON Schema and the docs."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Hashable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Final,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from flowjoin._config.nodes import MappingNode
from flowjoin.api._settings import Bounds, Key

__all__ = [
    "LIVE",
    "FieldSpec",
    "Settings",
    "fields_of",
    "is_optional",
    "key_of",
    "mapping_value",
    "sequence_item",
    "split_annotated",
    "union_members",
]


class Live(enum.Enum):
    """Inside ``Annotated``: a reload may change the key in a running process."""

    LIVE = enum.auto()


LIVE: Final = Live.LIVE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The keys of an entry that belong to its plugin, not yet bound.

    Attributes:
        node: the keys and values.
        path: of the entry, ``exporters[1]``.
        source: the file's name.
    """

    node: MappingNode
    path: str = dataclasses.field(default="", compare=False)
    source: str | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """One key.

    Attributes:
        name: of the dataclass's field.
        key: in the file.
        hint: the type, its ``Annotated`` taken off.
        bounds: of a number.
        documentation: the plain string inside ``Annotated``; empty without one.
        is_live: whether a reload may change it in a running process.
        required: there is no default.
        default: the default value; None where required.
    """

    name: str
    key: str
    hint: Any  # what typing gives: a class, a NewType, an alias, a union
    bounds: Bounds | None
    documentation: str
    is_live: bool
    required: bool
    default: object


def key_of(field_name: str) -> str:
    """snake_case to lowerCamelCase."""
    first, *rest = field_name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def split_annotated(hint: Any) -> tuple[Any, tuple[object, ...]]:
    """A type and what ``Annotated`` hangs on it."""
    if get_origin(hint) is Annotated:
        return hint.__origin__, hint.__metadata__
    return hint, ()


def union_members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union without None; the hint itself where it is none."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(member for member in get_args(hint) if member is not type(None))
    return (hint,)


def is_optional(hint: Any) -> bool:
    """Whether None is among the alternatives."""
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


def fields_of(cls: type[Any]) -> tuple[FieldSpec, ...]:
    """The keys of a configuration dataclass, in its order.

    Raises:
        TypeError: not a dataclass, or its type hints name what does not exist: a bug of its author.
    """
    return _read_fields(cast(Hashable, cls))


@functools.cache
def _read_fields(cls: Any) -> tuple[FieldSpec, ...]:
    if not dataclasses.is_dataclass(cls) or not isinstance(cls, type):
        raise TypeError(f"{cls!r} is not a dataclass")
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError as exc:
        raise TypeError(f"the type hints of {cls.__qualname__} cannot be read: {exc}") from exc
    specs = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        hint, metadata = split_annotated(hints[field.name])
        key = next((item.name for item in metadata if isinstance(item, Key)), key_of(field.name))
        default: object = None
        required = False
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        else:
            required = True
        specs.append(
            FieldSpec(
                name=field.name,
                key=key,
                hint=hint,
                bounds=next((item for item in metadata if isinstance(item, Bounds)), None),
                documentation=next((item for item in metadata if isinstance(item, str)), ""),
                is_live=LIVE in metadata,
                required=required,
                default=default,
            )
        )
    return tuple(specs)


def sequence_item(hint: Any) -> Any | None:
    """The type of a list's items; None where the hint is no list."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return arguments[0]
    if origin in (list, Sequence):
        return arguments[0]
    return None


def mapping_value(hint: Any) -> Any | None:
    """The type of a ``dict[str, X]``'s values; None where the hint is none."""
    if get_origin(hint) in (dict, Mapping) and get_args(hint)[0] is str:
        return cast(Any, get_args(hint)[1])
    return None
