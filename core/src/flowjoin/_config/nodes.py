"""One YAML document as nodes that know their lines.

Strategy: PyYAML's composer gives nodes with marks and resolved tags; nothing is constructed. They are
turned into three small frozen values, aliases expanded within bounds.
Invariant: any text gives nodes or ConfigError, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import yaml

from flowjoin._model.errors import ConfigError

__all__ = [
    "Entry",
    "Kind",
    "MappingNode",
    "Node",
    "ScalarNode",
    "SequenceNode",
    "is_empty",
    "is_null",
    "line_of",
    "read_document",
]

Kind: TypeAlias = Literal["null", "bool", "int", "float", "str"]

MAX_CHARACTERS: Final = 1024 * 1024  # Kubernetes refuses a ConfigMap over 1 MiB
MAX_DEPTH: Final = 50  # far beyond any configuration; PyYAML's composer is recursive
MAX_NODES: Final = 100_000  # after aliases are expanded: a chain of aliases doubles at each step

_TAG_PREFIX: Final = "tag:yaml.org,2002:"
_KINDS: Final[dict[str, Kind]] = {
    "null": "null",
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "str",
    "timestamp": "str",  # 2001-01-01: no key is a date, the text is meant
    "value": "str",  # a lone "="
    "merge": "str",  # "<<" as a value
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode:
    """A value without parts: its text as written, and what YAML takes it for."""

    text: str
    kind: Kind
    line: int = field(compare=False)
    quoted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceNode:
    """A list."""

    items: tuple[Node, ...]
    line: int = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key of a mapping and its value."""

    key: str
    value: Node
    line: int = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode:
    """Keys and values, keys unique."""

    entries: tuple[Entry, ...]
    line: int = field(compare=False)

    def get(self, key: str) -> Entry | None:
        """The entry of that key, or None."""
        return next((entry for entry in self.entries if entry.key == key), None)


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode


def is_null(node: Node) -> bool:
    """Whether nothing stands there."""
    return isinstance(node, ScalarNode) and node.kind == "null"


def is_empty(node: Node) -> bool:
    """Whether nothing or an empty text stands there."""
    return isinstance(node, ScalarNode) and (node.kind == "null" or not node.text)


def read_document(text: str, source: str | None = None) -> MappingNode | None:
    """The document's top mapping; None for an empty file or one of comments only.

    Raises:
        ConfigError: not YAML, not one document, not a mapping, a key twice, or beyond the bounds.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"the file is larger than {MAX_CHARACTERS} characters", source=source)
    root = _compose(text, source)
    if root is None:
        return None
    node = _Converter(source).convert(root, depth=1, tail=())
    if is_null(node):
        return None
    if not isinstance(node, MappingNode):
        raise ConfigError("the file must hold keys and values, as in 'mode: Aggregate'", line=node.line, source=source)
    return node


class _Loader(yaml.SafeLoader):
    """PyYAML's composer with bounds on depth and number."""

    depth = 0

    nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # PyYAML's own signature
        self.nodes += 1
        if self.nodes > MAX_NODES:
            event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it untyped
            raise yaml.MarkedYAMLError(problem=_TOO_MANY, problem_mark=event.start_mark)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it untyped
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=event.start_mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


_TOO_MANY: Final = f"more than {MAX_NODES} values"
_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"


def _compose(text: str, source: str | None) -> yaml.Node | None:
    try:
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        problem = f"the character U+{ord(text[exc.position]):04X} is not allowed in YAML"
        raise ConfigError(problem, line=line, source=source) from exc
    except yaml.MarkedYAMLError as exc:
        raise ConfigError(_yaml_problem(exc), line=_yaml_line(exc), source=source) from exc
    except (yaml.YAMLError, ValueError, OverflowError) as exc:
        # PyYAML hands "\UFFFFFFFF" and overlong numbers in directives to chr() and int()
        raise ConfigError(f"not valid YAML: {exc}", source=source) from exc
    return node


# What PyYAML says, and what an operator can do about it. Nothing of the text is repeated: it may be a password that
# begins with one of YAML's own characters.
_MEANINGS: Final = {
    "'\\t'": "a tab stands where only spaces may; write spaces",
    "mapping values are not allowed": "a colon stands where none may; begin the keys of one mapping in one column, "
    'and put a text with ": " in it in quotes',
    "found undefined alias": "an alias (*) has no anchor (&); put a text that begins with * in quotes",
    "that cannot start any token": "no text begins with this character; put it in quotes",
}


def _yaml_line(exc: yaml.MarkedYAMLError) -> int | None:
    mark = exc.problem_mark or exc.context_mark
    return None if mark is None else mark.line + 1


