"""Nodes into frozen dataclasses, by their type hints.

Strategy: one recursive walk of hint and node side by side; a scalar is read from its *text*, so that
``namespace: no`` is the text "no" for a str and false for a bool, whatever YAML 1.1 takes it for.
Invariant: any nodes give an instance or ConfigError; a hint outside the supported set is TypeError,
because it is a bug of the dataclass's author.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

from flowjoin._config.descriptions import describe, known_instead, meant, show
from flowjoin._config.durations import parse_duration
from flowjoin._config.fields import (
    FieldSpec,
    Settings,
    fields_of,
    is_optional,
    mapping_value,
    sequence_item,
    split_annotated,
    union_members,
)
from flowjoin._config.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode, is_empty, is_null
from flowjoin._config.sizes import parse_octets
from flowjoin._model.errors import ConfigError
from flowjoin.api._settings import Bounds, Duration, Octets, Secret

__all__ = ["Binder", "bind", "bind_settings"]

T = TypeVar("T")

_TRUE: Final = frozenset(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"))
_HOW_SECRETS: Final = "a secret is not written into the configuration; write {file: PATH} or {env: NAME}"


def bind(node: MappingNode | None, into: type[T], *, path: str = "", source: str | None = None) -> T:
    """An instance of a configuration dataclass from keys and values; None is an empty mapping.

    Raises:
        ConfigError: naming the key, the line, the wrong value and what would be right.
        TypeError: the dataclass has a hint the binder does not know.
    """
    instance: T = Binder(source=source).dataclass(node or MappingNode(entries=(), line=1), into, path)
    return instance


def bind_settings(settings: Settings, into: type[T]) -> T:
    """A plugin's own configuration from the keys of its entry.

    Raises:
        ConfigError: as ``bind``.
        TypeError: as ``bind``.
    """
    return bind(settings.node, into, path=settings.path, source=settings.source)


class Binder:
    """One walk over one file.

    Args:
        source: the file's name, for errors.
        lenient: dataclasses in which an unknown key is reported, not refused.
        empty_is_default: dataclasses in which an empty text takes the default, as Go programs have it.
        report: takes (problem, path, line) of an unknown key in a lenient dataclass.
    """

    def __init__(
        self,
        *,
        source: str | None = None,
        lenient: frozenset[type[Any]] = frozenset(),
        empty_is_default: frozenset[type[Any]] = frozenset(),
        report: Callable[[str, str, int], None] | None = None,
    ) -> None:
        self._source = source
        self._lenient = lenient
        self._empty_is_default = empty_is_default
        self._report = report

    def dataclass(self, node: Node, into: type[Any], path: str) -> Any:
        """An instance of that dataclass."""
        specs = fields_of(into)
        if not isinstance(node, MappingNode):
            raise self._wrong(node, path, into)
        # First of all, so that a required key that is misspelt is not told as missing.
        if not any(spec.hint is Settings for spec in specs):
            self.unknown_keys(node, [spec.key for spec in specs], path, lenient=into in self._lenient)
        values: dict[str, Any] = {}
        for spec in specs:
            if spec.hint is Settings:
                values[spec.name] = self._rest(node, specs, path)
                continue
            entry = node.get(spec.key)
            if entry is None or is_null(entry.value) or (into in self._empty_is_default and is_empty(entry.value)):
                if spec.required:
                    what = f" ({spec.documentation})" if spec.documentation else ""
                    problem = f"is missing; give {describe(spec.hint, spec.bounds)}{what}"
                    raise self._error(problem, _join(path, spec.key), node.line)
                continue
            values[spec.name] = self.value(entry.value, spec.hint, _join(path, spec.key), spec.bounds, entry.line)
        try:
            return into(**values)
        except ConfigError as exc:  # it says which of its keys
            entry = node.get(exc.path.partition(".")[0].partition("[")[0])
            line = node.line if entry is None else entry.line
            raise self._error(exc.problem, _join(path, exc.path) if exc.path else path, line) from exc
        except ValueError as exc:
            raise self._error(str(exc), path, node.line) from exc

    def unknown_keys(self, node: MappingNode, known: Iterable[str], path: str, *, lenient: bool) -> None:
        """Refuse or report the keys outside the known ones."""
        known = tuple(known)
        for entry in node.entries:
            if entry.key in known:
                continue
            problem = f"is not a known key; {known_instead(entry.key, known)}"
            if not lenient or self._report is None:
                raise self._error(problem, _join(path, entry.key), entry.line)
            self._report(problem, _join(path, entry.key), entry.line)

    def value(self, node: Node, hint: Any, path: str, bounds: Bounds | None = None, line: int | None = None) -> Any:
        """A value of that type; ``line`` is the key's where there is one."""
        hint, metadata = split_annotated(hint)
        bounds = next((item for item in metadata if isinstance(item, Bounds)), bounds)
        line = node.line if line is None else line
        members = union_members(hint)
        if len(members) > 1:
            return self._union(node, hint, members, path, bounds, line)
        if is_optional(hint) and is_null(node):
            return None
        (hint,) = members
        if hint is Secret:
            return self._secret(node, path, line)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type) and not hasattr(hint, "from_text"):
            return self.dataclass(node, hint, path)
        if (item := sequence_item(hint)) is not None:
            if not isinstance(node, SequenceNode):
                raise self._wrong(node, path, hint, line, bounds)
            items = (self.value(child, item, f"{path}[{index}]", bounds) for index, child in enumerate(node.items))
            return list(items) if get_origin(hint) is list else tuple(items)
        if (item := mapping_value(hint)) is not None:
            if not isinstance(node, MappingNode):
                raise self._wrong(node, path, hint, line, bounds)
            return {
                entry.key: self.value(entry.value, item, _join(path, entry.key), bounds, entry.line)
                for entry in node.entries
            }
        if not isinstance(node, ScalarNode) or node.kind == "null":
            raise self._wrong(node, path, hint, line, bounds)
        try:
            return _scalar(node, hint, bounds)
        except _Mismatch:
            raise self._wrong(node, path, hint, line, bounds) from None
        except ValueError as exc:
            raise self._error(str(exc), path, line) from exc

    def _union(
        self, node: Node, hint: Any, members: tuple[Any, ...], path: str, bounds: Bounds | None, line: int
    ) -> Any:
        fitting = [member for member in members if _shape(member) is type(node)]
        if len(fitting) == 1 and get_origin(fitting[0]) is not Literal:
            # its own error says more than "none of these"
            return self.value(node, fitting[0], path, bounds, line)
        for member in fitting:
            try:
                return self.value(node, member, path, bounds, line)
            except ConfigError:
                continue
        raise self._wrong(node, path, hint, line, bounds)

    def _rest(self, node: MappingNode, specs: tuple[FieldSpec, ...], path: str) -> Settings:
        own = {spec.key for spec in specs if spec.hint is not Settings}
        rest = tuple(entry for entry in node.entries if entry.key not in own)
        return Settings(node=MappingNode(entries=rest, line=node.line), path=path, source=self._source)

    def _secret(self, node: Node, path: str, line: int) -> Secret:
        # whatever stands here may be the secret itself: no error repeats it
        if not isinstance(node, MappingNode) or len(node.entries) != 1:
            raise self._error(_HOW_SECRETS, path, line)
        entry: Entry = node.entries[0]
        place = entry.value
        if not isinstance(place, ScalarNode) or place.kind == "null" or not place.text or "\0" in place.text:
            raise self._error(_HOW_SECRETS, path, line)
        if entry.key == "file":
            return Secret("file", place.text)
        if entry.key == "env":
            return Secret("env", place.text)
        raise self._error(_HOW_SECRETS, path, line)

    def _wrong(
        self, node: Node, path: str, hint: Any, line: int | None = None, bounds: Bounds | None = None
    ) -> ConfigError:
        problem = f"must be {describe(hint, bounds)}, not {show(node)}{meant(node, hint)}"
        return self._error(problem, path, node.line if line is None else line)

    def _error(self, problem: str, path: str, line: int) -> ConfigError:
        return ConfigError(problem, path=path, line=line, source=self._source)


