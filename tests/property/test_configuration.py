"""Any text is a configuration or a ConfigError."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowjoin._config.binder import bind
from flowjoin._config.durations import format_duration, parse_duration
from flowjoin._config.endpoint import Endpoint
from flowjoin._config.flow_collector_address import parse_flow_collector_address
from flowjoin._config.json_schema import json_schema
from flowjoin._config.load import LoadedConfig, load_config
from flowjoin._config.model import Config, Limits
from flowjoin._config.nodes import read_document
from flowjoin._config.sizes import format_octets, parse_octets
from flowjoin._model.errors import ConfigError
from flowjoin.api._settings import Bounds, Duration, Octets, Secret

CASES = sorted((Path(__file__).parents[1] / "data" / "config").glob("*.in.yaml"))
SAMPLES = [file.read_text(encoding="utf-8") for file in CASES]
KEYS = sorted(json_schema()["properties"])

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["30s", "1GiB", "udp", "none", "[::]:4739", "log", "host:1:tcp", "Proxy", "0"]),
)
keys = st.one_of(st.sampled_from([*KEYS, "type", "name", "spool", "enable", "tls", "protocol", "elements"]), st.text())
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def load(text: str, *, strict: bool = False) -> LoadedConfig | None:
    try:
        return load_config(text, "f", strict=strict)
    except ConfigError as exc:
        error = exc
    assert str(error).startswith("f")
    assert error.problem
    return None


@given(st.text())
@example("{}")
@example("a: 1\n? &a [*a]\n: b")
@example("\ufeffmode: Proxy")
def test_any_text_gives_a_configuration_or_a_config_error(text: str) -> None:
    load(text)


@given(
    st.lists(
        st.sampled_from(
            [
                ":",
                "-",
                " ",
                "\n",
                "{",
                "}",
                "[",
                "]",
                "&a",
                "*a",
                "?",
                "|",
                ">",
                "'",
                '"',
                "!",
                "%",
                "#",
                "<<",
                "\t",
                "a",
                "mode",
                "1",
            ]
        )
    )
)
def test_any_sequence_of_yamls_own_marks_gives_a_configuration_or_a_config_error(parts: list[str]) -> None:
    load("".join(parts))


@given(st.sampled_from(SAMPLES), st.data())
def test_a_sample_cut_or_changed_anywhere_gives_a_configuration_or_a_config_error(
    text: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, min(len(text), at + 10)))
    load(text[:at] + data.draw(st.text(max_size=5)) + text[until:])


@given(st.dictionaries(keys, values, max_size=5), st.booleans())
@settings(max_examples=100)
def test_any_values_under_known_keys_give_a_configuration_or_a_config_error(
    document: dict[str, object], strict: bool
) -> None:
    load(yaml.safe_dump(document, allow_unicode=True), strict=strict)


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    secret: Secret | None = None
    retries: Annotated[int, Bounds(0, 10)] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """Every kind of field under a name the strategy knows."""

    type: Path | None = None
    name: float | tuple[str, ...] = 0.5
    spool: Inner | Literal["none"] = "none"
    enable: bool = False
    tls: dict[str, Inner] | None = None
    protocol: Colour = Colour.RED
    elements: tuple[Octets | Inner, ...] = ()
    log: Annotated[Duration, Bounds(1)] = Duration(1)
    mode: Secret | None = None
    limits: Endpoint | None = None


@given(st.dictionaries(st.sampled_from([field.name for field in fields(PluginConfig)]), values, max_size=4))
@settings(max_examples=100)
def test_any_values_for_a_plugins_keys_give_its_configuration_or_a_config_error(document: dict[str, object]) -> None:
    node = read_document(yaml.safe_dump(document, allow_unicode=True))
    try:
        config = bind(node, PluginConfig, path="exporters[0]", source="f")
    except ConfigError as exc:
        error = exc
    else:
        assert isinstance(config, PluginConfig)
        return
    assert error.path.startswith("exporters[0].")
    assert error.line is not None


@given(st.integers(-(2**53), 2**53))
def test_a_duration_survives_being_printed_and_read(nanoseconds: int) -> None:
    seconds = nanoseconds / 1e9
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-9)


@given(st.text(alphabet="0123456789.hmsnuµ+- "))
def test_any_text_gives_a_duration_or_a_value_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert abs(seconds) < 300 * 365 * 86400


@given(st.integers(0, 2**63 - 1))
def test_a_size_survives_being_printed_and_read(octets: int) -> None:
    assert parse_octets(format_octets(octets)) == octets


@given(st.text(alphabet="0123456789.[]:/abct"))
def test_any_text_gives_an_address_or_a_value_error(text: str) -> None:
    for read in (Endpoint.from_text, lambda text: parse_flow_collector_address(text, 4739, "tcp")):
        try:
            port = read(text).port
        except ValueError:
            continue
        assert 0 <= port <= 65535


@given(st.integers(1, 2**31 - 1), st.integers(2**20, 2**50))
def test_what_is_written_is_what_is_bound(flows: int, octets: int) -> None:
    document = read_document(f"flows: {flows}\nstringBytes: {octets}\n")
    assert bind(document, Limits) == Limits(flows=flows, string_bytes=Octets(octets))


@pytest.mark.parametrize("text", SAMPLES)
def test_every_sample_gives_the_same_twice(text: str) -> None:
    assert load(text) == load(text)


def test_the_configuration_is_a_value() -> None:
    assert hash(Config()) == hash(Config())
