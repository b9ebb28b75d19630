"""Opens Collecting Processes: resolves and binds the address, so that what cannot be had is said at start."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Protocol

import trio

from flowjoin._certificates.files import TlsSource
from flowjoin._collector.config import CollectorConfig
from flowjoin._collector.intake import Ingest, Intake
from flowjoin._collector.metrics import CollectorStatistics
from flowjoin._collector.sockets import open_bound
from flowjoin._collector.tcp import TcpCollectingProcess
from flowjoin._collector.udp import UdpCollectingProcess
from flowjoin._config.endpoint import Endpoint
from flowjoin._model.errors import BindError
from flowjoin._model.transport_session import TransportSession
from flowjoin.api._types import Logger

__all__ = ["CollectingProcess", "CollectorGroup", "open_collector"]


class CollectingProcess(Protocol):
    """Receives at one bound address."""

    @property
    def address(self) -> Endpoint:
        """Where it listens, with the port it got."""
        ...

    def configure(self) -> None:
        """Tell the socket what it may hold."""
        ...

    async def run(self, *, task_status: trio.TaskStatus[Endpoint] = ...) -> None:
        """Receive until stopped or cancelled."""
        ...

    def stop_intake(self) -> None:
        """Take what has arrived until now, then let ``run`` return."""
        ...

    def statistics(self) -> CollectorStatistics:
        """A snapshot."""
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


class CollectorGroup:
    """The Collecting Processes of one configured collector: one for each address its name has."""

    def __init__(self, processes: Sequence[CollectingProcess]) -> None:
        self._processes = tuple(processes)

    @property
    def addresses(self) -> tuple[Endpoint, ...]:
        """Where they listen, with the ports they got."""
        return tuple(process.address for process in self._processes)

    async def run(self, *, task_status: trio.TaskStatus[tuple[Endpoint, ...]] = trio.TASK_STATUS_IGNORED) -> None:
        """Receive until stopped or cancelled; started with the bound addresses."""
        async with trio.open_nursery() as nursery:
            for process in self._processes:
                await nursery.start(_run, process)
            task_status.started(self.addresses)

    def stop_intake(self) -> None:
        """Take what has arrived until now, then let ``run`` return.

        Nothing new is accepted; the caller bounds how long the rest may take by cancelling ``run``.
        """
        for process in self._processes:
            process.stop_intake()

    def statistics(self) -> list[CollectorStatistics]:
        """Snapshots, one for each address."""
        return [process.statistics() for process in self._processes]


async def _run(
    process: CollectingProcess, *, task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED
) -> None:
    await process.run(task_status=task_status)


async def _always_ready() -> None:
    await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_collector(
    config: CollectorConfig,
    *,
    ingest: Ingest,
    close_session: Callable[[TransportSession], None],
    log: Logger,
    wait_until_ready: Callable[[], Awaitable[None]] = _always_ready,
    tls: TlsSource | None = None,
) -> AsyncIterator[CollectorGroup]:
    """Bind a collector's address; the sockets are closed on leaving.

    Args:
        config: protocol, address and limits.
        ingest: takes whole Messages with their sessions; called from ``run``'s tasks.
        close_session: called for each connection that ended.
        log: for what happens to sockets and peers.
        wait_until_ready: TCP connections wait for it before each read.
        tls: of protocol ``tls``: asked before each handshake, so that a new certificate is shown at once; nobody is
            accepted before it is ready.

    Raises:
        BindError: the address cannot be had.
    """
    intake = Intake(ingest=ingest, close_session=close_session, wait_until_ready=wait_until_ready, log=log)
    assert (tls is not None) == (config.protocol == "tls")
    kind = socket.SOCK_DGRAM if config.protocol == "udp" else socket.SOCK_STREAM
    hosts = await _resolve(config.address)
    with ExitStack() as opened:
        processes: list[CollectingProcess] = []
        for host in hosts:
            bound = open_bound(kind, config.address, numeric_host=host, reuse_port=config.reuse_port)
            process: CollectingProcess
            if config.protocol == "udp":
                process = UdpCollectingProcess(config, intake, bound, now=trio.current_time())
            else:
                process = TcpCollectingProcess(config, intake, bound, tls=tls)
            opened.callback(process.close)
            process.configure()
            processes.append(process)
            log.info("collector_listening", protocol=config.protocol, address=str(process.address))
        yield CollectorGroup(processes)


async def _resolve(address: Endpoint) -> list[str]:
    """Every numeric address of a host, in the resolver's order."""
    try:
        found = await trio.socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as exc:  # UnicodeError: a label that is empty or longer than 63 octets
        reason = exc.strerror or exc if isinstance(exc, OSError) else "it is no host name"
        raise BindError(
            f"cannot listen on {address}: the name {address.host!r} is not known ({reason})",
            address=str(address),
        ) from exc
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
