from __future__ import annotations

import enum
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
import yaml

from flowjoin._config.json_schema import json_schema
from flowjoin.api._settings import Bounds, Duration, Octets, Secret

CASES = Path(__file__).parents[2] / "data" / "config"
GOOD = [
    file
    for file in sorted(CASES.glob("*.in.yaml"))
    if not file.name.startswith("error-")
    and file.name not in ("unknown-keys-warn.in.yaml", "antrea-empty-texts.in.yaml")
]


class Level(enum.Enum):
    LOW = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """A plugin's configuration."""

    path: Annotated[Path, "the file"]
    max_size: Octets = Octets(1024)
    flush: Annotated[Duration, Bounds(0)] = Duration(5.0)
    password: Secret | None = None
    level: Level = Level.LOW
    headers: dict[str, str] | None = None


@functools.cache
def core_validator() -> jsonschema.Draft202012Validator:
    return validator()


def validator(plugins: dict[str, dict[str, type[Any]]] | None = None) -> jsonschema.Draft202012Validator:
    schema = json_schema(plugins)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(json.loads(json.dumps(schema)))


@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.name)
def test_what_the_loader_takes_the_schema_takes(file: Path) -> None:
    assert [
        error.message for error in core_validator().iter_errors(yaml.safe_load(file.read_text(encoding="utf-8")))
    ] == []


@pytest.mark.parametrize(
    "case",
    [
        "mode",
        "choice",
        "bare-duration",
        "size",
        "integer",
        "text-is-a-list",
        "list-expected",
        "missing-key",
        "unknown-own-key",
        "unknown-key-strict",
        "unknown-section-key-strict",
        "element-definition",
        "spool-word",
        "section-is-no-mapping",
    ],
)
def test_what_the_loader_refuses_by_shape_the_schema_refuses(case: str) -> None:
    document = yaml.safe_load((CASES / f"error-{case}.in.yaml").read_text(encoding="utf-8"))
    assert not core_validator().is_valid(document)


@pytest.mark.parametrize(
    ("entry", "is_valid"),
    [
        ({"type": "log", "path": "/f"}, True),
        ({"type": "log", "path": "/f", "name": "a", "spool": "none", "maxSize": "1MiB", "flush": "1s"}, True),
        ({"type": "log", "path": "/f", "password": {"env": "A"}, "level": "low", "headers": {"a": "b"}}, True),
        ({"type": "log", "path": "/f", "password": None}, True),
        ({"type": "log"}, False),
        ({"type": "log", "path": "/f", "maxSzie": 1}, False),
        ({"type": "log", "path": "/f", "maxSize": "much"}, False),
        ({"type": "log", "path": "/f", "flush": 5}, False),
        ({"type": "log", "path": "/f", "password": "hunter2"}, False),
        ({"type": "log", "path": "/f", "password": {"env": "A", "file": "b"}}, False),
        ({"type": "log", "path": "/f", "level": "high"}, False),
        ({"type": "other", "anything": [1]}, True),
    ],
)
def test_the_keys_of_an_installed_plugin_are_checked(entry: dict[str, Any], is_valid: bool) -> None:
    assert validator({"exporters": {"log": LogConfig}}).is_valid({"exporters": [entry]}) is is_valid


def test_every_key_of_the_core_is_described() -> None:
    schema = json_schema()
    assert [key for key, value in schema["properties"].items() if not value.get("description")] == []
    for name, definition in schema["$defs"].items():
        assert [
            f"{name}.{key}" for key, value in definition["properties"].items() if not value.get("description")
        ] == []


def test_defaults_stand_in_the_files_notation() -> None:
    limits = next(value for key, value in json_schema()["$defs"].items() if key.endswith(".Limits"))
    assert limits["properties"]["stall"]["default"] == "30s"
    assert limits["properties"]["stringBytes"]["default"] == "256MiB"


def test_a_type_no_configuration_may_have_is_its_authors_bug() -> None:
    @dataclass(frozen=True)
    class Unbindable:
        thing: complex = 0j

    with pytest.raises(TypeError, match="a configuration field cannot have the type"):
        json_schema({"exporters": {"log": Unbindable}})
