"""A collector over UDP: best effort.

The one thing UDP tells is that nobody listens (ICMP, seen as ECONNREFUSED by a connected socket). So after connecting
and sending the Templates we listen for a moment, and a batch that meets a refusal comes again.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

import trio

from flowjoin_ipfix._client import ConnectionLost, cause_of
from flowjoin_ipfix._config import Address

__all__ = ["DatagramConnection", "connect_datagram"]

_OVERHEAD: Final = {socket.AF_INET: 28, socket.AF_INET6: 48}  # headers of IP and UDP
_MTU_OPTION: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, 14),  # IP_MTU
    socket.AF_INET6: (socket.IPPROTO_IPV6, 24),  # IPV6_MTU
}
_USUAL_MTU: Final = 1500
_LARGEST_MTU: Final = 9000  # loopback's 65536 would be more than many collectors' buffers hold
# A batch is many times what a collector's socket holds. This is 32 MB/s at most, in bursts that fit anywhere.
_BURST_OCTETS: Final = 32 * 1024
_BURST_PAUSE_SECONDS: Final = 0.001
_REFUSAL_SECONDS: Final = 0.2


class DatagramConnection:
    """A connected socket."""

    is_stream: Final = False

    def __init__(self, sending: trio.socket.SocketType) -> None:
        self._socket = sending
        self._family = socket.AddressFamily(sending.family)
        host, port = sending.getpeername()[:2]
        self._burst = 0  # octets since the last pause
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def limit(self) -> int:
        """What the path carries now without fragments."""
        try:
            mtu = self._socket.getsockopt(*_MTU_OPTION[self._family])
        except OSError:
            mtu = _USUAL_MTU  # this system does not tell
        return min(mtu, _LARGEST_MTU) - _OVERHEAD[self._family]

    @property
    def packing(self) -> int:
        return min(self.limit, _USUAL_MTU - _OVERHEAD[self._family])

    def check(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # which also clears it
        if code:
            raise _refusal(OSError(code, os.strerror(code)), self.peer)

    async def send(self, octets: bytes) -> None:
        if self._burst >= _BURST_OCTETS:
            self._burst = 0
            await trio.sleep(_BURST_PAUSE_SECONDS)
        self._burst += len(octets)
        try:
            await self._socket.send(octets)
        except OSError as exc:
            raise _refusal(exc, self.peer) from exc

    async def wait_refused(self) -> None:
        """Give a refusal a moment to come back.

        Raises:
            ConnectionLost: nobody listens.
        """
        with trio.move_on_after(_REFUSAL_SECONDS):
            await trio.lowlevel.wait_readable(self._socket)
        self.check()

    async def wait_delivered(self) -> None:
        await trio.lowlevel.checkpoint()
        self.check()

    async def aclose(self) -> None:
        self._socket.close()
        await trio.lowlevel.checkpoint()

    def abort(self) -> None:
        self._socket.close()


def _refusal(exc: OSError, peer: str) -> ConnectionLost:
    if exc.errno == errno.ECONNREFUSED:
        return ConnectionLost(f"nobody listens at udp {peer}")
    return ConnectionLost(f"cannot send to udp {peer}: {cause_of(exc)}")


async def connect_datagram(address: Address, *, attempt: int) -> DatagramConnection:
    """Resolve the name and make a socket for one of its addresses.

    Args:
        attempt: counts the refusals so far, so that each address has its turn.

    Raises:
        ConnectionLost: the name is not known, or there is no way to any of its addresses.
    """
    try:
        found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as exc:  # a resolver's own idea of what a name is
        raise ConnectionLost(f"cannot connect to udp {address}: {cause_of(exc)}") from exc
    problem = "it has no address"
    for number in range(len(found)):
        family, kind, protocol, _name, where = found[(attempt + number) % len(found)]
        sending = trio.socket.socket(family, kind, protocol)
        try:
            await sending.connect(where)
        except OSError as exc:
            sending.close()
            problem = cause_of(exc)
        except BaseException:
            sending.close()
            raise
        else:
            return DatagramConnection(sending)
    raise ConnectionLost(f"cannot connect to udp {address}: {problem}")
