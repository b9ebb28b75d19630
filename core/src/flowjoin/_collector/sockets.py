"""Sockets for Collecting Processes: opened, bound, and told how much they may hold."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from typing import Final

from flowjoin._config.endpoint import Endpoint
from flowjoin._model.errors import BindError

__all__ = ["ask_receive_buffer", "bound_address", "datagrams_dropped", "open_bound"]

# Linux numbers that the socket module does not name.
_SO_RCVBUFFORCE: Final = 33
_SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("=9I")
_MEMINFO_DROPS: Final = 8

_BACKLOG: Final = 4096  # connections that wait to be accepted; the system's own limit (somaxconn) cuts it


def open_bound(
    kind: socket.SocketKind, address: Endpoint, *, numeric_host: str, reuse_port: bool = False
) -> socket.socket:
    """A non-blocking socket bound to an address; over TCP it listens.

    Args:
        kind: of socket, SOCK_DGRAM or SOCK_STREAM.
        address: as the operator wrote it, for messages and the port.
        numeric_host: the address to bind, already resolved.
        reuse_port: other sockets of this user may be bound there, too, if they say so as well; the system gives what
            one sender sends always to the same one, while they are as many.

    Raises:
        BindError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in numeric_host else socket.AF_INET
    try:
        return _open(family, kind, numeric_host, address.port, reuse_port)
    except OSError as exc:
        if numeric_host == "::" and exc.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            try:  # a machine without IPv6: every address means every IPv4 address
                everywhere = "0.0.0.0"  # noqa: S104 - the operator asked for all
                return _open(socket.AF_INET, kind, everywhere, address.port, reuse_port)
            except OSError as ipv4_exc:
                exc = ipv4_exc
        protocol = "tcp" if kind is socket.SOCK_STREAM else "udp"
        raise BindError(_problem(exc, protocol, address, reuse_port), address=str(address)) from exc


def _open(
    family: socket.AddressFamily, kind: socket.SocketKind, host: str, port: int, reuse_port: bool
) -> socket.socket:
    opened = socket.socket(family, kind)
    try:
        opened.setblocking(False)
        if family is socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if kind is socket.SOCK_STREAM:
            # A restart must not wait for connections in TIME_WAIT. (On a UDP socket the option would
            # let another process take our datagrams.)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        opened.bind((host, port))
        if kind is socket.SOCK_STREAM:
            opened.listen(_BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened


def _problem(exc: OSError, protocol: str, address: Endpoint, reuse_port: bool) -> str:
    match exc.errno:
        case errno.EADDRINUSE if reuse_port:
            advice = (
                "another process listens there, without reusePort or as another user; "
                f"find it with 'ss -lnp --{protocol}'"
            )
        case errno.EADDRINUSE:
            advice = f"another process listens there; find it with 'ss -lnp --{protocol}' or choose another port"
        case errno.EACCES | errno.EPERM:
            advice = "ports below 1024 need the capability CAP_NET_BIND_SERVICE"
        case errno.EADDRNOTAVAIL:
            advice = "this machine does not have that address"
        case _:
            advice = os.strerror(exc.errno) if exc.errno else str(exc)
    return f"cannot listen on {protocol} {address}: {advice}"


def bound_address(listening: socket.socket) -> Endpoint:
    """Where a bound socket listens, with the port it got."""
    host, port = listening.getsockname()[:2]
    return Endpoint(host=host, port=port)


def ask_receive_buffer(receiving: socket.socket, octets: int) -> int:
    """Ask for room, over the system's limit where we may; gives what was granted."""
    try:
        receiving.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, octets)
    except OSError:  # without CAP_NET_ADMIN, or not on Linux: up to net.core.rmem_max
        receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, octets)
    granted = receiving.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    # Linux doubles what is asked, for its own bookkeeping, and says the doubled number.
    return granted // 2 if sys.platform == "linux" else granted


def datagrams_dropped(receiving: socket.socket) -> int | None:
    """Datagrams the kernel dropped at this socket since it was opened, modulo 2**32; None where it does not say."""
    try:
        memory = receiving.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    except OSError:
        return None
    if len(memory) < _MEMINFO.size:
        return None
    dropped: int = _MEMINFO.unpack(memory)[_MEMINFO_DROPS]
    return dropped
