"""Golden files: equal octets pass, anything else says where it differs, and writing them is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowjoin.testing import compare_with_golden_file
from flowjoin.testing.golden import UPDATE_VARIABLE


@pytest.fixture(autouse=True)
def _not_updating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(UPDATE_VARIABLE, raising=False)


def test_equal_octets_pass(tmp_path: Path) -> None:
    path = tmp_path / "golden.txt"
    path.write_bytes(b"one\ntwo\n")
    compare_with_golden_file(path, b"one\ntwo\n")


@pytest.mark.parametrize(
    ("produced", "place"),
    [
        (b"one\ntvo\n", r"octet 5 \(line 2\)"),
        (b"one\n", r"octet 4 \(line 2\)"),
        (b"one\ntwo\nx", r"octet 8 \(line 3\)"),
    ],
)
def test_a_difference_is_told_with_its_place(tmp_path: Path, produced: bytes, place: str) -> None:
    path = tmp_path / "golden.txt"
    path.write_bytes(b"one\ntwo\n")
    with pytest.raises(AssertionError, match=rf"golden\.txt differs at {place}"):
        compare_with_golden_file(path, produced)


def test_a_file_that_is_not_there_is_not_taken_for_granted(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="there is no"):
        compare_with_golden_file(tmp_path / "golden.txt", b"")


def test_the_variable_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UPDATE_VARIABLE, "1")
    compare_with_golden_file(tmp_path / "new" / "golden.txt", b"text\n")
    assert (tmp_path / "new" / "golden.txt").read_bytes() == b"text\n"
