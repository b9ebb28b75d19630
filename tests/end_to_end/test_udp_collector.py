"""The UDP Collecting Process on real loopback sockets."""

from __future__ import annotations

import itertools
import socket

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from flowjoin._collector.process import open_collector
from flowjoin._model.errors import BindError
from flowjoin._model.transport_session import TransportSession


def sender(host="127.0.0.1"):
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((host, 0))
    return opened


async def test_a_datagram_is_handed_over_whole_with_the_session_of_its_sender(intake, configure, make_message, nursery):
    async with open_collector(configure("udp"), **intake.arguments) as group:
        (address,) = await nursery.start(group.run)
        assert address.port != 0
        with sender() as first, sender() as second:
            first.sendto(make_message(1), (address.host, address.port))
            await intake.wait_for_messages(1)
            second.sendto(make_message(2), (address.host, address.port))
            await intake.wait_for_messages(2)
            first.sendto(make_message(3), (address.host, address.port))
            await intake.wait_for_messages(3)
            assert intake.messages == [make_message(1), make_message(2), make_message(3)]
            assert [session.peer_port for session in intake.sessions] == [
                first.getsockname()[1],
                second.getsockname()[1],
                first.getsockname()[1],
            ]
            assert intake.sessions[0] is intake.sessions[2]
            assert intake.sessions[0] == TransportSession(
                protocol="udp",
                peer="127.0.0.1",
                peer_port=first.getsockname()[1],
                local="127.0.0.1",
                local_port=address.port,
            )
        nursery.cancel_scope.cancel()


async def test_what_one_wake_up_finds_is_one_call(intake, configure, make_message, nursery):
    async with open_collector(configure("udp"), **intake.arguments) as group:
        (address,) = group.addresses
        with sender() as peer:
            for number in range(100):
                peer.sendto(make_message(number), (address.host, address.port))
        await nursery.start(group.run)
        await intake.wait_for_messages(100)
        assert intake.calls == [100]
        nursery.cancel_scope.cancel()


async def test_other_tasks_run_between_two_wake_ups_of_a_full_socket(intake, configure, make_message, nursery):
    async with open_collector(configure("udp", datagrams_per_wakeup=16), **intake.arguments) as group:
        (address,) = group.addresses
        with sender() as peer:
            for number in range(160):
                peer.sendto(make_message(number), (address.host, address.port))
        await nursery.start(group.run)
        seen = [len(intake.messages)]
        while len(intake.messages) < 160:
            await trio.lowlevel.checkpoint()
            seen.append(len(intake.messages))
        assert max(intake.calls) == 16
        # The order within one round of the scheduler is random, so two calls may meet at its border.
        assert all(later - earlier <= 2 * 16 for earlier, later in itertools.pairwise(seen))
        nursery.cancel_scope.cancel()


async def test_a_slow_ingest_makes_wake_ups_smaller(intake, configure, make_message, nursery, monkeypatch):
    config = configure("udp", datagrams_per_wakeup=64, slice_seconds=0.0)  # any ingest takes longer
    async with open_collector(config, **intake.arguments) as group:
        (address,) = group.addresses
        with sender() as peer:
            for number in range(200):
                peer.sendto(make_message(number), (address.host, address.port))
        await nursery.start(group.run)
        await intake.wait_for_messages(200)
        assert intake.calls[:4] == [64, 32, 16, 8]
        assert set(intake.calls[4:-1]) == {8}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("payload", [b"", b"\0", b"\xff" * 65507])
async def test_the_largest_the_smallest_and_the_empty_datagram_come_through_whole(intake, configure, nursery, payload):
    async with open_collector(configure("udp"), **intake.arguments) as group:
        (address,) = await nursery.start(group.run)
        with sender() as peer:
            peer.sendto(payload, (address.host, address.port))
            await intake.wait_for_messages(1)
        assert intake.messages == [payload]
        nursery.cancel_scope.cancel()


