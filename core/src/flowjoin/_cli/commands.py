"""The commands. A new one is a module here with ``add_arguments(parser)`` and ``run(arguments)``, and a line below."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from typing import Final, Protocol, cast

__all__ = [
    "COMMANDS",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_UNUSABLE",
    "Command",
    "CommandError",
    "CommandModule",
]

EXIT_FAILED: Final = 1  # the run failed
EXIT_UNUSABLE: Final = 2  # what was given cannot be used; argparse ends with it too
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, what a shell expects


class CommandModule(Protocol):
    """What the module of a command has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; gives the exit code.

        Raises:
            ConfigError, PluginError: become one sentence and ``EXIT_UNUSABLE``.
            CommandError: becomes its sentence and exit code.
        """
        ...


class CommandError(Exception):
    """A command ends here, with one sentence for the person who gave it.

    Attributes:
        exit_code: ``EXIT_FAILED`` or ``EXIT_UNUSABLE``.
    """

    def __init__(self, problem: str, *, exit_code: int) -> None:
        super().__init__(problem)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Command:
    """A name and its one-line help; the module is imported when the command is used, because some are heavy."""

    name: str
    help: str

    def load(self) -> CommandModule:
        """Import the command's module."""
        return cast(CommandModule, importlib.import_module(f"flowjoin._cli.{self.name.replace('-', '_')}"))


COMMANDS: Final = (
    Command("run", "collect, join and deliver flows until told to stop"),
    Command("agent", "send this Node's connections to a Flow Aggregator, or anywhere, until told to stop"),
    Command("check", "validate a configuration without starting anything"),
    Command("decode", "print what is in a pcap, a pcapng or an IPFIX File, before anything is joined"),
    Command("generate", "send realistic traffic of a small cluster to a collector"),
    Command("replay", "send a capture through the whole pipeline, with the capture's own clock"),
    Command("spool", "list, check or send again what waits in spools and what was refused"),
    Command("certs", "make and show certificates for TLS: an authority, servers, clients"),
    Command("get", "ask a running flowjoin for its flow records or its counters"),
    Command("top", "watch a running flowjoin: rates, lanes, flows, what was dropped and why"),
    Command("log-level", "ask a running flowjoin for the level of its log, or change it"),
    Command("config", "print the JSON Schema of the configuration, for editors"),
    Command("plugins", "list the installed plugins"),
)
