"""The scripts people and CI run, and how tests find real programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

MADE_BY_SETUP = {"installed", "servers"}
SCRIPTS = sorted(path for path in (Path(__file__).parents[2] / ".ci").iterdir() if path.name not in MADE_BY_SETUP)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_each_script_can_be_run_and_is_sh(script):
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", str(script)], check=True)


def test_a_program_that_is_there_is_given_with_its_path(require_program):
    assert os.access(require_program("sh"), os.X_OK)


def test_a_program_that_set_up_could_not_get_skips_with_the_reason(require_program, monkeypatch, tmp_path):
    monkeypatch.setenv("FLOWJOIN_REQUIRE_REAL", "1")
    monkeypatch.setenv("FLOWJOIN_INSTALLED", str(tmp_path / "nothing"))
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed"):
        require_program("no-such-program")


def test_a_program_that_set_up_installed_must_be_there_when_real_ones_are_required(
    require_program, monkeypatch, tmp_path
):
    listing = tmp_path / "installed"
    listing.write_text("sh\nno-such-program\n")
    monkeypatch.setenv("FLOWJOIN_INSTALLED", str(listing))
    monkeypatch.setenv("FLOWJOIN_REQUIRE_REAL", "1")
    with pytest.raises(pytest.fail.Exception, match="installed no-such-program, and it is not there"):
        require_program("no-such-program")
    monkeypatch.setenv("FLOWJOIN_REQUIRE_REAL", "0")
    with pytest.raises(pytest.skip.Exception):
        require_program("no-such-program")