async def test_ipv4_and_ipv6_peers_reach_one_dual_stack_socket(intake, configure, make_message, nursery):
    async with open_collector(configure("udp", "::"), **intake.arguments) as group:
        (address,) = await nursery.start(group.run)
        assert address.host == "::"
        with sender() as four, sender("::1") as six:
            four.sendto(make_message(4), ("127.0.0.1", address.port))
            await intake.wait_for_messages(1)
            six.sendto(make_message(6), ("::1", address.port))
            await intake.wait_for_messages(2)
            assert [str(session) for session in intake.sessions] == [
                f"127.0.0.1:{four.getsockname()[1]}",
                f"[::1]:{six.getsockname()[1]}",
            ]
        nursery.cancel_scope.cancel()


async def test_a_name_is_heard_at_each_of_its_addresses(intake, configure, make_message, nursery):
    async with open_collector(configure("udp", "localhost"), **intake.arguments) as group:
        addresses = await nursery.start(group.run)
        for number, address in enumerate(addresses, 1):
            with sender(address.host) as peer:
                peer.sendto(make_message(number), (address.host, address.port))
                await intake.wait_for_messages(number)
        assert {session.peer for session in intake.sessions} == {address.host for address in addresses}
        nursery.cancel_scope.cancel()


async def test_peers_beyond_the_limit_are_refused_and_counted_and_the_others_go_on(
    intake, configure, make_message, nursery
):
    async with open_collector(configure("udp", sessions=2), **intake.arguments) as group:
        (address,) = group.addresses
        with sender() as first, sender() as second, sender() as third:
            for peer in (first, second, third, first):
                peer.sendto(make_message(), (address.host, address.port))
            await nursery.start(group.run)
            await intake.wait_for_messages(3)
            known = [first.getsockname()[1], second.getsockname()[1], first.getsockname()[1]]
        assert [session.peer_port for session in intake.sessions] == known
        (statistics,) = group.statistics()
        assert dict(statistics.refused) == {"session_limit": 1}
        assert statistics.sessions == 2
        assert statistics.messages == 3
        ((level, facts),) = intake.log.of("session_refused")
        assert level == "warning"
        assert facts["limit"] == 2
        nursery.cancel_scope.cancel()


async def test_datagrams_the_kernel_had_no_room_for_are_counted(intake, configure, make_message, nursery):
    sent = 2000
    async with open_collector(configure("udp", receive_buffer_octets=16 * 1024), **intake.arguments) as group:
        (address,) = group.addresses
        with sender() as peer:
            for number in range(sent):
                peer.sendto(make_message(number), (address.host, address.port))
        (before,) = group.statistics()
        assert before.kernel_drops > 0
        await nursery.start(group.run)
        await intake.wait_until(lambda: len(intake.messages) + before.kernel_drops >= sent)
        (statistics,) = group.statistics()
        assert statistics.messages + statistics.kernel_drops == sent
        nursery.cancel_scope.cancel()


async def test_the_granted_receive_buffer_is_said(intake, configure):
    async with open_collector(configure("udp"), **intake.arguments):
        ((_level, facts),) = intake.log.of("receive_buffer")
        assert facts["asked_octets"] == 1024 * 1024
        assert isinstance(facts["granted_octets"], int)
        assert facts["granted_octets"] > 0


async def test_an_error_of_the_socket_is_counted_and_the_port_is_heard_again(
    intake, configure, make_message, nursery, autojump_clock
):
    async with open_collector(configure("udp"), **intake.arguments) as group:
        (address,) = await nursery.start(group.run)
        (process,) = group._processes
        with sender() as peer:
            # A connected socket is told of the ICMP "port unreachable" that its datagram brought back.
            with sender() as closed:
                nowhere = closed.getsockname()
            failing = process._socket
            failing.connect(nowhere)
            failing.send(b"x")
            await intake.wait_until(lambda: bool(intake.log.of("socket_reopened")))
            peer.sendto(make_message(7), (address.host, address.port))
            await intake.wait_for_messages(1)
        assert intake.messages == [make_message(7)]
        (statistics,) = group.statistics()
        assert statistics.socket_errors == 1
        ((level, _),) = intake.log.of("socket_failed")
        assert level == "error"
        assert failing.fileno() == -1
        nursery.cancel_scope.cancel()