def _yaml_problem(exc: yaml.MarkedYAMLError) -> str:
    problem = exc.problem or "it cannot be read"
    if problem in (_TOO_DEEP, _TOO_MANY):
        return problem
    for said, meaning in _MEANINGS.items():
        if said in problem:
            return f"not valid YAML: {meaning}"
    if problem == "but found another document":
        return "a second document begins here; one file holds one document"
    context = f" {exc.context}" if exc.context else ""
    if context and exc.context_mark is not None and exc.context_mark.line + 1 != _yaml_line(exc):
        context += f" that begins on line {exc.context_mark.line + 1}"
    return f"not valid YAML:{context}{',' if context else ''} {problem}"


class _Converter:
    """PyYAML's nodes into ours; counts what aliases multiply."""

    def __init__(self, source: str | None) -> None:
        self._source = source
        self._nodes = 0

    def convert(self, node: yaml.Node, *, depth: int, tail: tuple[str, ...]) -> Node:
        line = node.start_mark.line + 1
        self._nodes += 1
        if depth > MAX_DEPTH:  # also ends an alias that holds itself
            raise self._error(f"{_TOO_DEEP} once aliases are followed", line, tail[:1])
        if self._nodes > MAX_NODES:
            raise self._error(f"more than {MAX_NODES} values once aliases are followed", line, tail)
        tag = node.tag.removeprefix(_TAG_PREFIX)
        if isinstance(node, yaml.ScalarNode) and tag in _KINDS:
            self._refuse_surrogates(node.value, line, tail)
            return ScalarNode(text=node.value, kind=_KINDS[tag], line=line, quoted=node.style is not None)
        if isinstance(node, yaml.SequenceNode) and tag == "seq":
            items = (self.convert(item, depth=depth + 1, tail=(*tail, f"[{i}]")) for i, item in enumerate(node.value))
            return SequenceNode(items=tuple(items), line=line)
        if isinstance(node, yaml.MappingNode) and tag == "map":
            return MappingNode(entries=tuple(self._entries(node, depth, tail)), line=line)
        # The tag is not repeated: it may be a password that begins with "!".
        raise self._error("a tag (!) is not understood here; put a text that begins with ! in quotes", line, tail)

    def _entries(self, node: yaml.MappingNode, depth: int, tail: tuple[str, ...]) -> Iterator[Entry]:
        seen: dict[str, int] = {}
        merged: list[Entry] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _TAG_PREFIX + "null":
                raise self._error("a key must be one word before its colon", line, tail)
            key = key_node.value
            self._refuse_surrogates(key, line, tail)
            if key in seen:
                raise self._error(f'the key "{key}" is given twice, on lines {seen[key]} and {line}', line, tail)
            seen[key] = line
            value = self.convert(value_node, depth=depth + 1, tail=(*tail, key))
            if key_node.tag == _TAG_PREFIX + "merge":
                merged.extend(self._merged(value, line, tail))
            else:
                yield Entry(key=key, value=value, line=line)
        for entry in merged:  # what is written out wins over what is merged, the first merged over later ones
            if entry.key not in seen:
                seen[entry.key] = entry.line
                yield entry

    def _merged(self, value: Node, line: int, tail: tuple[str, ...]) -> Iterator[Entry]:
        for mapping in value.items if isinstance(value, SequenceNode) else (value,):
            if not isinstance(mapping, MappingNode):
                raise self._error("<< merges mappings only", line, tail)
            yield from mapping.entries

    def _refuse_surrogates(self, text: str, line: int, tail: tuple[str, ...]) -> None:
        """An escape can write half a character, which no file name, log line or record can carry."""
        half = next((character for character in text if "\ud800" <= character <= "\udfff"), None)
        if half is not None:
            raise self._error(f"\\u{ord(half):04x} is half of a character; write \\U and eight digits", line, tail)

    def _error(self, problem: str, line: int, tail: tuple[str, ...]) -> ConfigError:
        path = "".join(part if part.startswith("[") else f".{part}" for part in tail).removeprefix(".")
        return ConfigError(problem, path=path, line=line, source=self._source)


def line_of(document: MappingNode, path: str) -> int | None:
    """The line of the last part of a path, such as ``collectors[0].tls``, that is in the document."""
    node: Node = document
    line: int | None = None
    for part in path.replace("[", ".[").split("."):
        found: Entry | Node | None = None
        if part.startswith("[") and isinstance(node, SequenceNode):
            found = node.items[int(part[1:-1])]
        elif isinstance(node, MappingNode):
            found = node.get(part)
        if found is None:
            break
        line = found.line
        node = found.value if isinstance(found, Entry) else found
    return line
