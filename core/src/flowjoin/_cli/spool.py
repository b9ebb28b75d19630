"""``flowjoin spool list|check|resend``: what waits in spools, whether it can be read, and sending it elsewhere."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from flowjoin._cli.commands import CommandError
from flowjoin._cli.output import Cell, add_output_argument, write_rows
from flowjoin._cli.printable import printable
from flowjoin._config.model import is_name
from flowjoin._pipeline.spool.inspecting import Findings, examine, lane_of
from flowjoin._pipeline.spool.places import SPOOL, spool_directories
from flowjoin._pipeline.spool.resending import resend
from flowjoin._pipeline.state_directory import is_state_directory, open_state
from flowjoin.wire.registry import default_registry

__all__ = ["add_arguments", "run"]

_EXIT_FAILED: Final = 1
_EXIT_UNUSABLE: Final = 2
_KINDS: Final = {False: "waiting", True: "dead letters"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    for action, text in (
        ("list", "what waits, by exporter"),
        ("check", "read all of it; ends 1 if something is damaged"),
    ):
        each = actions.add_parser(action, help=text, description=text)
        each.add_argument("directory", metavar="DIR", help="a state directory, a spool, or its dead letters")
        add_output_argument(each)
    text = "put what waits, or was refused, into a lane's spool once more; flowjoin must not be running"
    again = actions.add_parser("resend", help=text, description=text)
    again.add_argument("directory", metavar="DIR", help="one exporter's spool, or its dead letters")
    again.add_argument("--to", metavar="NAME", help="the exporter to send to (default: the one that refused them)")
    again.add_argument("--state", metavar="DIR", help="the state directory of that exporter (default: where DIR lies)")


def run(arguments: argparse.Namespace) -> int:
    """Do it.

    Raises:
        CommandError: the directory is none with spools, something is damaged, or it cannot be sent there.
        ConfigError: the state directory is in use.
    """
    try:
        if arguments.action == "resend":
            return _resend(Path(arguments.directory).absolute(), arguments.to, arguments.state)
        return _show(arguments)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        cause = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise CommandError(f"{arguments.directory} cannot be used: {cause}", exit_code=_EXIT_UNUSABLE) from exc


def _show(arguments: argparse.Namespace) -> int:
    is_check = arguments.action == "check"
    registry = default_registry()
    found = [
        examine(directory, registry, is_thorough=is_check)
        for directory in _directories(Path(arguments.directory).absolute())
    ]
    columns = ["exporter", "kind", "segments", "batches", "rows", "octets", "oldest"]
    columns += ["damaged_rows", "damaged_lines"] if is_check else ["reasons"]
    write_rows(columns, [_row(each) for each in found], arguments.output, empty="nothing waits")
    problems = [problem for each in found for problem in each.problems]
    for problem in problems:
        print(f"flowjoin: {printable(problem)}", file=sys.stderr)
    if is_check and problems:
        raise CommandError("not all of it can be delivered; the rest is", exit_code=_EXIT_FAILED)
    return 0


def _directories(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise CommandError(f"{directory} is no directory", exit_code=_EXIT_UNUSABLE)
    found = spool_directories(directory)
    is_spool = is_state_directory(directory) or directory.name == SPOOL or (directory / "cursor").exists()
    if not found and not is_spool:
        problem = f"{directory} has no spool; name a state directory, or a directory below its {SPOOL}/"
        raise CommandError(problem, exit_code=_EXIT_UNUSABLE)
    return found


def _row(findings: Findings) -> dict[str, Cell]:
    oldest = None if findings.oldest is None else datetime.fromtimestamp(findings.oldest, UTC)
    return {
        "exporter": findings.lane,
        "kind": _KINDS[findings.is_dead_letters],
        "segments": findings.segments,
        "batches": findings.batches,
        "rows": findings.rows,
        "octets": findings.octets,
        "oldest": None if oldest is None else oldest.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reasons": [f"{rows} rows: {_last_line(reason)}" for reason, rows in findings.reasons.items()],
        "damaged_rows": findings.damaged_rows,
        "damaged_lines": findings.damaged_lines,
    }


def _last_line(reason: str) -> str:
    """What was raised, of a traceback."""
    return reason.strip().rpartition("\n")[2]


def _resend(directory: Path, to: str | None, state_argument: str | None) -> int:
    if not directory.is_dir() or directory not in spool_directories(directory):
        raise CommandError(f"{directory} holds no segments of one exporter", exit_code=_EXIT_UNUSABLE)
    home = next((folder for folder in directory.parents if is_state_directory(folder)), None)
    state_directory = home if state_argument is None else Path(state_argument).absolute()
    if state_directory is None or not is_state_directory(state_directory):
        problem = f"{directory} lies in no state directory; name the one to send from with --state"
        raise CommandError(problem, exit_code=_EXIT_UNUSABLE)
    lane, _ = lane_of(directory)
    name = to or lane
    if not is_name(name):
        raise CommandError(f"{name} is no name of an exporter", exit_code=_EXIT_UNUSABLE)
    target = state_directory / SPOOL / name
    if target == directory:
        problem = f"what waits in {directory} goes to {name} in any case; name another exporter with --to"
        raise CommandError(problem, exit_code=_EXIT_UNUSABLE)
    with open_state(state_directory) as state:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            done = resend(
                directory,
                target,
                instance_id=state.instance_id,
                lane=name,
                epoch=state.epoch,
                registry=default_registry(),
                is_moved=state_directory == home,
            )
        except KeyboardInterrupt:
            print("flowjoin: interrupted; what is left is where it was: give the command again", file=sys.stderr)
            raise
    for problem in done.problems:
        print(f"flowjoin: {printable(problem)}", file=sys.stderr)
    print(f"{done.rows} rows in {done.batches} batches wait for {name}; flowjoin run delivers them")
    if done.problems:
        raise CommandError(f"{done.damaged_rows} rows were damaged and not sent", exit_code=_EXIT_FAILED)
    return 0
