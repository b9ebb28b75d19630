"""The configuration file's octets, and what they say."""

from __future__ import annotations

import os
import stat
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from flowjoin._config.load import LoadedConfig, load_config
from flowjoin._config.nodes import MAX_CHARACTERS
from flowjoin._model.errors import ConfigError

__all__ = ["parse_file", "read_again", "read_file", "text_of"]

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


def read_again(path: str) -> bytes:
    """As ``read_file``, of a file that has been read before; never waits for somebody to write.

    Raises:
        ConfigError: it cannot be read, is none any more, or holds nothing, as after a full disk.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError("cannot be read: it is no file any more", source=path)
            octets = file.read(_MAX_OCTETS + 1)
    except (OSError, ValueError) as exc:
        cause = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise ConfigError(f"cannot be read: {cause}", source=path) from exc
    # At a start it would mean every default; while we run it would take every exporter out.
    if all(line.strip()[:1] in (b"", b"#") for line in octets.splitlines()):
        raise ConfigError("is empty", source=path)
    return octets


def parse_file(octets: bytes, path: str, *, strict: bool = False, for_agent: bool = False) -> LoadedConfig:
    """Validate what was read; ``strict`` and ``for_agent`` as of ``load_config``.

    Raises:
        ConfigError: what is in it cannot be used.
    """
    return load_config(
        text_of(octets, path),
        path,
        strict=strict,
        in_cluster=_is_in_cluster(),
        for_agent=for_agent,
        knows_node=bool(os.environ.get("NODE_NAME")),
    )


def text_of(octets: bytes, path: str) -> str:
    """What was read as text, without a byte order mark.

    Raises:
        ConfigError: it is none.
    """
    try:
        return octets.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = octets.count(b"\n", 0, exc.start) + 1
        raise ConfigError("is not UTF-8 text; save it as UTF-8", line=line, source=path) from exc


def _is_in_cluster() -> bool:
    """Whether this is a Pod as Antrea's Deployment makes it, with the plugin that speaks to a cluster."""
    is_pod = all(os.environ.get(name) for name in ("KUBERNETES_SERVICE_HOST", "POD_NAMESPACE"))
    return is_pod and bool(entry_points(group="flowjoin.plugins", name="kubernetes"))
