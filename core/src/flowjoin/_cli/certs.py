"""``flowjoin certs``: an authority in a directory, certificates of it, and what is there."""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cryptography import x509

from flowjoin._certificates.directory import write_pair
from flowjoin._certificates.inventory import Held, read_directory
from flowjoin._certificates.profiles import BACKDATED, VALIDITY, Pair, make_authority, make_client, make_server
from flowjoin._certificates.renewal import RENEWED_BEFORE, authority_problem
from flowjoin._cli.commands import EXIT_FAILED, EXIT_UNUSABLE, CommandError
from flowjoin._cli.output import Cell, add_output_argument, write_rows
from flowjoin._config.durations import parse_duration

__all__ = ["add_arguments", "run"]

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9*][A-Za-z0-9_.*-]{0,63}", re.ASCII)
_COLUMNS: Final = ("file", "kind", "name", "names", "ends", "days_left", "state")
_MAX_VALIDITY: Final = datetime.timedelta(days=100 * 366)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    init = actions.add_parser("init", help="make an authority: DIR/ca.crt, and DIR/ca.key that must stay secret")
    init.add_argument("directory", type=Path, metavar="DIR")
    init.add_argument("--name", default="flowjoin-ca", help="its common name (default: flowjoin-ca)")
    issue = actions.add_parser("issue", help="make a certificate of the authority in DIR")
    issue.add_argument("directory", type=Path, metavar="DIR")
    kind = issue.add_mutually_exclusive_group(required=True)
    kind.add_argument("--server", metavar="NAME", help="DIR/NAME.crt and .key for a server of this DNS name or address")
    kind.add_argument("--client", metavar="NAME", help="DIR/NAME.crt and .key for a client")
    issue.add_argument(
        "--san", action="append", default=[], metavar="NAME", help="one more DNS name or address of the server"
    )
    issue.add_argument("--renew", action="store_true", help="take the place of files that are there")
    for each in (init, issue):
        each.add_argument(
            "--valid-for",
            type=_validity,
            metavar="TIME",
            help="such as 730d or 48h (default: 365d, and no longer than the authority)",
        )
    show = actions.add_parser("show", help="list the certificates in DIR, and what is wrong with them")
    show.add_argument("directory", type=Path, metavar="DIR")
    add_output_argument(show)


def run(arguments: argparse.Namespace) -> int:
    """Do it; ``show`` gives 1 when something is wrong with a certificate.

    Raises:
        CommandError: it cannot be done.
    """
    actions: dict[str, Callable[[argparse.Namespace], int]] = {"init": _init, "issue": _issue, "show": _show}
    try:
        return actions[arguments.action](arguments)
    except FileExistsError as exc:
        hint = "; --renew takes its place" if arguments.action == "issue" else "; an authority is not made twice"
        raise CommandError(f"{exc.filename} is there already{hint}", exit_code=EXIT_UNUSABLE) from exc
    except ValueError as exc:
        raise CommandError(str(exc), exit_code=EXIT_UNUSABLE) from exc
    except OSError as exc:
        raise CommandError(f"{exc.filename}: {exc.strerror}", exit_code=EXIT_FAILED) from exc


def _init(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.directory
    certificate = directory / "ca.crt"
    for path in (certificate, directory / "ca.key"):
        if path.exists():
            raise FileExistsError(17, "is there already", str(path))
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_pair(certificate, make_authority(arguments.name, _now(), validity=arguments.valid_for or VALIDITY))
    print(f"{certificate}: give it to everybody who is to trust what this authority issues; keep ca.key secret")
    return 0


def _issue(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.directory
    name: str = arguments.server or arguments.client
    if not _FILE_NAME.fullmatch(name.replace(":", "_")) or name in ("ca", "ca.crt"):
        raise ValueError(f'"{name[:80]}" cannot be a file\'s name; write 1 to 64 letters, digits, "_", "." or "-"')
    if arguments.client and arguments.san:
        raise ValueError("--san is of servers; a client has its name alone")
    try:
        authority = Pair(certificate=(directory / "ca.crt").read_bytes(), key=(directory / "ca.key").read_bytes())
    except FileNotFoundError as exc:
        raise ValueError(f"{exc.filename} is not there; make an authority: flowjoin certs init {directory}") from exc
    now = _now()
    problem = authority_problem(authority, now, renewed_before=datetime.timedelta())  # it may be near its end
    if problem is not None:
        raise ValueError(f"{directory / 'ca.crt'} cannot issue: {problem}")
    ends = x509.load_pem_x509_certificate(authority.certificate).not_valid_after_utc
    rest = ends - (now - BACKDATED)
    validity = min(VALIDITY, rest) if arguments.valid_for is None else arguments.valid_for
    if arguments.server:
        pair = make_server(authority, name, now, names=(name, *arguments.san), validity=validity)
    else:
        pair = make_client(authority, name, now, validity=validity)
    certificate = directory / f"{name.replace(':', '_').replace('*', '_')}.crt"
    write_pair(certificate, pair, is_renewal=arguments.renew)
    print(f"{certificate} {certificate.with_suffix('.key')}")
    for warning in _about_ends(directory / "ca.crt", ends, now, is_outlived=validity > rest):
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _about_ends(path: Path, ends: datetime.datetime, now: datetime.datetime, *, is_outlived: bool) -> Iterator[str]:
    """What to say of an authority that is not there for as long as one might think."""
    if is_outlived:
        yield f"the certificate outlives its authority: nobody takes it after {ends:%Y-%m-%d}, when {path} ends"
    elif ends - now < RENEWED_BEFORE:
        yield f"{path} ends on {ends:%Y-%m-%d}, and with it what it issues; make a new one in another directory"


def _show(arguments: argparse.Namespace) -> int:
    if not arguments.directory.is_dir():
        raise ValueError(f"{arguments.directory} is no directory")
    held = read_directory(arguments.directory, _now())
    rows: list[dict[str, Cell]] = [
        {
            "file": each.file,
            "kind": each.kind,
            "name": each.name,
            "names": list(each.names),
            "ends": each.ends,
            "days_left": each.days_left,
            "state": each.problem or each.remark or "ok",
        }
        for each in held
    ]
    write_rows(_COLUMNS, rows, arguments.output, empty=f"no certificate is in {arguments.directory}")
    return _verdict(held)


def _verdict(held: tuple[Held, ...]) -> int:
    bad = [each.file for each in held if each.problem]
    if bad:
        print(f"flowjoin: something is wrong with {', '.join(bad)}", file=sys.stderr)
    return EXIT_FAILED if bad else 0


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _validity(text: str) -> datetime.timedelta:
    try:
        if text.endswith("d") and text[:-1].isascii() and text[:-1].isdecimal() and len(text) < 7:
            validity = datetime.timedelta(days=int(text[:-1]))
        else:
            validity = datetime.timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as exc:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write days or hours such as 730d or 48h") from exc
    if not datetime.timedelta(hours=2) <= validity <= _MAX_VALIDITY:
        raise argparse.ArgumentTypeError(f"{text!r} must be from 2h to 36600d; it counts from an hour ago")
    return validity
