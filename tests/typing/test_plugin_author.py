"""mypy --strict, as plugin authors run it, says of the examples beside this file what they say of themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")

EXAMPLES = sorted(path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_"))
EXPECTED = re.compile(r"# error: ([a-z-]+)$")
SAID = re.compile(r"^[^:]+:(\d+): error: .*\[([a-z-]+)\]$")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_what_must_type_check_does_and_what_must_not_does_not(example: Path, tmp_path: Path) -> None:
    expected = [
        (number, match[1])
        for number, line in enumerate(example.read_text(encoding="utf-8").splitlines(), start=1)
        if (match := EXPECTED.search(line))
    ]
    copy = tmp_path / example.name  # apart from this repository and its settings
    copy.write_text(example.read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", copy.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = [match.groups() for match in map(SAID.match, done.stdout.splitlines()) if match]
    assert [(int(line), code) for line, code in said] == expected, done.stdout + done.stderr
