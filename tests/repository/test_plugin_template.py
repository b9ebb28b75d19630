"""The template becomes a plugin by its README's commands, in an environment that has nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TEMPLATE = REPOSITORY / "plugin-template"
CONSTRAINTS = REPOSITORY / "constraints.txt"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy of the template under another name, installed beside the core."""

    directory: Path

    def run(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return _run([self.directory / ".venv" / "bin" / program, *arguments], self.directory)


def _run(command: Sequence[str | Path], directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FLOWJOIN_CFLAGS": "-O0"}  # a core to try things with is built in a third of the time
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


def _succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _commands() -> list[str]:
    (block,) = re.findall(r"```sh\n(.*?)```", (TEMPLATE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    commands: list[str] = block.splitlines()
    return commands


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    parent = tmp_path_factory.mktemp("template")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    reachable = _run(
        [
            *pip,
            "download",
            "--no-deps",
            "--timeout",
            "10",
            "--retries",
            "1",
            "-c",
            CONSTRAINTS,
            "-d",
            parent,
            "hatchling",
        ],
        parent,
    )
    if reachable.returncode:
        pytest.skip("the package index cannot be reached, and a build in isolation needs hatchling from it")
    repository = parent / "repository"
    unbuilt = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache")
    shutil.copytree(TEMPLATE, repository / "plugin-template", ignore=unbuilt)
    _succeeded(_run(["bash", "-euc", "\n".join(_commands()[:2])], repository))
    made = Copy(directory=parent / "flowjoin-tide")
    # Another environment's pip installs into it: an environment's own pip takes long to make.
    _succeeded(_run([sys.executable, "-m", "venv", "--without-pip", made.directory / ".venv"], parent))
    core = f"{REPOSITORY / 'core'}[testing]"
    into = ["--python", made.directory / ".venv" / "bin" / "python", "install", "--no-compile", "-c", CONSTRAINTS]
    _succeeded(_run([*pip, *into, core, ".[test]"], made.directory))
    return made


def test_the_readme_has_five_commands() -> None:
    assert len(_commands()) == 5


def test_nothing_of_the_old_name_is_left_in_the_copy(copy: Copy) -> None:
    left = [
        path
        for path in copy.directory.rglob("*")
        if ".venv" not in path.parts
        and ("example" in path.name or (path.is_file() and b"example" in path.read_bytes()))
    ]
    assert left == []


def test_the_copy_passes_the_kit(copy: Copy) -> None:
    output = _succeeded(copy.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider"))
    assert re.search(r"^13 passed, 1 skipped in ", output, re.MULTILINE), output


def test_the_copy_is_listed_and_its_configuration_is_good(copy: Copy) -> None:
    listed = json.loads(_succeeded(copy.run("flowjoin", "plugins", "--output", "json")))
    states = {(plugin["name"], plugin["distribution"]): plugin["state"] for plugin in listed}
    assert states[("tide", "flowjoin-tide")] == "ok"
    assert "flowjoin.yaml: good" in _succeeded(copy.run("flowjoin", "check", "-c", "flowjoin.yaml"))


def test_the_copy_delivers_what_is_replayed(copy: Copy) -> None:
    (copy.directory / "capture.ipfix").write_bytes(_ipfix_file())
    _succeeded(copy.run("flowjoin", "replay", "capture.ipfix", "-c", "flowjoin.yaml"))
    (flow,) = [json.loads(line) for line in (copy.directory / "flows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert flow["sourceIPv4Address"] == "192.0.2.1"
    assert flow["destinationIPv4Address"] == "198.51.100.7"
    assert flow["destinationTransportPort"] == 443
    assert flow["octetDeltaCount"] == 4200


def _ipfix_file() -> bytes:
    """One Message with a Template and one Data Record (RFC 7011 section 3), made by hand."""
    fields = [(8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (1, 8), (2, 8), (150, 4), (151, 4)]
    template = struct.pack("!HH", 256, len(fields)) + b"".join(struct.pack("!HH", *field) for field in fields)
    addresses = bytes([192, 0, 2, 1, 198, 51, 100, 7])
    record = addresses + struct.pack("!HHBQQII", 40000, 443, 6, 4200, 7, 1700000000, 1700000010)
    sets = b"".join(struct.pack("!HH", set_id, len(body) + 4) + body for set_id, body in ((2, template), (256, record)))
    return struct.pack("!HHIII", 10, len(sets) + 16, 1700000020, 0, 1) + sets
