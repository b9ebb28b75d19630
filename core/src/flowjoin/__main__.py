"""The program ``flowjoin``: finds the command, runs it, turns what went wrong into a sentence and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from flowjoin import __version__
from flowjoin._cli.commands import COMMANDS, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNUSABLE, Command, CommandError
from flowjoin._cli.parser import Parser
from flowjoin._cli.printable import printable
from flowjoin._cli.streams import forget_output, open_closed_streams
from flowjoin._model.errors import BindError, ConfigError, DestinationError, PluginError
from flowjoin._model.nearest import nearest

__all__ = ["main"]

# What writing to a full disk or a broken terminal fails with; of a file with a name, its own code says more.
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
_EXPECTED: Final = (CommandError, ConfigError, PluginError, BindError, DestinationError, KeyboardInterrupt)


class _Version(argparse.Action):
    """``--version``."""

    def __call__(self, parser: argparse.ArgumentParser, *_arguments: Any) -> None:  # argparse's own signature
        print(version_line())
        parser.exit()


def version_line() -> str:
    """What runs here: ``flowjoin 0.1.0, kernel compiled, CPython 3.11.2``.

    Raises:
        ConfigError: ``FLOWJOIN_KERNEL`` names a form that is not at hand.
    """
    from flowjoin._kernel.creation import kernel_form  # here: no other command needs it to find its way

    form = kernel_form(os.environ.get("FLOWJOIN_KERNEL", "auto"))
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"flowjoin {__version__}, kernel {form}, {python}"


def main(argv: Sequence[str] | None = None, *, commands: Sequence[Command] = COMMANDS) -> int:
    """Run one command.

    Returns:
        The exit code: 0 done, 1 the run failed, 2 usage or configuration, 130 interrupted.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    open_closed_streams()
    try:
        return _run(argv, commands)
    except SystemExit as exc:  # argparse: 0 after --help and --version, 2 after a usage error
        return exc.code if isinstance(exc.code, int) else 0
    except (*_EXPECTED, BaseExceptionGroup) as exc:
        found = list(_leaves(exc))
        if all(isinstance(leaf, BrokenPipeError) for leaf in found):
            return _reader_has_enough()
        if not all(isinstance(leaf, _EXPECTED) for leaf in found):
            raise  # a bug: its traceback is what is needed
        return min([_conclude(leaf) for leaf in found])  # a failed run says more than a refused one
    except BrokenPipeError:
        return _reader_has_enough()
    except OSError as exc:
        if exc.errno not in _UNWRITABLE or exc.filename is not None:
            raise
        forget_output()
        return _conclude(CommandError(f"standard output cannot be written: {exc.strerror}", exit_code=EXIT_FAILED))


def _reader_has_enough() -> int:
    forget_output()
    return 0


def _run(argv: list[str], commands: Sequence[Command]) -> int:
    parser = Parser(
        prog="flowjoin", description="Collects IPFIX, joins the two halves of each flow, delivers them anywhere."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print versions and leave")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    named = next((word for word in argv if not word.startswith("-")), "")
    if named and named not in [command.name for command in commands]:
        near = nearest(named, (command.name for command in commands))
        hint = "flowjoin --help lists the commands" if near is None else f'did you mean "{near}"?'
        parser.error(f'there is no command "{named[:60]}"; {hint}')
    module = None
    for command in commands:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        if command.name == named:
            module = command.load()
            module.add_arguments(subparser)
    if not argv:
        parser.print_help(sys.stderr)
        return EXIT_UNUSABLE
    if not named:
        parser.refuse_unknown(argv)
    arguments = parser.parse_args(argv)
    assert module is not None, "argparse took a command that is not the first word"
    code = module.run(arguments)
    sys.stdout.flush()  # a closed pipe shows here, not in Python's own clean-up
    return code


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group (trio's nurseries raise nothing else), however deep."""
    if isinstance(exc, BaseExceptionGroup):
        for inner in exc.exceptions:
            yield from _leaves(inner)
    else:
        yield exc


def _conclude(exc: BaseException) -> int:
    """Say what happened; gives the exit code."""
    if isinstance(exc, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    with contextlib.suppress(OSError):  # the exit code is told all the same
        print(f"flowjoin: {printable(str(exc))}", file=sys.stderr)
    if isinstance(exc, CommandError):
        return exc.exit_code
    return EXIT_FAILED if isinstance(exc, BindError | DestinationError) else EXIT_UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
