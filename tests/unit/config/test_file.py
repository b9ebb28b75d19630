from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowjoin._config.file import read_again
from flowjoin._model.errors import ConfigError


def problem_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_again(str(path))
    return str(caught.value)


def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "flowjoin.yaml"
    path.write_bytes(b"mode: Proxy\n")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_again(str(link)) == b"mode: Proxy\n"


@pytest.mark.parametrize("octets", [b"", b"\n \n", b"# mode: Proxy\n  #\n"])
def test_what_an_editor_or_a_full_disk_left_empty_is_no_configuration(tmp_path: Path, octets: bytes) -> None:
    path = tmp_path / "flowjoin.yaml"
    path.write_bytes(octets)
    assert problem_of(path) == f"{path}: is empty"


def test_a_pipe_in_the_files_place_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "flowjoin.yaml"
    os.mkfifo(path)  # to open it for reading would wait for a writer
    assert problem_of(path) == f"{path}: cannot be read: it is no file any more"


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    assert problem_of(tmp_path / "absent") == f"{tmp_path / 'absent'}: cannot be read: No such file or directory"
    assert problem_of(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
