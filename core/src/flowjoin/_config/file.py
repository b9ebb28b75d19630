"""The configuration file's octets, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flowjoin._config.load import LoadedConfig, load_config
from flowjoin._config.nodes import MAX_CHARACTERS
from flowjoin._model.errors import ConfigError

__all__ = ["parse_file", "read_file"]

_MAX_OCTETS: Final = 4 * MAX_CHARACTERS  # UTF-8


def read_file(path: str) -> bytes:
    """What is in the file, or the beginning of what is too long to be one.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_OCTETS + 1)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        cause = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise ConfigError(f"cannot be read: {cause}", source=path) from exc


def parse_file(octets: bytes, path: str, *, strict: bool = False) -> LoadedConfig:
    """Validate what was read.

    Raises:
        ConfigError: what is in it cannot be used.
    """
    try:
        text = octets.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = octets.count(b"\n", 0, exc.start) + 1
        raise ConfigError("is not UTF-8 text", line=line, source=path) from exc
    return load_config(text, path, strict=strict)
