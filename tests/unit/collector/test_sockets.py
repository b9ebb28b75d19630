from __future__ import annotations

import errno
import socket

import pytest

from flowjoin._collector import sockets
from flowjoin._collector.sockets import ask_receive_buffer, bound_address, datagrams_dropped, open_bound
from flowjoin._config.endpoint import Endpoint
from flowjoin._model.errors import BindError

ANY = Endpoint(host="::", port=0)


@pytest.fixture
def fail_on(monkeypatch):
    """Makes sockets of some families fail as a machine without them does."""

    def fail(**errors):
        genuine = sockets._open

        def opening(family, kind, host, port, reuse_port):
            if family.name in errors:
                raise OSError(errors[family.name], "no")
            return genuine(family, kind, host, port, reuse_port)

        monkeypatch.setattr(sockets, "_open", opening)

    return fail


@pytest.mark.parametrize("reason", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_on_a_machine_without_ipv6_every_address_means_every_ipv4_address(fail_on, reason):
    fail_on(AF_INET6=reason)
    with open_bound(socket.SOCK_DGRAM, ANY, numeric_host="::") as opened:
        assert opened.family is socket.AF_INET
        assert bound_address(opened).host == "0.0.0.0"


def test_an_ipv6_address_of_its_own_is_not_replaced(fail_on):
    fail_on(AF_INET6=errno.EAFNOSUPPORT)
    with pytest.raises(BindError):
        open_bound(socket.SOCK_DGRAM, Endpoint(host="::1", port=0), numeric_host="::1")


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (errno.EADDRINUSE, "another process listens there"),
        (errno.EACCES, "CAP_NET_BIND_SERVICE"),
        (errno.EADDRNOTAVAIL, "does not have that address"),
        (errno.ENOBUFS, "No buffer space available"),
    ],
)
def test_what_goes_wrong_is_one_sentence_that_says_what_to_do(fail_on, reason, advice):
    fail_on(AF_INET6=reason, AF_INET=reason)
    with pytest.raises(BindError, match=rf"^cannot listen on tcp \[::\]:0: .*{advice}") as caught:
        open_bound(socket.SOCK_STREAM, ANY, numeric_host="::")
    assert "\n" not in str(caught.value)


def test_a_port_that_is_to_be_shared_and_is_not_says_what_the_other_lacks(fail_on):
    fail_on(AF_INET6=errno.EADDRINUSE)
    with pytest.raises(BindError, match="without reusePort or as another user"):
        open_bound(socket.SOCK_DGRAM, ANY, numeric_host="::", reuse_port=True)


class SocketWithout:
    """A socket of a system, or of a process, that lacks some options."""

    def __init__(self, *missing):
        self.missing = missing
        self.asked = {}

    def setsockopt(self, _level, option, value):
        if option in self.missing:
            raise PermissionError(errno.EPERM, "no")
        self.asked[option] = value

    def getsockopt(self, _level, option, size=0):
        if option in self.missing:
            raise OSError(errno.ENOPROTOOPT, "no")
        return bytes(4) if size else 2 * min(self.asked[option], 212_992)


def test_without_the_capability_as_much_is_asked_for_as_the_system_lets_everybody_have():
    without = SocketWithout(sockets._SO_RCVBUFFORCE)
    assert ask_receive_buffer(without, 1 << 26) == 212_992
    assert without.asked == {socket.SO_RCVBUF: 1 << 26}


def test_where_the_system_does_not_say_drops_are_unknown():
    assert datagrams_dropped(SocketWithout(sockets._SO_MEMINFO)) is None
    assert datagrams_dropped(SocketWithout()) is None  # an older Linux gives a shorter answer
