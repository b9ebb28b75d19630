"""Both readers of datagrams, over loopback: the same messages, sessions, refusals and errors."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from compiled_kernel import require_compiled_kernel

from flowjoin._collector.datagrams import DatagramReader, PlainDatagrams, datagram_reader
from flowjoin._collector.peers import PeerSessions

MANY = 1 << 30


@pytest.fixture(params=["plain", "compiled"])
def make_reader(request: pytest.FixtureRequest) -> Any:
    if request.param == "plain":
        return PlainDatagrams
    require_compiled_kernel()
    if importlib.util.find_spec("flowjoin._collector._recvmmsg") is None:
        pytest.skip("recvmmsg is Linux's")
    from flowjoin._collector._recvmmsg import Datagrams

    return Datagrams


@pytest.fixture(params=["127.0.0.1", "::1"])
def receiving(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as opened:
        opened.setblocking(False)
        try:
            opened.bind((request.param, 0))
        except OSError:
            pytest.skip(f"this machine has no {request.param}")
        yield opened


def senders(receiving: socket.socket, count: int) -> list[socket.socket]:
    opened = []
    for _ in range(count):
        sender = socket.socket(receiving.family, socket.SOCK_DGRAM)
        sender.bind((receiving.getsockname()[0], 0))
        sender.connect(receiving.getsockname())
        opened.append(sender)
    return opened


def peers(limit: int = 10) -> PeerSessions:
    return PeerSessions(local="local", local_port=4739, limit=limit, period=10.0, now=0.0)


def test_what_is_there_is_read_with_its_senders_sessions(make_reader: Any, receiving: socket.socket) -> None:
    reader: DatagramReader = make_reader(peers())
    first, second = senders(receiving, 2)
    sent = [b"one", b"", b"x" * 65_000, b"four"]
    for sender, octets in zip([first, second, first, first], sent, strict=True):
        sender.send(octets)
    received = reader.receive(receiving, 256, MANY)
    assert received[:2] == (4, sent)
    assert received[3:] == ([], None, True)
    sessions = received.sessions
    assert [session.peer_port for session in sessions] == [
        sender.getsockname()[1] for sender in (first, second, first, first)
    ]
    assert {session.peer for session in sessions} == {first.getsockname()[0]}
    assert sessions[0] is sessions[2] is sessions[3]
    assert reader.receive(receiving, 256, MANY) == (0, [], [], [], None, True)
    for sender in (first, second):
        sender.close()


def test_no_more_is_read_than_asked_for(make_reader: Any, receiving: socket.socket) -> None:
    reader: DatagramReader = make_reader(peers())
    (sender,) = senders(receiving, 1)
    for number in range(100):
        sender.send(b"%d" % number)
    taken = [reader.receive(receiving, budget, MANY) for budget in (1, 70, 256)]
    assert [(one.read, one.is_all) for one in taken] == [(1, False), (70, False), (29, True)]
    assert [message for one in taken for message in one.messages] == [b"%d" % n for n in range(100)]
    sender.close()


def test_reading_ends_soon_after_so_many_octets(make_reader: Any, receiving: socket.socket) -> None:
    reader: DatagramReader = make_reader(peers())
    (sender,) = senders(receiving, 1)
    taken = []
    for _ in range(3):
        for _ in range(10):
            sender.send(bytes(10_000))
        found = []
        while not (received := reader.receive(receiving, 256, 20_000)).is_all:
            found.append(received.read)
        taken.append([*found, received.read])
    assert [sum(counts) for counts in taken] == [10, 10, 10]
    assert max(taken[-1]) <= 3  # by now it is known how large they are
    sender.close()


def test_peers_beyond_the_limit_are_named_and_those_not_heard_again_make_room(
    make_reader: Any, receiving: socket.socket
) -> None:
    known = peers(limit=1)
    reader: DatagramReader = make_reader(known)
    first, second = senders(receiving, 2)
    first.send(b"first")
    second.send(b"second")
    received = reader.receive(receiving, 256, MANY)
    assert received[:2] == (2, [b"first"])
    assert received.refused == [second.getsockname()]
    known.advance(11.0)
    known.advance(21.0)
    second.send(b"again")
    assert reader.receive(receiving, 256, MANY).messages == [b"again"]
    assert len(known) == 1
    for sender in (first, second):
        sender.close()


def test_a_peer_that_goes_on_is_heard_in_each_period(make_reader: Any, receiving: socket.socket) -> None:
    known = peers(limit=1)
    reader: DatagramReader = make_reader(known)
    (sender,) = senders(receiving, 1)
    found = []
    for now in (1.0, 11.0, 21.0, 31.0, 41.0):
        known.advance(now)
        sender.send(b"here")
        found += reader.receive(receiving, 256, MANY).sessions
    assert len(found) == 5
    assert all(session is found[0] for session in found)
    sender.close()


def test_an_error_of_the_socket_is_given(make_reader: Any) -> None:
    reader: DatagramReader = make_reader(peers())
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as other:
        other.setblocking(False)
        received = reader.receive(other, 8, MANY)
    assert received[:4] == (0, [], [], [])
    assert isinstance(received.error, OSError)


def test_the_fastest_reader_at_hand_is_taken() -> None:
    require_compiled_kernel()
    assert type(datagram_reader(peers())).__name__ == "Datagrams"
