"""Types of configuration fields that mean more than their Python type.

A plugin's configuration is a frozen dataclass; these are the words its fields may use beside str, int,
float, bool, Path, Literal, Enum, tuples, dictionaries and nested dataclasses::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class LogConfig:
        path: Annotated[Path, "the file to append to"]
        max_size: Annotated[Octets, Bounds(1), "rotate when a write would make the file larger"] = Octets(104857600)
        password: Secret | None = None

A plain string inside ``Annotated`` is the key's documentation.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NewType, NoReturn, Self

from flowjoin._model.errors import ConfigError

__all__ = ["Bounds", "Duration", "Key", "Octets", "Secret"]

Duration = NewType("Duration", float)
"""Seconds; written in Go syntax: ``90s``, ``1m30s``, ``250ms``."""

Octets = NewType("Octets", int)
"""A size; written ``256MiB``, ``1GiB``, ``4096``."""


_MAX_SECRET_OCTETS: Final = 1024 * 1024  # what a Kubernetes Secret may hold; a device would never end


@dataclass(frozen=True, slots=True)
class Bounds:
    """Inside ``Annotated``: the least and the greatest value of a number, a Duration (seconds) or Octets."""

    minimum: float
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """Inside ``Annotated``: the key in the file, where it is not the field's name in lowerCamelCase."""

    name: str


class Secret:
    """A value that is never written into the configuration: ``{file: PATH}`` or ``{env: NAME}``.

    It holds only the place. Two secrets are equal when their places are. Printing gives ``***``; there
    is no way to pickle one, because what is pickled travels.
    """

    __slots__ = ("_kind", "_place")
    _kind: Literal["file", "env"]
    _place: str

    def __init__(self, kind: Literal["file", "env"], place: str) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_place", place)

    def reveal(self) -> str:
        """The value as it is now: read at each call, so that a rotated secret is seen.

        One line break at a file's end does not count. Reading a file blocks; secrets are small.

        Raises:
            ConfigError: the file cannot be read, is too large or not UTF-8, or the variable is not set.
        """
        if self._kind == "env":
            try:
                return os.environ[self._place]
            except KeyError:
                raise ConfigError(f"the environment variable {self._place} of a secret is not set") from None
        try:
            with Path(self._place).open("rb") as file:
                octets = file.read(_MAX_SECRET_OCTETS + 1)
            text = octets.decode("utf-8")
        except (OSError, ValueError) as exc:
            # a UnicodeDecodeError carries the file's octets: say what happened, chain nothing
            cause = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"the file {self._place} of a secret cannot be read: {cause}") from None
        if len(octets) > _MAX_SECRET_OCTETS:
            raise ConfigError(f"the file {self._place} of a secret is larger than {_MAX_SECRET_OCTETS} octets")
        return text.removesuffix("\n").removesuffix("\r")

    @property
    def is_file(self) -> bool:
        """Whether it is in a file, and not in a variable of the environment."""
        return self._kind == "file"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Secret cannot be changed")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return (self._kind, self._place) == (other._kind, other._place)

    def __hash__(self) -> int:
        return hash((Secret, self._kind, self._place))

    def __repr__(self) -> str:
        return "***"

    def __format__(self, _format_spec: str) -> str:
        return "***"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")
