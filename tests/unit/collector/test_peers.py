from __future__ import annotations

import pytest

from flowjoin._collector.peers import PeerSessions, peer_text


def peers(limit=10, period=100.0):
    return PeerSessions(local="::", local_port=4739, limit=limit, period=period, now=0.0)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:1:2", "::ffff:1:2"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_what_came_over_ipv4_is_shown_as_ipv4(host, text):
    assert peer_text(host) == text


def test_one_peer_has_one_session_and_its_port_tells_it_from_others():
    sessions = peers()
    first = sessions.session_of(("192.0.2.1", 5000))
    assert sessions.session_of(("192.0.2.1", 5000)) is first
    assert sessions.session_of(("192.0.2.1", 5001)) != first
    assert first is not None
    assert (first.protocol, first.peer, first.peer_port, first.local, first.local_port, first.serial) == (
        "udp", "192.0.2.1", 5000, "::", 4739, 0,
    )  # fmt: skip


def test_a_new_peer_beyond_the_limit_gets_none_and_known_ones_go_on():
    sessions = peers(limit=2)
    known = [sessions.session_of(("192.0.2.1", port)) for port in (1, 2)]
    assert sessions.session_of(("192.0.2.1", 3)) is None
    assert [sessions.session_of(("192.0.2.1", port)) for port in (1, 2)] == known
    assert len(sessions) == 2


def test_a_peer_heard_in_each_period_stays_and_a_silent_one_makes_room():
    sessions = peers(limit=2)
    busy = sessions.session_of(("192.0.2.1", 1))
    sessions.session_of(("192.0.2.1", 2))
    for now in (50.0, 110.0, 150.0, 215.0):
        sessions.advance(now)
        assert sessions.session_of(("192.0.2.1", 1)) is busy
        assert len(sessions) == (2 if now < 200 else 1)
    assert sessions.session_of(("192.0.2.1", 3)) is not None


def test_a_peer_is_remembered_for_one_period_after_it_was_heard():
    sessions = peers()
    sessions.advance(99.0)
    early = sessions.session_of(("192.0.2.1", 1))
    sessions.advance(198.9)
    assert sessions.session_of(("192.0.2.1", 1)) is early


def test_after_long_silence_nobody_is_remembered():
    sessions = peers()
    sessions.session_of(("192.0.2.1", 1))
    sessions.advance(250.0)
    assert len(sessions) == 0
