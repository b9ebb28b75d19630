"""Documentation is true: links lead somewhere, marked blocks run, the reference is complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from held_port import HeldPort

import flowjoin.api
from flowjoin._model import errors
from flowjoin._model.reasons import Reason
from flowjoin.api import _hookspecs

REPOSITORY = Path(__file__).parents[2]
REFERENCE = REPOSITORY / "docs" / "reference"
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w+) run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(REPOSITORY))

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")


def pages() -> list[Page]:
    found = [
        path
        for folder in ("docs", "core", "plugins", "plugin-template", "tests")
        for path in (REPOSITORY / folder).rglob("*.md")
        if not any(part.startswith(".") for part in path.relative_to(REPOSITORY).parts)
    ]
    return [Page(path) for path in sorted([*found, REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"])]


@pytest.mark.parametrize("page", pages(), ids=str)
def test_every_relative_link_leads_to_a_file(page: Page) -> None:
    for target in LINK.findall(FENCED.sub("", page.text)):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        assert (page.path.parent / target.split("#")[0]).exists(), f"{page}: {target}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages() if BLOCK.search(page.text)], ids=str)
def test_the_blocks_marked_run_do_run_in_order(page: Page, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "STATE_DIRECTORY": str(tmp_path / "state"),  # not the one that the machine has
    }
    # Ports that nobody uses, in place of the well-known ones that the pages name.
    with closing(HeldPort()) as collector, closing(HeldPort()) as api:
        text = page.text.replace(":4739", f":{collector.number}").replace(":10348", f":{api.number}")
        for language, code in BLOCK.findall(text):
            command = {
                "sh": ["bash", "-euo", "pipefail", "-c", code],
                "python": [sys.executable, "-W", "error", "-c", code],
            }
            done = subprocess.run(
                command[language],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, f"{page}:\n{code}\n{done.stdout}\n{done.stderr}"


def test_ci_runs_the_readmes_two_commands() -> None:
    blocks = re.findall(r"^```sh\n(.*?)\n```$", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    ci = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    for command in blocks[:2]:
        for step in command.split(" && "):
            assert step in ci, f".ci/run does not run: {step}"


def test_the_reference_names_every_hook() -> None:
    page = (REFERENCE / "hooks.md").read_text(encoding="utf-8")
    for name in _hookspecs.__all__:
        if name.startswith("flowjoin_"):
            assert f"`{name}`" in page, name


def test_the_reference_names_every_public_name_of_the_api() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in REFERENCE.rglob("*.md"))
    for name in flowjoin.api.__all__:
        assert f"`{name}" in text, name


def test_the_reference_names_every_error_and_reason() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    for name in (name for name in errors.__all__ if isinstance(getattr(errors, name), type)):
        assert f"`{name}`" in page, name
    for reason in Reason:
        assert f"`{reason.value}`" in page, reason.value


def test_the_architecture_names_every_room_and_plugin_and_nothing_else() -> None:
    page = (REPOSITORY / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    rooms, around = re.findall(r"^```\n((?:core/src/flowjoin/|plugins/ ).*?)^```$", page, re.M | re.S)

    package = REPOSITORY / "core" / "src" / "flowjoin"
    assert set(re.findall(r"^  (\w+)/", rooms, re.M)) == {path.parent.name for path in package.glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/", around, re.M)) == {
        path.parent.name for path in (REPOSITORY / "plugins").glob("*/pyproject.toml")
    }


def test_the_index_leads_to_every_page() -> None:
    docs = REPOSITORY / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    for folder in ("tutorial", "how-to", "reference", "explanation"):
        for page in (docs / folder).rglob("*.md"):
            if page.parent.name != "decisions":
                assert f"({page.relative_to(docs)})" in index, page
