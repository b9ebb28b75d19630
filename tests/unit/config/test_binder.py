from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest

from flowjoin._config.binder import bind
from flowjoin._config.nodes import read_document
from flowjoin._model.errors import ConfigError
from flowjoin.api._settings import Bounds, Duration, Key, Octets, Secret


class Colour(enum.Enum):
    RED = "red"
    DARK_BLUE = "darkBlue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    retries: Annotated[int, Bounds(0, 10)] = 3
    password: Secret | None = None

    def __post_init__(self) -> None:
        if self.retries == 7:
            raise ValueError("seven retries bring bad luck; write 6 or 8")
        if self.retries == 8:
            raise ConfigError("is too much of a good thing; write 6", path="retries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """What a plugin's author may use."""

    text: str
    number: int = 0
    share: Annotated[float, Bounds(0, 1), "a share"] = 0.5
    is_on: bool = False
    interval: Duration = Duration(1.0)
    max_size: Octets = Octets(1)
    place: Path = Path("/")
    colour: Colour = Colour.RED
    choice: Literal["a", 2] = "a"
    maybe: Optional[int] = None  # noqa: UP045 - the older spelling works too
    names: tuple[str, ...] = ()
    numbers: list[Annotated[int, Bounds(1)]] | None = None
    sequence: Sequence[int] = ()
    table: dict[str, Inner] | None = None
    headers: Mapping[str, str] | None = None
    inner: Inner = Inner()
    either: int | tuple[int, ...] = 0
    k8s_names: Annotated[bool, Key("includeK8sNames")] = True
    token: Secret | None = None


def bound(text: str) -> Everything:
    return bind(read_document(text), Everything, path="exporters[1]", source="f")


def error(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        bound(text)
    return str(caught.value)


def test_every_kind_of_field_is_bound_by_its_key() -> None:
    assert bound(
        """
text: 007
number: -0x10
share: 1
isOn: yes
interval: 1m30s
maxSize: 1KiB
place: relative/file
colour: darkBlue
choice: 2
maybe: 5
names: [a, 1, no]
numbers: [1, 2]
sequence: [3]
table: {x: {retries: 1}, y: {}}
headers: {A-b: c}
inner: {retries: 10, password: {file: /p}}
either: [1, 2]
includeK8sNames: false
token: {env: TOKEN}
"""
    ) == Everything(
        text="007",
        number=-16,
        share=1.0,
        is_on=True,
        interval=Duration(90.0),
        max_size=Octets(1024),
        place=Path("relative/file"),
        colour=Colour.DARK_BLUE,
        choice=2,
        maybe=5,
        names=("a", "1", "no"),
        numbers=[1, 2],
        sequence=(3,),
        table={"x": Inner(retries=1), "y": Inner()},
        headers={"A-b": "c"},
        inner=Inner(retries=10, password=Secret("file", "/p")),
        either=(1, 2),
        k8s_names=False,
        token=Secret("env", "TOKEN"),
    )


def test_null_takes_the_default_everywhere() -> None:
    assert bound("text: a\nnumber:\nmaybe: ~\ninner: null\ntoken:\n") == Everything(text="a")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("number: 1", "f:1: exporters[1].text: is missing; give text"),
        ("text: ~", "f:1: exporters[1].text: is missing; give text"),
        ("text: {a: b}", "f:1: exporters[1].text: must be text, not a mapping"),
        ("text: a\nnumber: 1.5", 'f:2: exporters[1].number: must be a whole number, not "1.5"'),
        ("text: a\nnumber: 1:30", 'f:2: exporters[1].number: must be a whole number, not "1:30"'),
        ("text: a\nshare: .inf", 'f:2: exporters[1].share: must be a number from 0 to 1, not ".inf"'),
        ("text: a\nshare: 2", 'f:2: exporters[1].share: must be a number from 0 to 1, not "2"'),
        ("text: a\nisOn: 1", 'f:2: exporters[1].isOn: must be true or false, not "1"'),
        ("text: a\nplace: ''", 'f:2: exporters[1].place: must be a path, not ""'),
        ("text: a\ncolour: RED", 'f:2: exporters[1].colour: must be red or darkBlue, not "RED"; did you mean "red"?'),
        ("text: a\nchoice: 3", 'f:2: exporters[1].choice: must be a or 2, not "3"'),
        ("text: a\nnames: b", 'f:2: exporters[1].names: must be a list, each item text, not "b"'),
        ("text: a\nnames:\n- b\n- [c]", "f:4: exporters[1].names[1]: must be text, not a list"),
        ("text: a\nnumbers: [1, 0]", 'f:2: exporters[1].numbers[1]: must be a whole number, at least 1, not "0"'),
        ("text: a\nheaders: [a]", "f:2: exporters[1].headers: must be a mapping, not a list"),
        ("text: a\nheaders: {a: [b]}", "f:2: exporters[1].headers.a: must be text, not a list"),
        (
            "text: a\ntable: {x: {retries: 11}}",
            'f:2: exporters[1].table.x.retries: must be a whole number from 0 to 10, not "11"',
        ),
        ("text: a\ninner:\n  retries: 7", "f:3: exporters[1].inner: seven retries bring bad luck; write 6 or 8"),
        ("text: a\ninner: {retry: 7}", 'f:2: exporters[1].inner.retry: is not a known key; did you mean "retries"?'),
        ("text: a\neither: x", 'f:2: exporters[1].either: must be a whole number, not "x"'),
        (
            "text: a\neither: {}",
            "f:2: exporters[1].either: must be a whole number or a list, each item a whole number, not a mapping",
        ),
        (
            "text: " + "x" * 70 + "\nnumber: " + "y" * 70,
            f'f:2: exporters[1].number: must be a whole number, not "{"y" * 60}…"',
        ),
        ("text: a\nnumber: " + "9" * 5000, f'f:2: exporters[1].number: must be a whole number, not "{"9" * 60}…"'),
    ],
)
def test_a_wrong_value_is_named_with_key_line_and_what_would_be_right(text: str, sentence: str) -> None:
    assert error(text) == sentence


@pytest.mark.parametrize(
    "written",
    ["hunter2", "[hunter2]", "{hunter2: x}", "{file: [hunter2]}", "{env: x, file: hunter2}", "{file: ''}", "{}"],
)
def test_a_secret_written_into_the_file_is_refused_and_not_repeated(written: str) -> None:
    assert error(f"text: a\ntoken: {written}") == (
        "f:2: exporters[1].token: a secret is not written into the configuration; write {file: PATH} or {env: NAME}"
    )


def test_an_instance_with_a_secret_prints_no_place() -> None:
    assert "/p" not in repr(bound("text: a\ninner: {password: {file: /p}}"))


def test_lists_are_kept_from_growing_where_the_field_is_a_tuple() -> None:
    assert isinstance(bound("text: a\nnames: [b]").names, tuple)


@dataclass(frozen=True)
class Unbindable:
    thing: complex = 0j


@dataclass(frozen=True)
class Unresolvable:
    thing: "Missing" = None  # type: ignore[name-defined]  # noqa: F821, UP037 - the point


@pytest.mark.parametrize("cls", [Unbindable, Unresolvable, int])
def test_a_field_of_another_type_is_its_authors_bug(cls: type[Any]) -> None:
    with pytest.raises(TypeError):
        bind(read_document("thing: 1"), cls)


def test_what_a_dataclass_says_of_one_of_its_keys_has_the_path_and_the_line_of_that_key() -> None:
    assert error("text: a\ninner:\n  password: {env: P}\n  retries: 8\n") == (
        "f:4: exporters[1].inner.retries: is too much of a good thing; write 6"
    )
