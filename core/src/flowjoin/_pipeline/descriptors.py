"""How many files and sockets may be open at once: as many as the system lets us."""

from __future__ import annotations

import resource
from typing import Final

from flowjoin.api._types import Logger

__all__ = ["raise_open_files"]

_OTHER_THAN_SESSIONS: Final = 256  # spools, logs, listening sockets, exporters' own connections


def raise_open_files(sessions: int, log: Logger) -> None:
    """Raise the soft limit to the hard one; warn where TCP sessions could meet it before ``limits.sessions``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as exc:  # the system's own maximum is lower
            log.warning("open_files_not_raised", limit=soft, problem=str(exc))
    if soft != resource.RLIM_INFINITY and soft < sessions + _OTHER_THAN_SESSIONS:
        problem = "limits.sessions is more than the open files allow; raise LimitNOFILE= or ulimit -Hn"
        log.warning("open_files_limited", limit=soft, sessions=sessions, problem=problem)
