from __future__ import annotations

import argparse
import re
import sys
import types
from collections.abc import Callable

import pytest

from flowjoin.__main__ import main
from flowjoin._cli.commands import COMMANDS, Command, CommandError
from flowjoin._model.errors import BindError, ConfigError, DestinationError, PluginLoadError


def command_that(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[argparse.Namespace], int], name: str = "probe"
) -> Command:
    module = types.ModuleType(f"flowjoin._cli.{name}")
    module.__dict__.update(run=run, add_arguments=lambda parser: parser.add_argument("--number", type=int, default=0))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Command(name, "what it does")


def raiser(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(_arguments: argparse.Namespace) -> int:
        raise error

    return run


def test_a_command_gets_its_arguments_and_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    command = command_that(monkeypatch, lambda arguments: int(arguments.number))
    assert main(["probe", "--number", "1"], commands=[command]) == 1
    assert main(["probe"], commands=[command]) == 0


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (
            ConfigError("is missing; give text", path="exporters[0].type", line=3, source="f.conf"),
            2,
            "flowjoin: f.conf:3: exporters[0].type: is missing; give text\n",
        ),
        (PluginLoadError("is not installed", plugin="log"), 2, "flowjoin: plugin 'log': is not installed\n"),
        (CommandError("input file cut short", exit_code=1), 1, "flowjoin: input file cut short\n"),
        (ConfigError("must be text, not \x1b[31m"), 2, "flowjoin: must be text, not \\x1b[31m\n"),
        (BindError("the address is in use", address="[::]:4739"), 1, "flowjoin: the address is in use\n"),
        (DestinationError("nobody listens", address="h:1"), 1, "flowjoin: nobody listens\n"),
        (KeyboardInterrupt(), 130, ""),
        (BaseExceptionGroup("nursery", [KeyboardInterrupt()]), 130, ""),
        (
            ExceptionGroup("nursery", [ExceptionGroup("inner", [ConfigError("first")]), ConfigError("second")]),
            2,
            "flowjoin: first\nflowjoin: second\n",
        ),
    ],
)
def test_what_went_wrong_is_one_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, sentence: str
) -> None:
    assert main(["probe"], commands=[command_that(monkeypatch, raiser(error))]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", sentence)


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        main(["probe"], commands=[command_that(monkeypatch, raiser(ZeroDivisionError()))])


def test_a_bug_among_expected_errors_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = ExceptionGroup("nursery", [ConfigError("x"), ZeroDivisionError()])
    with pytest.raises(ExceptionGroup):
        main(["probe"], commands=[command_that(monkeypatch, raiser(group))])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["probe", "--number", "x"], ["probe", "extra"], ["--nonsense"]])
def test_wrong_usage_is_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    assert main(argv, commands=[command_that(monkeypatch, lambda _: 0)]) == 2
    assert capsys.readouterr().err.startswith("usage: flowjoin")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["porbe"], 'flowjoin: error: there is no command "porbe"; did you mean "probe"?'),
        (["x"], 'flowjoin: error: there is no command "x"; flowjoin --help lists the commands'),
        (["--verson"], 'flowjoin: error: unrecognized arguments: --verson; did you mean "--version"?'),
        (["probe", "--nmber=1"], 'flowjoin probe: error: unrecognized arguments: --nmber=1; did you mean "--number"?'),
        (
            ["probe", "extra"],
            "flowjoin probe: error: unrecognized arguments: extra; flowjoin probe --help lists what there is",
        ),
    ],
)
def test_a_word_that_is_misspelt_is_told_with_the_nearest_and_the_usage_of_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], sentence: str
) -> None:
    assert main(argv, commands=[command_that(monkeypatch, lambda _: 0)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.splitlines()[-1]) == ("", sentence)


def test_an_option_of_an_action_is_told_by_the_action(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "flowrecords", "--scrip", "192.0.2.1"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        'flowjoin get flowrecords: error: unrecognized arguments: --scrip 192.0.2.1; did you mean "--srcip"?'
    )


def test_without_a_word_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "validate a configuration without starting anything" in captured.err


def test_version_names_the_kernels_form_and_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(
        r"flowjoin \d+\.\d+\.\d+\S*, kernel (python|compiled), \w+ 3\.\d+\.\d+\S*\n", capsys.readouterr().out
    )


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = {
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ") and line[4] != " "
    }
    assert listed >= {command.name for command in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_listed_command_has_a_module_that_keeps_to_the_frame(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command.name, "--help"]) == 0
    assert f"usage: flowjoin {command.name}" in capsys.readouterr().out
    assert callable(command.load().run)


def test_only_the_commands_own_module_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    command = command_that(monkeypatch, lambda _: 0)
    missing = Command("missing", "its module does not exist")
    assert main(["probe"], commands=[missing, command]) == 0
    with pytest.raises(ModuleNotFoundError):
        main(["missing"], commands=[missing, command])
