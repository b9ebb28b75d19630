"""Sends made-up traffic the way a cluster's agents do: one Exporting Process a node, each with its own session."""

from __future__ import annotations

import errno
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final, Literal, Protocol

import trio

from flowjoin._generator.config import TrafficConfig
from flowjoin._generator.flow import Flow
from flowjoin._generator.records import AgentRecords, observation_domain_of
from flowjoin._generator.traffic import Traffic
from flowjoin._model.errors import DestinationError
from flowjoin._model.flow_schema import AddressFamily
from flowjoin._model.information_element import Value
from flowjoin.wire import Encoder, default_registry

__all__ = ["GeneratorConfig", "TrafficTotals", "generate"]

# Flows that go on at the same time; also what bounds the memory of a long run.
_WINDOW_FLOWS: Final = 5000
_TEMPLATE_REFRESH_SECONDS: Final = 600.0  # what agents do over UDP
_UDP_OVERHEAD: Final = {socket.AF_INET: 28, socket.AF_INET6: 48}
_MTU: Final = 1500
_CONNECT_SECONDS: Final = 30.0
_FINISH_SECONDS: Final = 30.0
_PACING_SECONDS: Final = 0.002  # shorter waits cost more than they smooth
_SEND_AGAIN_SECONDS: Final = 0.01
_SENT_AGAIN_AT_MOST: Final = 100
_LOST_AT_MOST: Final = 10
_NO_ROOM: Final = frozenset({errno.ENOBUFS, errno.ENOMEM, errno.EPERM})  # EPERM: a packet filter dropped it


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorConfig:
    """What to send, where to, and how fast.

    Attributes:
        protocol: of the transport.
        host: of the collector.
        port: of the collector.
        tls: with protocol ``tls``: verifies the collector, and holds what we show it.
        server_name: the name its certificate must have; None, the host.
        records_per_message: at most; fewer where a Message would be too large.
        rate: records per second; None as fast as it goes.
    """

    traffic: TrafficConfig
    protocol: Literal["udp", "tcp", "tls"]
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    records_per_message: int = 1
    rate: float | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficTotals:
    """What a collector must end up with.

    Attributes:
        flows: distinct flow keys.
        records: Data Records sent.
        octets: sum over flows of the largest octetTotalCount of either side.
        packets: the same of packetTotalCount.
    """

    flows: int
    records: int
    octets: int
    packets: int


class _Transport(Protocol):
    max_octets: int
    is_reliable: bool

    async def send(self, message: bytes) -> None: ...

    async def finish(self) -> None: ...


class _TcpTransport:
    max_octets = 65535
    is_reliable = True

    def __init__(self, stream: trio.SocketStream, address: str) -> None:
        self._stream = stream
        self._address = address

    async def send(self, message: bytes) -> None:
        try:
            await self._stream.send_all(message)
        except trio.BrokenResourceError as exc:
            raise DestinationError(
                f"{self._address} closed the connection while we were sending", address=self._address
            ) from exc

    async def finish(self) -> None:
        """Say that this was all, and wait until the collector has read it and closes."""
        try:
            await self._stream.send_eof()
            with trio.move_on_after(_FINISH_SECONDS):
                while await self._stream.receive_some():
                    pass
        except trio.BrokenResourceError as exc:
            raise DestinationError(
                f"{self._address} reset the connection before it had read everything", address=self._address
            ) from exc


class _TlsTransport:
    max_octets = 65535
    is_reliable = True

    def __init__(self, stream: trio.SSLStream[trio.SocketStream], address: str) -> None:
        self._stream = stream
        self._address = address

    async def send(self, message: bytes) -> None:
        try:
            await self._stream.send_all(message)
        except trio.BrokenResourceError as exc:
            problem = f"{self._address} closed the connection while we were sending; it may not take our certificate"
            raise DestinationError(problem, address=self._address) from exc

    async def finish(self) -> None:
        """Say that this was all, and wait until the collector has read it and says the same."""
        try:
            with trio.move_on_after(_FINISH_SECONDS):
                await self._stream.unwrap()
        except trio.BrokenResourceError as exc:
            problem = f"{self._address} closed the connection before it had read everything{_said(exc)}"
            raise DestinationError(problem, address=self._address) from exc


