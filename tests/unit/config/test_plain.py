from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from flowjoin._config.binder import bind
from flowjoin._config.nodes import read_document
from flowjoin._config.plain import dataclass_to_plain
from flowjoin.api._settings import Duration, Octets, Secret


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    place: Path = Path("/f")
    colour: Colour = Colour.RED
    limits: dict[str, Octets] | None = None
    interval: Duration | bool = False
    token: Secret | None = None
    ports: list[int] | None = None


TEXT = "{limits: {a: 1MiB}, interval: 90s, token: {env: TOKEN}, ports: [1, 2]}"


def test_values_stand_as_an_operator_writes_them_and_secrets_as_stars() -> None:
    assert dataclass_to_plain(bind(read_document(TEXT), Sample)) == {
        "place": "/f",
        "colour": "red",
        "limits": {"a": "1MiB"},
        "interval": "1m30s",
        "token": "***",
        "ports": [1, 2],
    }
    assert dataclass_to_plain(Sample())["interval"] is False
