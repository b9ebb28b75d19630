"""The program as a process: exit codes and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def test_a_closed_pipe_ends_the_program_quietly() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "flowjoin", "config", "schema", "--no-plugins"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_a_usage_error_is_exit_code_2() -> None:
    result = subprocess.run([sys.executable, "-m", "flowjoin"], capture_output=True, timeout=60, check=False)
    assert result.returncode == 2
    assert result.stdout == b""


def flowjoin(*arguments: str, redirection: str) -> tuple[int, str]:
    """Exit code, and what comes to standard error, under a shell's redirection."""
    words: Sequence[str] = (sys.executable, "-m", "flowjoin", *arguments)
    result = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {redirection}', *words], capture_output=True, timeout=60, check=False
    )
    return result.returncode, result.stderr.decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["plugins"], ["config", "schema", "--no-plugins"]])
def test_an_output_that_cannot_be_written_is_exit_code_1_and_a_sentence(arguments: list[str]) -> None:
    problem = f"flowjoin: standard output cannot be written: {os.strerror(28)}\n"
    assert flowjoin(*arguments, redirection="> /dev/full") == (1, problem)


@pytest.mark.parametrize("redirection", [">&-", "<&- >&-", "<&-"])
def test_a_stream_that_is_closed_does_no_harm(redirection: str) -> None:
    assert flowjoin("plugins", redirection=redirection) == (0, "")


@pytest.mark.parametrize("redirection", ["2>&-", "<&- >&- 2>&-", "2> /dev/full"])
def test_the_exit_code_is_told_where_no_sentence_can_be(redirection: str) -> None:
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    assert flowjoin("check", "-c", "absent", redirection=redirection) == (2, "")
