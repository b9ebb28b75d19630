"""Collectors, in the test's own trio and as processes; certificates of an authority made for the test."""

from __future__ import annotations

import functools
import json
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import ipfix_collector
import pytest
import trio
from held_port import HeldPort
from ipfix_collector import Collector


@pytest.fixture
async def start(nursery: trio.Nursery) -> Callable[..., Awaitable[Collector]]:
    """Gives a function that starts a collector in this trio."""

    async def start(**settings: Any) -> Collector:
        collector = Collector(**settings)
        await nursery.start(collector.run)
        return collector

    return start


class CollectorProcess:
    """A collector that shares neither tasks nor descriptors with the test."""

    def __init__(self, **settings: Any) -> None:
        self._held = None if settings.get("protocol") == "udp" else HeldPort()
        self._settings = {**settings, "port": self._held.number if self._held else 0}
        self._process = self._started()
        self.port = self._settings["port"] = int(self._answer())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def delivered(self) -> range:
        """One item a row, also of what was received before it was stopped."""
        return range(int(self.say("count")))

    @contextmanager
    def down(self) -> Iterator[None]:
        self.say("stop")
        try:
            yield
        finally:
            self.say("start")

    def kill(self) -> None:
        """kill -9: what its system has taken and it has not read is lost."""
        self._process.kill()
        self._process.wait()
        self._close()

    def restart(self) -> None:
        self._process = self._started()
        assert int(self._answer()) == self.port

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._close()
        if self._held is not None:
            self._held.close()

    def say(self, command: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, ipfix_collector.__file__, json.dumps(self._settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the collector ended"
        return answer

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def spawn() -> Iterator[Callable[..., CollectorProcess]]:
    """Gives a function that starts a collector as a process."""
    with ExitStack() as running:

        def spawn(**settings: Any) -> CollectorProcess:
            collector = CollectorProcess(**settings)
            running.callback(collector.end)
            return collector

        yield spawn


@pytest.fixture(scope="session")
def shared_collector() -> Iterator[Callable[..., CollectorProcess]]:
    """Gives a function from settings to a process that lives as long as the tests: the kit counts before and after."""
    with ExitStack() as running:

        @functools.cache
        def collector(number: int, settings: str) -> CollectorProcess:
            process = CollectorProcess(**json.loads(settings))
            running.callback(process.end)
            return process

        yield lambda number, **settings: collector(number, json.dumps(settings))


@dataclass(frozen=True)
class Certificates:
    """Files and contexts.

    Attributes:
        ca: who signed all.
        client: certificate and key to show to a collector.
        server: the collector's, for 127.0.0.1 and collector.example.
        stranger: the same names, of an authority that nobody trusts.
        other_ca: that authority.
        expired: as the collector's, until yesterday.
    """

    ca: Path
    client: Path
    server: Path
    stranger: Path
    other_ca: Path
    expired: Path

    def context(
        self, *, is_mutual: bool = False, is_stranger: bool = False, is_expired: bool = False
    ) -> ssl.SSLContext:
        """What a collector needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.stranger if is_stranger else self.expired if is_expired else self.server)
        if is_mutual:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    trustme = pytest.importorskip("trustme", reason="trustme is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    authority, other = trustme.CA(), trustme.CA()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    other.cert_pem.write_to_path(folder / "other_ca.pem")
    authority.issue_cert(
        "127.0.0.1", not_before=yesterday - timedelta(days=1), not_after=yesterday
    ).private_key_and_cert_chain_pem.write_to_path(folder / "expired.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name, issuer, names in (
        ("client", authority, ["agent.example"]),
        ("server", authority, ["127.0.0.1", "collector.example"]),
        ("stranger", other, ["127.0.0.1", "collector.example"]),
    ):
        issuer.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    return Certificates(
        *(folder / f"{name}.pem" for name in ("ca", "client", "server", "stranger", "other_ca", "expired"))
    )
