"""A ``flowjoin run`` of a test's own, as a process, and traffic for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from agent_traffic import agent_messages
from waiting import wait_until

from flowjoin._generator.config import TrafficConfig


class Program:
    """A running flowjoin whose log lines are read as they come."""

    def __init__(self, *arguments: str, path: Path | None = None, code: str | None = None) -> None:
        """Start it; ``path`` is where more can be imported from, ``code`` is run in place of the program."""
        environment = os.environ if path is None else {**os.environ, "PYTHONPATH": str(path)}
        program = ["-m", "flowjoin"] if code is None else ["-c", code]
        self._start([sys.executable, *program, "run", *arguments], environment)

    @classmethod
    def of(cls, command: Sequence[str], environment: Mapping[str, str]) -> Program:
        """One that is started by another command, which becomes it."""
        program = cls.__new__(cls)
        program._start(command, environment)
        return program

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.errors: list[str] = []

    def wait_line(self, event: str) -> dict[str, Any]:
        """The next log line of an event."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line)
            if line.startswith("{"):
                facts: dict[str, Any] = json.loads(line)
                if facts["event"] == event:
                    return facts
        raise AssertionError(f"no line {event}: {''.join(self.errors)}")

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Until what it does elsewhere is done; it says nothing of that."""

        def is_so_while_it_runs() -> bool:
            assert self.process.poll() is None, "it has ended"
            return is_so()

        wait_until(is_so_while_it_runs)

    def wait_ready(self) -> str:
        """Wait until everything is open; gives where the first collector listens."""
        addresses: list[str] = self.wait_line("ready")["addresses"]
        return addresses[0].rpartition("/")[2]

    def finish(self) -> int:
        """Wait for its end, and for all that it said."""
        # Not communicate(): what came together with a line that was waited for is read already, and it would miss that.
        with ThreadPoolExecutor() as readers:
            written = [readers.submit(self._read, stream) for stream in (self.process.stdout, self.process.stderr)]
            try:
                code = self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
            self.errors.append(written[1].result())
        return code

    @staticmethod
    def _read(stream: IO[str] | None) -> str:
        assert stream is not None
        return stream.read()

    def stop(self) -> int:
        """Tell it to stop, and wait."""
        self.process.terminate()
        return self.finish()

    @property
    def text(self) -> str:
        return "".join(self.errors)


Run = Callable[..., Program]


def send(address: str, traffic: TrafficConfig) -> None:
    """Every agent's Messages over one connection each; returns when they are read to the end."""
    host, _, port = address.rpartition(":")
    streams: dict[int, socket.socket] = {}
    for message, session in agent_messages(traffic):
        if session.serial not in streams:
            streams[session.serial] = socket.create_connection((host, int(port)))
        streams[session.serial].sendall(message)
    for stream in streams.values():
        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(1) == b""  # the collector closes when it has read everything
        stream.close()
