"""A JSON Schema (draft 2020-12) of the configuration, for editors; made from the dataclasses that bind it.

What the schema cannot say (names unique, bounds of durations) the loader checks; what it says is what
the loader takes: a file the loader accepts in strict mode is valid, apart from scalars that only YAML
1.1 takes for something else (``on``, ``0x10``) and empty texts that take the default.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import math
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from flowjoin._config import antrea, antrea_agent
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
from flowjoin._config.model import Config, ExporterEntry, PluginEntry
from flowjoin._config.plain import to_plain
from flowjoin.api._settings import Bounds, Duration, Octets, Secret

__all__ = ["PluginConfigs", "json_schema"]

PluginConfigs: TypeAlias = Mapping[str, Mapping[str, type[Any]]]
"""For each of ``exporters``, ``enrichers``, ``sources``, ``lookups``: type to configuration dataclass."""

_Schema: TypeAlias = dict[str, Any]  # JSON

_DURATION_PATTERN: Final = r"^[+-]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)$"
_OCTETS_PATTERN: Final = r"^\d{1,20}(\.\d{1,20})? ?(B|[kK]B|MB|GB|TB|KiB|MiB|GiB|TiB)?$"
_ENTRIES: Final = ("exporters", "enrichers", "sources", "lookups")


def json_schema(plugins: PluginConfigs | None = None) -> _Schema:
    """The schema of a whole file.

    Args:
        plugins: configurations of installed plugins; an entry of another type may have any keys.

    Raises:
        TypeError: a plugin's dataclass has a hint that no configuration may have.
    """
    plugins = plugins or {}
    definitions: _Schema = {}
    properties: _Schema = {}
    for spec in fields_of(Config):
        if spec.key in _ENTRIES:
            entry = ExporterEntry if spec.key == "exporters" else PluginEntry
            item = _entry(entry, plugins.get(spec.key, {}), definitions)
            properties[spec.key] = _documented({"type": ["array", "null"], "items": item}, spec)
        else:
            properties[spec.key] = _property(spec, definitions)
    for key, section in {**antrea.SECTIONS, antrea_agent.SECTION: antrea_agent.FlowExporter}.items():
        properties[key] = _section(section, definitions)
    older = "of Antrea's agent, deprecated: write it under flowExporter"
    properties |= {key: {"description": older} for key in antrea_agent.DEPRECATED}
    properties |= {key: {"description": "of Antrea's agent"} for key in sorted(antrea_agent.OTHERS)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "flowjoin configuration",
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": False,
        "$defs": definitions,
    }


def _section(section: type[Any], definitions: _Schema) -> _Schema:
    """A section of Antrea's: while it is disabled only its keys are looked at, not their values."""
    specs = fields_of(section)
    documented: _Schema = {spec.key: {"description": spec.documentation} for spec in specs}
    documented["enable"] = next(_property(spec, definitions) for spec in specs if spec.key == "enable")
    return {
        "description": inspect.getdoc(section),
        "if": {"type": "object", "properties": {"enable": {"const": True}}, "required": ["enable"]},
        "then": _dataclass(section, definitions),
        "else": {"type": ["object", "null"], "properties": documented, "additionalProperties": False},
    }


def _entry(entry: type[Any], configs: Mapping[str, type[Any]], definitions: _Schema) -> _Schema:
    """An entry of a list of plugins: its own keys, then those of the plugin its type names."""
    own = {spec.key: _property(spec, definitions) for spec in fields_of(entry) if spec.hint is not Settings}
    conditions = []
    for name, config in sorted(configs.items()):
        specs = fields_of(config)
        then = {
            "properties": {**dict.fromkeys(own, True), **{spec.key: _property(spec, definitions) for spec in specs}},
            "required": [spec.key for spec in specs if spec.required],
            "additionalProperties": False,
        }
        condition = {"properties": {"type": {"const": name}}, "required": ["type"]}
        conditions.append({"if": condition, "then": then})
    schema: _Schema = {"type": "object", "properties": own, "required": ["type"]}
    if conditions:
        schema["allOf"] = conditions
    return schema


def _dataclass(cls: type[Any], definitions: _Schema) -> _Schema:
    name = f"{cls.__module__}.{cls.__qualname__}"
    if name not in definitions:
        definitions[name] = {}  # a dataclass may hold itself
        specs = fields_of(cls)
        definitions[name] = {
            "type": "object",
            "description": inspect.getdoc(cls) or "",
            "properties": {spec.key: _property(spec, definitions) for spec in specs},
            "required": [spec.key for spec in specs if spec.required],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _property(spec: FieldSpec, definitions: _Schema) -> _Schema:
    schema = _type(spec.hint, spec.bounds, definitions)
    if not spec.required:  # null takes the default
        if "enum" in schema:
            schema = {**schema, "enum": [*schema["enum"], None]}
        elif isinstance(schema.get("type"), str) and "oneOf" not in schema:
            schema = {**schema, "type": [schema["type"], "null"]}
        else:
            schema = {"anyOf": [schema, {"type": "null"}]}
    return _documented(schema, spec)


def _documented(schema: _Schema, spec: FieldSpec) -> _Schema:
    if spec.documentation:
        schema = {**schema, "description": spec.documentation}
    if not spec.required and spec.default is not None:
        schema = {**schema, "default": to_plain(spec.default, spec.hint)}
    return schema


def _type(hint: Any, bounds: Bounds | None, definitions: _Schema) -> _Schema:
    hint, metadata = split_annotated(hint)
    bounds = next((item for item in metadata if isinstance(item, Bounds)), bounds)
    members = union_members(hint)
    if len(members) > 1 or is_optional(hint):
        alternatives = [_type(member, bounds, definitions) for member in members]
        return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
    if hint is str:
        # the text of any scalar is taken
        return {"type": ["string", "number", "boolean"]}
    if hint is bool:
        return {"type": "boolean"}
    if hint is int or hint is float:
        return {"type": "integer" if hint is int else "number", **_range(bounds)}
    if hint is Duration:
        return {"anyOf": [{"type": "string", "pattern": _DURATION_PATTERN}, {"const": 0}]}
    if hint is Octets:
        return {"anyOf": [{"type": "string", "pattern": _OCTETS_PATTERN}, {"type": "integer", **_range(bounds)}]}
    if hint is Secret:
        return _secret()
    if get_origin(hint) is Literal:
        return {"enum": [str(value) for value in get_args(hint)]}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [str(member.value) for member in hint]}
    if (item := sequence_item(hint)) is not None:
        return {"type": "array", "items": _type(item, bounds, definitions)}
    if (item := mapping_value(hint)) is not None:
        return {"type": "object", "additionalProperties": _type(item, bounds, definitions)}
    return _other(hint, definitions)


def _other(hint: Any, definitions: _Schema) -> _Schema:
    if isinstance(hint, type) and (hasattr(hint, "from_text") or hint.__module__.startswith("pathlib")):
        return {"type": "string"}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass(hint, definitions)
    raise TypeError(f"a configuration field cannot have the type {hint!r}")


def _secret() -> _Schema:
    def written(key: str) -> _Schema:
        return {"properties": {key: {"type": "string"}}, "required": [key], "additionalProperties": False}

    return {"type": "object", "oneOf": [written("file"), written("env")]}


def _range(bounds: Bounds | None) -> _Schema:
    if bounds is None:
        return {}
    schema: _Schema = {"minimum": bounds.minimum}
    if bounds.maximum is not None and math.isfinite(bounds.maximum):
        schema["maximum"] = bounds.maximum
    return schema
