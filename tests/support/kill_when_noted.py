"""Kills a ClickHouse engine the moment it notes an insert in a table's deduplication log, before it stores the rows.

``python kill_when_noted.py PID DIRECTORY`` prints ``WATCHING``, waits until the newest log in the directory grows, and
sends SIGKILL. A kill by the clock meets those microseconds once in hundreds of times.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    """Watch, kill, end."""
    pid, directory = int(sys.argv[1]), Path(sys.argv[2])
    log = max(directory.iterdir())
    before = log.stat().st_size
    deadline = time.monotonic() + 300
    print("WATCHING", flush=True)
    while log.stat().st_size == before:
        if time.monotonic() > deadline:
            sys.exit("nothing was noted")
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
