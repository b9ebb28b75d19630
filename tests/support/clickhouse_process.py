"""Runs the stand-in for a ClickHouse server as a process, which can be killed and started again."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from held_port import HeldPort
from waiting import wait_until

_PROGRAM = Path(__file__).with_name("clickhouse_stand_in.py")
_KILLER = Path(__file__).with_name("kill_when_noted.py")


def require_engine() -> None:
    """Skip where the engine is not installed; with FLOWJOIN_REQUIRE_REAL and a ``.ci/installed`` naming it, fail."""
    if importlib.util.find_spec("chdb") is not None:
        return
    reason = "ClickHouse's engine is not installed: pip install 'flowjoin-clickhouse[embedded]'"
    installed = Path(__file__).parents[2] / ".ci" / "installed"
    if (
        os.environ.get("FLOWJOIN_REQUIRE_REAL") == "1"
        and installed.exists()
        and "chdb" in installed.read_text().split()
    ):
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)


def require_engine_inside() -> None:
    """As ``require_engine``, for tests that load it into a process of flowjoin's code.

    It is loaded with RTLD_DEEPBIND, at which AddressSanitizer (``.ci/sanitize``) ends the process.
    """
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("ClickHouse's engine cannot be loaded beside AddressSanitizer")
    require_engine()


class TableData(NamedTuple):
    """A table that holds rows, and where."""

    name: str
    directory: str


class ClickHouseProcess:
    """One server on a directory; it keeps its port over restarts.

    Attributes:
        url: of its HTTP interface.
    """

    def __init__(
        self,
        path: Path,
        *,
        password: str = "",
        certificate: Path | None = None,
        key: Path | None = None,
        is_client_verified: bool = False,
    ) -> None:
        """Take what it is started with; a client that is verified has the server's own certificate, or one of it."""
        self._path = path
        self._password = password
        self._tls = (certificate, key)
        self._is_client_verified = is_client_verified
        self._process: subprocess.Popen[str] | None = None
        self._held: HeldPort | None = None
        self.port = 0
        self.url = ""

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._held = self._held or HeldPort()
        self.port = self._held.number
        command = [sys.executable, str(_PROGRAM), "--path", str(self._path), "--port", str(self.port)]
        command += ["--password", self._password]
        if self._tls[0]:
            command += ["--certificate", str(self._tls[0]), "--key", str(self._tls[1])]
        if self._is_client_verified:
            command += ["--client-ca", str(self._tls[0])]
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # no code of ours
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("READY "), f"the stand-in did not start: {line!r}"
        self.url = line.split()[1]

    def kill(self) -> None:
        """SIGKILL, as the kernel does it when memory runs out."""
        assert self._process is not None
        self._process.kill()
        self.wait()

    def wait(self) -> None:
        """Wait until it is gone."""
        assert self._process is not None
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    @contextmanager
    def killed_when_noted(self, table: TableData) -> Iterator[None]:
        """Killed in the body at the next insert into the table, noted and not stored; dead in the end."""
        assert self._process is not None
        doomed = self._process
        command = [sys.executable, str(_KILLER), str(doomed.pid), str(Path(table.directory) / "deduplication_logs")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killer:
            assert killer.stdout is not None
            assert killer.stdout.readline() == "WATCHING\n"
            yield
            assert killer.wait(330) == 0
        doomed.wait(30)

    def tables(self, database: str) -> list[TableData]:
        """Those that hold rows."""
        where = f"database = '{database}' AND engine LIKE '%MergeTree'"
        rows = self.query(f"SELECT name, data_paths[1] FROM system.tables WHERE {where} ORDER BY name")
        return [TableData(*row) for row in rows]

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ends_soon(self) -> bool:
        """Whether it is gone, or is so in a moment: its sockets close before it has ended."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
        return not self.is_running

    @contextmanager
    def running(self) -> Iterator[ClickHouseProcess]:
        """Start it, and stop it in the end whatever happened."""
        self.start()
        try:
            yield self
        finally:
            self.close()

    def close(self) -> None:
        """Kill it if it runs; its port is anybody's then."""
        if self._process is not None:
            self.kill()
        if self._held is not None:
            self._held.close()
            self._held = None

    def arm(self, **fault: Any) -> None:
        """Arm a fault; see the stand-in for what there is."""
        self._post("/__fault", json.dumps(fault).encode())

    def release(self) -> None:
        """Let go what a fault holds, and wait until it is done."""
        self._post("/__release", b"")

    def wait_until_held(self, statements: int) -> None:
        """Wait until a fault holds so many of them."""
        wait_until(lambda: self._post("/__held", b"") == b"%d" % statements)

    @contextmanager
    def busy_with(self, comment: str) -> Iterator[None]:
        """While a statement with that comment is under way."""
        statement = (
            f"SELECT sleepEachRow(0.1) FROM numbers(3000) SETTINGS max_block_size = 1, log_comment = '{comment}'"
        )
        where = f"Settings['log_comment'] = '{comment}'"
        thread = threading.Thread(target=self._end_in_error, args=(statement,))
        thread.start()
        try:
            wait_until(lambda: self.query(f"SELECT count() FROM system.processes WHERE {where}") == [[1]])
            yield
        finally:
            self.command(f"KILL QUERY WHERE {where} SYNC")
            thread.join(60)

    def _end_in_error(self, statement: str) -> None:
        with suppress(OSError):  # an answer of 500
            self.command(statement)

    def query(self, statement: str) -> list[list[Any]]:
        """Rows of a SELECT."""
        answer = json.loads(self._post("/", f"{statement} FORMAT JSONCompact".encode()))
        rows: list[list[Any]] = answer["data"]
        return rows

    def command(self, statement: str) -> None:
        """A statement without an answer."""
        self._post("/", statement.encode())

    def _post(self, path: str, body: bytes) -> bytes:
        token = base64.b64encode(f"default:{self._password}".encode()).decode()
        request = urllib.request.Request(self.url + path, body, {"Authorization": f"Basic {token}"})
        context = None
        if self.url.startswith("https"):
            context = ssl.create_default_context(cafile=str(self._tls[0]))
            if self._is_client_verified:
                context.load_cert_chain(str(self._tls[0]), str(self._tls[1]))
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            data: bytes = answer.read()
            return data
