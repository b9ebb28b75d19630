"""The engine inside this process, loaded without a change of the working directory.

``import chdb`` goes to its own folder and comes back when a library of 175 MB is loaded. The working directory is the
whole process's: a log file or a state directory with a relative path that is opened meanwhile, on another thread, would
be in that folder. Nothing of the import needs it.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

from flowjoin.api import RetryableExportError
from flowjoin_clickhouse._url import EmbeddedDestination

__all__ = ["load_engine", "make_directory"]

_ONE_AT_A_TIME = threading.Lock()


def load_engine() -> None:
    """Import ``chdb``; from then on other imports of it find it loaded.

    Raises:
        ImportError: it is not installed, or cannot be loaded.
    """
    with _ONE_AT_A_TIME:
        if "chdb" in sys.modules:
            return
        change, importing = os.chdir, threading.get_ident()

        def change_unless_importing(path: Any) -> None:  # whatever os.chdir takes
            if threading.get_ident() != importing:
                change(path)

        os.chdir = change_unless_importing
        try:
            importlib.import_module("chdb")
        finally:
            os.chdir = change


def make_directory(destination: EmbeddedDestination) -> None:
    """For its owner alone, where it is not there: flows say who talks to whom.

    Raises:
        RetryableExportError: it cannot be made.
    """
    if destination.path is None:
        return
    try:
        Path(destination.path).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise RetryableExportError(f"{destination} cannot be made: {exc.strerror}") from exc
