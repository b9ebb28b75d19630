"""argparse's parser, with what was probably meant where an option is misspelt."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from flowjoin._model.nearest import nearest

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """Parsers of commands below it are of this class too, because argparse makes them so."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # argparse's own signature
        super().__init__(*arguments, **named)
        self.set_defaults(parser=self)  # the innermost wins: it knows the options that were meant

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # argparse's own signature
        """As argparse does, but that the command which does not know an option says so."""
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            arguments.parser.refuse(unknown)
        return arguments

    def refuse_unknown(self, words: Sequence[str]) -> None:
        """Refuse words of which none is an option, or the beginning of one."""
        known = tuple(self._option_string_actions)
        if not any(option.startswith(word) for word in words for option in known):
            self.refuse(words)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Say which arguments are none, and what was probably meant by the first; ends with exit code 2."""
        word = unknown[0].partition("=")[0]
        near = nearest(word, self._option_string_actions) if word.startswith("-") else None
        hint = f'did you mean "{near}"?' if near is not None else f"{self.prog} --help lists what there is"
        self.error(f"unrecognized arguments: {' '.join(unknown)}; {hint}")
