"""What commands that connect over TLS share: whom to trust, and what to show."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path

from flowjoin._cli.commands import EXIT_UNUSABLE, CommandError

__all__ = ["add_tls_arguments", "tls_context"]


def add_tls_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--ca``, ``--certificate``, ``--key`` and ``--server-name``."""
    group = parser.add_argument_group("TLS")
    group.add_argument("--ca", type=Path, metavar="FILE", help="authorities to trust, PEM; default: the system's")
    group.add_argument("--certificate", type=Path, metavar="FILE", help="what we show, PEM")
    group.add_argument("--key", type=Path, metavar="FILE", help="its private key, PEM; default: in --certificate")
    group.add_argument("--server-name", metavar="NAME", help="the name that the other's certificate must have")


def tls_context(arguments: argparse.Namespace, *, is_tls: bool) -> ssl.SSLContext | None:
    """What to connect with; None without TLS.

    Raises:
        CommandError: a file cannot be used, or is given without TLS.
    """
    given = [name for name in ("ca", "certificate", "key", "server_name") if getattr(arguments, name) is not None]
    if not is_tls:
        if given:
            problem = f"--{given[0].replace('_', '-')} is for TLS; write the address with tls:// or https://"
            raise CommandError(problem, exit_code=EXIT_UNUSABLE)
        return None
    if arguments.key is not None and arguments.certificate is None:
        raise CommandError("--key is given without --certificate", exit_code=EXIT_UNUSABLE)
    try:
        context = ssl.create_default_context(cafile=arguments.ca)
    except (OSError, ssl.SSLError) as exc:
        raise CommandError(f"--ca {arguments.ca} cannot be used: {_words(exc)}", exit_code=EXIT_UNUSABLE) from exc
    if arguments.certificate is not None:
        try:
            # Without a password function the library would ask for one at the terminal.
            context.load_cert_chain(arguments.certificate, arguments.key, password=lambda: "")
        except (OSError, ssl.SSLError) as exc:
            files = " with ".join(str(path) for path in (arguments.certificate, arguments.key) if path is not None)
            raise CommandError(f"--certificate {files} cannot be used: {_words(exc)}", exit_code=EXIT_UNUSABLE) from exc
    return context


def _words(exc: OSError) -> str:
    if isinstance(exc, ssl.SSLError):
        return exc.reason.lower().replace("_", " ") if exc.reason else "it holds no PEM of the kind that belongs there"
    return exc.strerror or str(exc)
