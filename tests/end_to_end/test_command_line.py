"""The program as a process: exit codes and pipes."""

from __future__ import annotations

import subprocess
import sys


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
