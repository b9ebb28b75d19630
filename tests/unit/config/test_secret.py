from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from flowjoin._model.errors import ConfigError
from flowjoin.api._settings import Secret


def test_a_secret_in_a_file_is_read_at_each_use(tmp_path: Path) -> None:
    place = tmp_path / "password"
    place.write_text("first\n", encoding="utf-8")
    secret = Secret("file", str(place))
    assert secret.reveal() == "first"
    place.write_bytes(b" second \r\n")
    assert secret.reveal() == " second "


def test_only_one_line_break_at_the_end_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"two\n\n")
    assert Secret("file", str(tmp_path / "password")).reveal() == "two\n"


def test_a_secret_in_the_environment_is_read_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("env", "FLOWJOIN_TEST_SECRET")
    monkeypatch.setenv("FLOWJOIN_TEST_SECRET", "one")
    assert secret.reveal() == "one"
    monkeypatch.setenv("FLOWJOIN_TEST_SECRET", "two")
    assert secret.reveal() == "two"


def test_a_secret_that_is_not_there_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLOWJOIN_TEST_SECRET", raising=False)
    with pytest.raises(ConfigError, match="the environment variable FLOWJOIN_TEST_SECRET of a secret is not set"):
        Secret("env", "FLOWJOIN_TEST_SECRET").reveal()
    with pytest.raises(ConfigError, match=r"gone of a secret cannot be read: No such file or directory"):
        Secret("file", str(tmp_path / "gone")).reveal()


def test_a_device_without_end_is_no_secret() -> None:
    with pytest.raises(ConfigError, match="the file /dev/zero of a secret is larger than 1048576 octets"):
        Secret("file", "/dev/zero").reveal()


def test_octets_of_an_unreadable_secret_are_in_no_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"hunter2\xff")
    with pytest.raises(ConfigError) as caught:
        Secret("file", str(tmp_path / "binary")).reveal()
    assert "it is not UTF-8 text" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_no_way_of_printing_gives_more_than_stars() -> None:
    secret = Secret("env", "HOME")
    assert {str(secret), repr(secret), f"{secret}", f"{secret:>10}", "".join(map(str, (secret,))), f"{[secret]}"} == {
        "***",
        "[***]",
    }


def test_secrets_are_equal_when_their_places_are() -> None:
    assert Secret("env", "A") == Secret("env", "A")
    assert Secret("env", "A") != Secret("file", "A")
    assert Secret("env", "A") != "A"
    assert len({Secret("env", "A"), Secret("env", "A"), Secret("env", "B")}) == 2


def test_a_secret_cannot_be_pickled_or_changed_but_copied() -> None:
    secret = Secret("env", "A")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(secret)
    with pytest.raises(AttributeError):
        secret._place = "B"
    with pytest.raises(AttributeError):
        del secret._place
    assert copy.copy(secret) is secret
    assert copy.deepcopy({"a": secret})["a"] is secret
