"""Every command and every option stands in the reference of the command line, once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowjoin._cli.commands import COMMANDS, Command

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
SECTIONS = dict(re.findall(r"^## `flowjoin ([\w-]+)(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S))


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from options(inner)
        yield from action.option_strings


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_has_a_section_that_names_its_options(command: Command) -> None:
    parser = argparse.ArgumentParser(add_help=True)
    command.load().add_arguments(parser)
    missing = {name for name in options(parser) if name not in SECTIONS[command.name]}
    assert missing - {"-h", "--help"} == set()


def test_no_command_is_described_twice() -> None:
    described = re.findall(r"^## `flowjoin ([\w-]+)", PAGE.read_text(encoding="utf-8"), re.M)
    assert sorted(described) == sorted(command.name for command in COMMANDS)
