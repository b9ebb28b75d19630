"""The stand-in for the API server in a process of its own, which can be killed and started again on its port."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio
from kubernetes_stand_in import KubernetesStandIn

__all__ = ["KubernetesProcess"]

PATIENCE = 60.0


class KubernetesProcess:
    """Serves the same objects each time it is started.

    Attributes:
        port: where it listens, from the first start on.
    """

    def __init__(self, objects: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._objects = json.dumps(objects)
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; it listens when this returns."""
        command = [sys.executable, __file__, str(self.port)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(self._objects)
        process.stdin.close()
        self._process = process
        self.port = int(process.stdout.readline())

    def kill(self) -> None:
        """Kill it."""
        assert self._process is not None, "it was started"
        self._process.kill()
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Started, and killed at the end."""
        self.start()
        try:
            yield
        finally:
            self.kill()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Killed, and started again at the end."""
        self.kill()
        try:
            yield
        finally:
            self.start()


async def _main(port: int) -> None:
    server = KubernetesStandIn()
    server.port = port
    for resource, manifest in json.load(sys.stdin):
        server.put(resource, manifest)
    async with server.serving():
        print(server.port, flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    trio.run(_main, int(sys.argv[1]))