class _UdpTransport:
    is_reliable = False

    def __init__(self, sending: trio.socket.SocketType, address: str) -> None:
        self._socket = sending
        self._address = address
        self._lost = 0
        self.max_octets = _MTU - _UDP_OVERHEAD[socket.AddressFamily(sending.family)]

    async def send(self, message: bytes) -> None:
        for _ in range(_SENT_AGAIN_AT_MOST):
            try:
                await self._socket.send(message)
            except ConnectionRefusedError:
                # What came back for an earlier datagram, which is lost; this one was not sent.
                self._lost += 1
                if self._lost >= _LOST_AT_MOST:
                    break
            except OSError as exc:
                if exc.errno not in _NO_ROOM:
                    raise DestinationError(
                        f"cannot send to udp {self._address}: {exc.strerror}", address=self._address
                    ) from exc
                await trio.sleep(_SEND_AGAIN_SECONDS)
            else:
                return
        raise DestinationError(f"nobody listens at udp {self._address}", address=self._address)

    async def finish(self) -> None:
        """See whether something came back for the last datagrams."""
        await trio.lowlevel.checkpoint()
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED:
            self._lost += 1
        if self._lost:
            raise DestinationError(
                f"nobody listened at udp {self._address} all the time: {self._lost} datagrams came back",
                address=self._address,
            )


class _Agent:
    """The Exporting Process of one node."""

    def __init__(self, name: str, transport: _Transport, records: AgentRecords, records_per_message: int) -> None:
        self._transport = transport
        self._templates = records.templates
        self._records_per_message = records_per_message
        self._encoder = Encoder(observation_domain_id=observation_domain_of(name), max_octets=transport.max_octets)
        self._pending: dict[AddressFamily, list[Sequence[Value]]] = {family: [] for family in AddressFamily}
        self._templates_sent_at = -_TEMPLATE_REFRESH_SECONDS

    async def send_templates(self) -> None:
        for template in self._templates.values():
            for message in self._encoder.encode_templates([template], int(time.time())):
                await self._transport.send(message)
        self._templates_sent_at = trio.current_time()

    async def add(self, family: AddressFamily, record: Sequence[Value]) -> int:
        """Take one record; gives how many were sent for it."""
        pending = self._pending[family]
        pending.append(record)
        return await self._send(family) if len(pending) >= self._records_per_message else 0

    async def flush(self) -> int:
        return sum([await self._send(family) for family, pending in self._pending.items() if pending])

    async def _send(self, family: AddressFamily) -> int:
        if (
            not self._transport.is_reliable
            and trio.current_time() >= self._templates_sent_at + _TEMPLATE_REFRESH_SECONDS
        ):
            await self.send_templates()
        records = self._pending[family]
        self._pending[family] = []
        for message in self._encoder.encode_records(self._templates[family], records, int(time.time())):
            await self._transport.send(message)
        return len(records)