class _Mismatch(Exception):
    """The text is not of the type; the caller says what would be right."""


def _scalar(node: ScalarNode, hint: Any, bounds: Bounds | None) -> Any:
    """A scalar's value; ValueError carries a sentence of its own, _Mismatch asks for the usual one."""
    text = node.text
    if hint is str:
        return text
    if hint is bool:
        if node.kind != "bool" or node.quoted:
            raise _Mismatch
        return text in _TRUE
    if hint is int or hint is float:
        return _within(_number(node, hint), bounds)
    if hint is Duration:
        return _within(parse_duration(text), bounds)
    if hint is Octets:
        return _within(parse_octets(text), bounds)
    if hint is Path:
        if not text or "\0" in text:
            raise _Mismatch
        return Path(text)
    if get_origin(hint) is Literal:
        return _choice(text, {str(value): value for value in get_args(hint)})
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _choice(text, {str(member.value): member for member in hint})
    read = getattr(hint, "from_text", None)
    if read is None:
        raise TypeError(f"a configuration field cannot have the type {hint!r}")
    return read(text)


def _number(node: ScalarNode, hint: type[int] | type[float]) -> float:
    try:
        # base 0 takes 0x1f and 1_000 and refuses 010, which YAML 1.1 takes for eight
        number: float = int(node.text, 0) if hint is int else float(node.text)
    except ValueError:
        raise _Mismatch from None
    if node.quoted or not math.isfinite(number):
        raise _Mismatch
    return number


def _within(number: float, bounds: Bounds | None) -> float:
    if bounds is not None and (number < bounds.minimum or (bounds.maximum is not None and number > bounds.maximum)):
        raise _Mismatch
    return number


def _choice(text: str, choices: dict[str, Any]) -> Any:
    if text not in choices:
        raise _Mismatch
    return choices[text]


def _shape(hint: Any) -> type[Node]:
    hint, _ = split_annotated(hint)
    if sequence_item(hint) is not None:
        return SequenceNode
    if hint is Secret or mapping_value(hint) is not None:
        return MappingNode
    if dataclasses.is_dataclass(hint) and not hasattr(hint, "from_text"):
        return MappingNode
    return ScalarNode


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