async def test_a_port_that_another_took_meanwhile_is_tried_until_it_is_free(
    intake, configure, make_message, nursery, autojump_clock
):
    async with open_collector(configure("udp"), **intake.arguments) as group:
        (address,) = await nursery.start(group.run)
        (process,) = group._processes
        with sender() as closed:
            nowhere = closed.getsockname()
        process._socket.connect(nowhere)
        process._socket.send(b"x")
        await intake.wait_until(lambda: bool(intake.log.of("socket_failed")))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief:
            thief.bind((address.host, address.port))
            await intake.wait_until(lambda: len(intake.log.of("socket_failed")) >= 4)
        await intake.wait_until(lambda: bool(intake.log.of("socket_reopened")))
        nursery.cancel_scope.cancel()


async def test_stop_intake_takes_what_had_arrived_and_ends(intake, configure, make_message):
    async with open_collector(configure("udp", datagrams_per_wakeup=16), **intake.arguments) as group:
        (address,) = group.addresses
        with sender() as peer:
            for number in range(100):
                peer.sendto(make_message(number), (address.host, address.port))
        group.stop_intake()
        with trio.fail_after(60):
            await group.run()
        assert len(intake.messages) == 100


async def test_cancelling_ends_run_and_leaving_closes_the_socket(intake, configure):
    async with open_collector(configure("udp"), **intake.arguments) as group:
        (address,) = group.addresses
        async with trio.open_nursery() as nursery:
            await nursery.start(group.run)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
        again.bind((address.host, address.port))


async def test_a_bug_of_ours_is_not_taken_for_a_fault_of_the_socket(intake, configure, make_message):
    def broken(messages, sessions, now):
        raise ConnectionError  # a kind of OSError

    arguments = {**intake.arguments, "ingest": broken}
    async with open_collector(configure("udp"), **arguments) as group:
        (address,) = group.addresses
        with sender() as peer:
            peer.sendto(make_message(), (address.host, address.port))
        with trio.fail_after(60), pytest.RaisesGroup(ConnectionError, flatten_subgroups=True):
            await group.run()


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
async def test_an_address_in_use_is_one_sentence_that_says_what_to_do(intake, configure, protocol):
    async with open_collector(configure(protocol), **intake.arguments) as group:
        (address,) = group.addresses
        with pytest.raises(BindError) as caught:
            async with open_collector(configure(protocol, port=address.port), **intake.arguments):
                raise AssertionError
    assert str(caught.value) == (
        f"cannot listen on {protocol} 127.0.0.1:{address.port}: another process listens there; "
        f"find it with 'ss -lnp --{protocol}' or choose another port"
    )
    assert caught.value.address == f"127.0.0.1:{address.port}"


@pytest.mark.parametrize(
    ("host", "advice"),
    [
        ("192.0.2.1", "this machine does not have that address"),
        ("no-such-host.invalid", "the name 'no-such-host.invalid' is not known"),
    ],
)
async def test_an_address_that_is_not_ours_is_one_sentence(intake, configure, host, advice):
    with pytest.raises(BindError, match=advice):
        async with open_collector(configure("udp", host), **intake.arguments):
            raise AssertionError


async def test_large_datagrams_come_in_pieces_and_a_wake_up_ends_when_its_time_is_over(
    intake, configure, make_message, nursery
):
    """Else one wake-up of 256 large datagrams, each made to take long, would hold the thread for minutes."""
    limits = {"receive_buffer_octets": 8 * 1024 * 1024, "slice_seconds": 0.0}
    async with open_collector(configure("udp", **limits), **intake.arguments) as group:
        (address,) = group.addresses
        with sender() as peer:
            for number in range(30):
                peer.sendto(make_message(number, payload=16_000), (address.host, address.port))
        await nursery.start(group.run)
        calls = [len(intake.calls)]
        while len(intake.messages) < 30:
            await trio.lowlevel.checkpoint()
            calls.append(len(intake.calls))
        assert intake.calls == [5] * 6  # 65536 octets are reached
        # others run in between; two, because trio runs the tasks of one round in any order
        assert all(after - before <= 2 for before, after in itertools.pairwise(calls))
        assert [message[-4:] for message in intake.messages] == [
            make_message(number, payload=16_000)[-4:] for number in range(30)
        ]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
async def test_what_cannot_be_a_host_name_is_said_in_a_sentence(intake, configure, host):
    with pytest.raises(BindError, match=f"the name '{host}' is not known .it is no host name"):
        async with open_collector(configure("udp", host), **intake.arguments):
            pass