class _Pace:
    """Keeps the number of records sent under a line of constant slope."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = trio.current_time()
        self._sent = 0

    async def sent(self, records: int) -> None:
        self._sent += records
        if self._rate is not None:
            due = self._began + self._sent / self._rate
            if due > trio.current_time() + _PACING_SECONDS:
                await trio.sleep_until(due)
                return
        await trio.lowlevel.checkpoint()


def _nothing(_records: int) -> None:
    """No one watches the progress."""


async def generate(config: GeneratorConfig, *, progress: Callable[[int], object] = _nothing) -> TrafficTotals:
    """Send the traffic; gives what a collector must end up with.

    Args:
        config: what, where to, how fast.
        progress: told how many records were sent since it was last told.

    Raises:
        DestinationError: the collector cannot be reached, or went away.
    """
    traffic = Traffic(config.traffic, ends_at=int(time.time()))
    maker = AgentRecords(default_registry())
    order = Random(config.traffic.seed)  # noqa: S311 - the order of records, no secret
    flows = records = octets = packets = 0
    async with _open_transports(config) as transports:
        agents = [
            _Agent(node.name, transport, maker, config.records_per_message)
            for node, transport in zip(traffic.cluster.nodes, transports, strict=True)
        ]
        for agent in agents:
            await agent.send_templates()
        pace = _Pace(config.rate)
        remaining = iter(traffic)
        while window := list(islice(remaining, _WINDOW_FLOWS)):
            flows += len(window)
            octets += sum(flow.octets for flow in window)
            packets += sum(flow.packets for flow in window)
            for number in range(1 + config.traffic.updates):
                for flow, half_index in _in_any_order(window, order):
                    half = flow.halves[half_index]
                    sent = await agents[half.node].add(flow.family, maker.record(flow, half, number))
                    if sent:
                        records += sent
                        progress(sent)
                        await pace.sent(sent)
                # A flow's next records must not overtake these.
                for agent in agents:
                    sent = await agent.flush()
                    if sent:
                        records += sent
                        progress(sent)
                        await pace.sent(sent)
    return TrafficTotals(flows=flows, records=records, octets=octets, packets=packets)


def _in_any_order(window: list[Flow], order: Random) -> Iterator[tuple[Flow, int]]:
    halves = [(flow, index) for flow in window for index in range(len(flow.halves))]
    order.shuffle(halves)
    return iter(halves)


@asynccontextmanager
async def _open_transports(config: GeneratorConfig) -> AsyncIterator[list[_Transport]]:
    async with AsyncExitStack() as opened:
        transports: list[_Transport] = []
        for _ in range(config.traffic.nodes):
            if config.protocol == "tcp":
                stream = await _connect_tcp(config)
                await opened.enter_async_context(stream)
                transports.append(_TcpTransport(stream, config.address))
            elif config.protocol == "tls":
                secure = await _connect_tls(config)
                opened.push_async_callback(trio.aclose_forcefully, secure)
                transports.append(_TlsTransport(secure, config.address))
            else:
                sending = await _connect_udp(config)
                opened.callback(sending.close)
                transports.append(_UdpTransport(sending, config.address))
        yield transports
        for transport in transports:
            await transport.finish()


async def _connect_tcp(config: GeneratorConfig) -> trio.SocketStream:
    try:
        with trio.fail_after(_CONNECT_SECONDS):
            return await trio.open_tcp_stream(config.host, config.port)
    except trio.TooSlowError as exc:
        raise DestinationError(f"{config.address} does not answer", address=config.address) from exc
    except UnicodeError as exc:
        raise _unknown_name(config) from exc
    except OSError as exc:
        raise DestinationError(f"nobody listens at tcp {config.address}", address=config.address) from exc


async def _connect_tls(config: GeneratorConfig) -> trio.SSLStream[trio.SocketStream]:
    assert config.tls is not None
    transport = await _connect_tcp(config)
    stream = trio.SSLStream(transport, config.tls, server_hostname=config.server_name or config.host)
    try:
        with trio.fail_after(_CONNECT_SECONDS):
            await stream.do_handshake()
    except BaseException as exc:
        await trio.aclose_forcefully(stream)
        if isinstance(exc, trio.BrokenResourceError | trio.TooSlowError):
            problem = f"no TLS session with {config.address}{_said(exc)}"
            raise DestinationError(problem, address=config.address) from exc
        raise
    return stream


def _said(exc: Exception) -> str:
    """What OpenSSL says about it."""
    cause = exc.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f": {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and cause.reason:
        return f": {cause.reason.lower().replace('_', ' ')}"
    return ""


async def _connect_udp(config: GeneratorConfig) -> trio.socket.SocketType:
    try:
        family, kind, protocol, _name, address = (
            await trio.socket.getaddrinfo(config.host, config.port, type=socket.SOCK_DGRAM)
        )[0]
    except (OSError, UnicodeError) as exc:
        raise _unknown_name(config) from exc
    try:
        sending = trio.socket.socket(family, kind, protocol)
        try:
            await sending.connect(address)
        except BaseException:
            sending.close()
            raise
    except OSError as exc:
        problem = f"cannot send to udp {config.address}: {exc.strerror or exc}"
        raise DestinationError(problem, address=config.address) from exc
    return sending


def _unknown_name(config: GeneratorConfig) -> DestinationError:
    return DestinationError(f"the name {config.host!r} is not known", address=config.address)
