from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from flowjoin._config.changes import applied, compare
from flowjoin._config.fields import fields_of
from flowjoin._config.load import load_config
from flowjoin._config.model import Config

OLD = """
collectors: [{protocol: udp}]
exporters:
  - {type: log, path: /a}
limits: {flows: 5}
log: {level: info}
apiServer: {address: "127.0.0.1:1"}
"""


@pytest.mark.parametrize(
    ("new", "live", "fixed"),
    [
        (OLD, (), ()),
        ("# comment\n\n" + OLD.replace("{type: log, path: /a}", "type: log\n    path: '/a'"), (), ()),
        (OLD.replace("/a", "/b"), ("exporters",), ()),
        (OLD.replace("info", "debug") + "shutdownGracePeriod: 1s", ("shutdownGracePeriod", "log.level"), ()),
        (
            OLD + "recordContents: {podLabels: true, elements: [x]}",
            ("recordContents.podLabels",),
            ("recordContents.elements",),
        ),
        (OLD + "flowLogger: {enable: true}", ("exporters",), ()),
        (
            OLD.replace("udp", "tcp").replace("flows: 5", "flows: 6").replace(":1", ":2") + "mode: Proxy",
            (),
            ("mode", "collectors", "limits.flows", "apiServer.address"),
        ),
    ],
)
def test_changed_keys_are_named_and_told_apart(new: str, live: tuple[str, ...], fixed: tuple[str, ...]) -> None:
    changes = compare(load_config(OLD, "f").config, load_config(new, "f").config)
    assert (changes.live, changes.fixed) == (live, fixed)


# every key of the reference, at top level and in the groups below, and whether a reload changes it
LIVE = {
    "shutdownGracePeriod",
    "exporters",
    "recordContents.podLabels",
    "log.level",
    "log.format",
    "csvQuoting",
}


def leaves(value: Any, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Keys, each with the names of the fields on the way to it."""
    found: dict[str, tuple[str, ...]] = {}
    for spec in fields_of(type(value)):
        inner = getattr(value, spec.name)
        if dataclasses.is_dataclass(inner):
            below = leaves(inner, f"{prefix}{spec.key}.")
            found.update({key: (spec.name, *names) for key, names in below.items()})
        else:
            found[f"{prefix}{spec.key}"] = (spec.name,)
    return found


def altered(config: Any, names: tuple[str, ...], value: object) -> Any:
    name, *rest = names
    new = altered(getattr(config, name), tuple(rest), value) if rest else value
    return dataclasses.replace(config, **{name: new})


@pytest.mark.parametrize("key", sorted(leaves(Config())))
def test_each_key_is_live_or_waits_for_a_restart_and_is_applied_accordingly(key: str) -> None:
    old, names = Config(), leaves(Config())[key]
    new = altered(old, names, Path("another value"))
    changes = compare(old, new)

    assert (changes.live, changes.fixed) == (((key,), ()) if key in LIVE else ((), (key,)))
    assert applied(old, new) == (new if key in LIVE else old)


def test_the_live_keys_are_keys() -> None:
    assert set(leaves(Config())) > LIVE
