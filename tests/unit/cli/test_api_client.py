from __future__ import annotations

import json

import pytest

from flowjoin._cli.api_client import NoAnswer, read_array

RECORDS = [{"name": 'a"],[{\\'}, {}, {"number": 2**64 - 1, "list": [1, {"x": None}]}]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("records", [[], RECORDS[:1], RECORDS])
def test_an_array_cut_anywhere_gives_its_objects(records: list[dict[str, object]], size: int) -> None:
    text = json.dumps(records, separators=(",", ":")).encode() + b"\n"
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    assert list(read_array(pieces)) == records


def test_null_is_no_object() -> None:
    assert list(read_array(iter([b"nu", b"ll\n"]))) == []


@pytest.mark.parametrize("text", [b"", b"[", b'[{"a":1}', b'[{"a":1},', b"<html>", b"nul"])
def test_what_ends_before_its_end_is_cut_short(text: bytes) -> None:
    with pytest.raises(NoAnswer, match="cut short"):
        list(read_array(iter([text])))


def test_what_holds_no_objects_is_no_answer_of_flowjoins() -> None:
    with pytest.raises(NoAnswer, match="no flowjoin"):
        list(read_array(iter([b"[1,2]"])))
