from __future__ import annotations

import pytest

from flowjoin._config.nodes import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    Entry,
    MappingNode,
    ScalarNode,
    SequenceNode,
    read_document,
)
from flowjoin._model.errors import ConfigError


def error(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_document(text, "f")
    return caught.value


@pytest.mark.parametrize("text", ["", " \n", "# a\n", "---\n", "---\n...\n", "null", "~\n"])
def test_an_empty_document_is_none(text: str) -> None:
    assert read_document(text) is None


def test_nodes_know_their_lines_and_what_was_written() -> None:
    document = read_document("a: 1\nb:\n  - 'x'\n  - yes\n")
    assert document is not None
    assert [(entry.key, entry.line) for entry in document.entries] == [("a", 1), ("b", 2)]
    items = document.entries[1].value
    assert isinstance(items, SequenceNode)
    assert [(item.text, item.kind, item.quoted, item.line) for item in items.items if isinstance(item, ScalarNode)] == [
        ("x", "str", True, 3),
        ("yes", "bool", False, 4),
    ]


def test_nodes_are_equal_when_their_contents_are_wherever_they_stand() -> None:
    assert read_document("a: 1\nb: [x]") == read_document("\n\na:   1\nb:\n- 'x'\n")


def test_a_date_is_text() -> None:
    assert read_document("a: 2001-01-01") == MappingNode(
        entries=(Entry(key="a", value=ScalarNode(text="2001-01-01", kind="str", line=1), line=1),), line=1
    )


def test_nesting_is_bounded_before_the_interpreters_stack_is() -> None:
    assert str(error("a: " + "[" * 5000)) == f"f:1: nested deeper than {MAX_DEPTH} levels"
    assert read_document("a: " + "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)) is not None


def test_aliases_cannot_multiply_without_end() -> None:
    steps = "\n".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}'] * 10)}]" for i in range(1, 10))
    problem = error("k0: &k0 [x, x, x, x, x, x, x, x, x, x]\n" + steps).problem
    assert problem == "more than 100000 values once aliases are followed"


def test_a_file_is_bounded() -> None:
    assert str(error("#" * (MAX_CHARACTERS + 1))) == "f: the file is larger than 1048576 characters"


def test_characters_yaml_does_not_allow_are_named_with_their_line() -> None:
    assert str(error("a: 1\nb: \x07")) == "f:2: the character U+0007 is not allowed in YAML"
    assert str(error("a: 1\nb: \ud800")) == "f:2: the character U+D800 is not allowed in YAML"


@pytest.mark.parametrize("text", ['"\\UFFFFFFFF": 1', '"\\U00110000": 1', "%YAML 9" + "9" * 5000 + ".1\n---\na: 1"])
def test_what_makes_the_yaml_library_stumble_is_a_config_error(text: str) -> None:
    assert error(text).problem.startswith("not valid YAML: ")


def test_a_merged_key_never_wins_over_a_written_one() -> None:
    document = read_document("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: {x: 3, <<: *a}\nd: {<<: [*a, {x: 9, z: 9}]}")
    assert document is not None
    plain = {}
    for entry in document.entries[1:]:
        assert isinstance(entry.value, MappingNode)
        plain[entry.key] = {e.key: e.value.text for e in entry.value.entries if isinstance(e.value, ScalarNode)}
    assert plain == {"b": {"x": "3", "y": "2"}, "c": {"x": "3", "y": "2"}, "d": {"x": "1", "y": "2", "z": "9"}}


def test_merged_entries_of_a_key_given_twice_name_both_lines() -> None:
    assert str(error("a: 1\nb: 2\na: 3\n")) == 'f:3: the key "a" is given twice, on lines 1 and 3'


@pytest.mark.parametrize("text", ['a: "x\\ud800"', '"\\uDFFF": 1', 'a: [{b: "\\ud83d\\ude00"}]'])
def test_half_a_character_is_refused_with_its_place(text: str) -> None:
    caught = error("k: 1\n" + text)
    assert caught.line == 2
    assert "is half of a character; write \\U and eight digits" in caught.problem
