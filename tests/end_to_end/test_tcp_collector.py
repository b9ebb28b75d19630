"""The TCP Collecting Process on real loopback sockets."""

from __future__ import annotations

import os
import resource
import socket
import struct
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import memory_stream_one_way_pair, wait_all_tasks_blocked

from flowjoin._collector.process import open_collector
from flowjoin._model.transport_session import TransportSession


@asynccontextmanager
async def running(config, intake, **arguments):
    async with open_collector(config, **{**intake.arguments, **arguments}) as group, trio.open_nursery() as nursery:
        await nursery.start(group.run)
        yield group
        nursery.cancel_scope.cancel()


async def connect(group):
    (address,) = group.addresses
    return await trio.open_tcp_stream(address.host, address.port)


def statistics_of(group):
    (statistics,) = group.statistics()
    return statistics


async def is_closed(stream):
    """Whether the other side has closed: at the end of the stream, or by a reset when it left octets unread."""
    try:
        return await stream.receive_some(1) == b""
    except trio.BrokenResourceError:
        return True


async def test_messages_of_one_read_are_one_call_with_the_connections_session(intake, configure, make_message):
    async with running(configure("tcp"), intake) as group, await connect(group) as stream:
        await stream.send_all(make_message(1) + make_message(2) + make_message(3))
        await intake.wait_for_messages(3)
        assert intake.messages == [make_message(1), make_message(2), make_message(3)]
        assert intake.calls == [3]
        local, peer = stream.socket.getsockname(), stream.socket.getpeername()
        assert set(intake.sessions) == {
            TransportSession(
                protocol="tcp", peer=local[0], peer_port=local[1], local=peer[0], local_port=peer[1], serial=1
            )
        }


async def test_a_peer_that_sends_octet_by_octet_gives_the_same_messages(intake, configure, make_message):
    async with running(configure("tcp"), intake) as group, await connect(group) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in make_message(1) + make_message(2):
            await stream.send_all(bytes([octet]))
        await intake.wait_for_messages(2)
        assert intake.messages == [make_message(1), make_message(2)]


async def test_the_largest_message_comes_through_whole(intake, configure, make_message):
    largest = make_message(payload=65535 - 20)
    async with running(configure("tcp"), intake) as group, await connect(group) as stream:
        await stream.send_all(largest * 3)
        await intake.wait_for_messages(3)
        assert intake.messages == [largest] * 3


async def test_two_connections_have_two_sessions_and_each_is_closed_once(intake, configure, make_message):
    async with running(configure("tcp"), intake) as group:
        async with await connect(group) as first, await connect(group) as second:
            await first.send_all(make_message(1))
            await second.send_all(make_message(2))
            await intake.wait_for_messages(2)
            assert statistics_of(group).sessions == 2
        await intake.wait_until(lambda: len(intake.closed) == 2)
        assert set(intake.closed) == set(intake.sessions)
        assert statistics_of(group).sessions == 0
        assert statistics_of(group).sessions_opened == 2


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">HH", 10, 15) + bytes(20),
        struct.pack(">HH", 10, 0) + bytes(20),
        struct.pack(">HH", 9, 40) + bytes(40),
    ],
    ids=["http", "length-15", "length-0", "version-9"],
)
async def test_a_stream_that_is_no_ipfix_is_closed_and_counted_after_what_was_good(
    intake, configure, make_message, garbage
):
    async with running(configure("tcp"), intake) as group, await connect(group) as stream, await connect(group) as good:
        await stream.send_all(make_message(1) + garbage)
        await intake.wait_until(lambda: len(intake.closed) == 1)
        assert intake.messages == [make_message(1)]
        assert dict(statistics_of(group).refused) == {"stream_desynchronised": 1}
        assert await is_closed(stream)
        await good.send_all(make_message(2))
        await intake.wait_for_messages(2)


async def test_a_connection_the_kernel_calls_faulty_is_closed_and_counted(intake, configure, make_message):
    intake.is_faulty = lambda message: message == make_message(2)
    async with running(configure("tcp"), intake) as group, await connect(group) as stream:
        await stream.send_all(make_message(1) + make_message(2))
        await intake.wait_until(lambda: len(intake.closed) == 1)
        assert statistics_of(group).connections_faulty == 1
        assert dict(statistics_of(group).refused) == {}
        assert await is_closed(stream)


async def test_a_peer_that_resets_ends_its_session_only(intake, configure, make_message):
    async with running(configure("tcp"), intake) as group, await connect(group) as good:
        async with await connect(group) as stream:
            await stream.send_all(make_message(1))
            await intake.wait_for_messages(1)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await intake.wait_until(lambda: len(intake.closed) == 1)
        assert statistics_of(group).connections_reset == 1
        await good.send_all(make_message(2))
        await intake.wait_for_messages(2)


async def test_a_peer_that_goes_inside_a_message_is_counted(intake, configure, make_message):
    async with running(configure("tcp"), intake) as group:
        async with await connect(group) as stream:
            await stream.send_all(make_message(1) + make_message(2)[:-1])
        await intake.wait_until(lambda: len(intake.closed) == 1)
        assert intake.messages == [make_message(1)]
        assert statistics_of(group).connections_cut == 1


async def test_a_thousand_sessions_at_once(intake, configure, make_message):
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2200:
        pytest.skip(f"needs 2200 file descriptors, the limit is {soft}")
    async with running(configure("tcp"), intake) as group:
        streams = [await connect(group) for _ in range(1000)]
        for number, stream in enumerate(streams):
            await stream.send_all(make_message(number))
        await intake.wait_for_messages(1000)
        assert len(set(intake.sessions)) == 1000
        assert sorted(intake.messages) == sorted(map(make_message, range(1000)))
        assert statistics_of(group).sessions == 1000
        for stream in streams:
            await trio.aclose_forcefully(stream)
        await intake.wait_until(lambda: len(intake.closed) == 1000)


async def test_a_connection_beyond_the_limit_is_closed_and_counted_and_a_place_is_given_again(
    intake, configure, make_message
):
    async with running(configure("tcp", sessions=1), intake) as group:
        async with await connect(group) as first:
            await first.send_all(make_message(1))
            await intake.wait_for_messages(1)
            async with await connect(group) as second:
                assert await is_closed(second)
            assert dict(statistics_of(group).refused) == {"session_limit": 1}
            assert intake.closed == []
        await intake.wait_until(lambda: len(intake.closed) == 1)
        async with await connect(group) as third:
            await third.send_all(make_message(3))
            await intake.wait_for_messages(2)


async def test_nothing_is_read_and_nothing_lost_while_the_pipeline_is_not_ready(intake, configure, make_message):
    gate = trio.Event()

    async def wait_until_ready():
        await gate.wait()

    message = make_message(payload=60_000)
    async with running(configure("tcp"), intake, wait_until_ready=wait_until_ready) as group:
        async with await connect(group) as stream, trio.open_nursery() as nursery:

            async def send():
                for _ in range(400):  # 24 MB: more than socket buffers hold
                    await stream.send_all(message)

            nursery.start_soon(send)
            await wait_all_tasks_blocked(0.05)
            assert intake.messages == []
            assert nursery.child_tasks, "flow control holds the sender"
            gate.set()
            await intake.wait_for_messages(400)
        assert intake.messages == [message] * 400


async def test_a_silent_connection_is_closed_after_the_idle_timeout(intake, configure, make_message, autojump_clock):
    async with running(configure("tcp", idle_timeout=10.0), intake) as group, await connect(group) as stream:
        await stream.send_all(make_message(1))
        await intake.wait_until(lambda: len(intake.closed) == 1)
        assert 10 <= trio.current_time() < 11
        assert statistics_of(group).connections_idle == 1


async def test_time_in_which_we_did_not_read_is_no_silence_of_the_peer(intake, configure, make_message, autojump_clock):
    gates = 0

    async def wait_until_ready():
        nonlocal gates
        gates += 1
        await trio.sleep(60 if gates == 3 else 0)  # before the second read

    async with open_collector(
        configure("tcp", idle_timeout=10.0), **intake.arguments, wait_until_ready=wait_until_ready
    ) as group:
        (process,) = group._processes
        send, receive = memory_stream_one_way_pair()

        async def talk():
            await send.send_all(make_message(1))
            await trio.sleep(65)
            await send.send_all(make_message(2))
            await send.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            await process.serve(receive, TransportSession(protocol="tcp", peer="192.0.2.1"))
        assert intake.messages == [make_message(1), make_message(2)]
        assert statistics_of(group).connections_idle == 0


async def test_a_peer_that_never_finishes_a_message_is_idle_too(configure, intake, make_message, autojump_clock):
    async with open_collector(configure("tcp", idle_timeout=10.0), **intake.arguments) as group:
        (process,) = group._processes
        send, receive = memory_stream_one_way_pair()
        session = TransportSession(protocol="tls", peer="192.0.2.1", peer_port=5, identity="node-1")

        async def trickle():
            for octet in make_message(payload=1000):
                await send.send_all(bytes([octet]))
                await trio.sleep(1.5)  # never at the same instant as the timeout

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle)
            await process.serve(receive, session)
            nursery.cancel_scope.cancel()
        assert trio.current_time() == pytest.approx(10, abs=1)
        assert intake.closed == [session]


async def test_running_out_of_file_descriptors_is_survived_and_counted(intake, configure, make_message):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with open_collector(configure("tcp"), **intake.arguments) as group, trio.open_nursery() as nursery:
        (address,) = group.addresses
        with socket.socket() as peer:
            peer.connect((address.host, address.port))  # waits in the backlog
            peer.sendall(make_message(1))
            lowest_free = os.dup(peer.fileno())
            os.close(lowest_free)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
                await nursery.start(group.run)
                await intake.wait_until(lambda: len(intake.log.of("accept_failed")) >= 2)
                assert intake.messages == []
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await intake.wait_for_messages(1)
        assert statistics_of(group).accept_failures >= 2
        nursery.cancel_scope.cancel()


async def test_ipv4_and_ipv6_peers_reach_one_dual_stack_socket(intake, configure, make_message):
    async with running(configure("tcp", "::"), intake) as group:
        (address,) = group.addresses
        for number, host in enumerate(["127.0.0.1", "::1"], 1):
            async with await trio.open_tcp_stream(host, address.port) as stream:
                await stream.send_all(make_message())
                await intake.wait_for_messages(number)
        assert [(session.peer, session.local) for session in intake.sessions] == [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
        ]


async def test_stop_intake_reads_what_had_arrived_and_ends(intake, configure, make_message):
    async with open_collector(configure("tcp"), **intake.arguments) as group, trio.open_nursery() as nursery:
        await nursery.start(group.run)
        async with await connect(group) as silent, await connect(group) as stream:
            await wait_all_tasks_blocked()
            await stream.send_all(b"".join(map(make_message, range(10_000))))
            group.stop_intake()
            with trio.fail_after(60):
                await intake.wait_until(lambda: len(intake.closed) == 2)
            assert len(intake.messages) == 10_000
            assert await is_closed(silent)
    with pytest.raises(OSError, match=r"refused|all attempts"):
        await connect(group)


async def test_a_peer_that_never_stops_sending_does_not_keep_run_from_ending(
    intake, configure, make_message, autojump_clock
):
    async with open_collector(configure("tcp"), **intake.arguments) as group, trio.open_nursery() as nursery:
        (process,) = group._processes
        send, receive = memory_stream_one_way_pair()

        async def flood():
            while True:
                await send.send_all(make_message())
                await trio.sleep(0.01)

        nursery.start_soon(flood)
        nursery.start_soon(process.serve, receive, TransportSession(protocol="tcp", peer="192.0.2.1"))
        await intake.wait_for_messages(1)
        process.stop_intake()
        await intake.wait_until(lambda: len(intake.closed) == 1)
        assert trio.current_time() < 2
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("at", range(8))
async def test_cancelled_at_each_checkpoint_it_closes_the_stream_and_its_session(intake, configure, make_message, at):
    async with open_collector(configure("tcp"), **intake.arguments) as group:
        (process,) = group._processes
        send, receive = memory_stream_one_way_pair()
        session = TransportSession(protocol="tcp", peer="192.0.2.1")
        seen = 0

        async def wait_until_ready():
            nonlocal seen
            seen += 1
            if seen - 1 == at // 2:
                scope.cancel()
            if at % 2 == 0:  # noticed here, otherwise at the read
                await trio.lowlevel.checkpoint()

        process._intake = process._intake.__class__(
            ingest=intake.ingest, close_session=intake.close_session, wait_until_ready=wait_until_ready, log=intake.log
        )
        await send.send_all(make_message(1))
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.serve, receive, session)
                await intake.wait_until(lambda: at < 2 or bool(intake.messages))
                await send.send_all(make_message(2))
        assert scope.cancelled_caught
        assert intake.closed == [session]
        # It waits before each read and before handing over what it read, which is handed over all the same.
        assert intake.messages == [make_message(1), make_message(2)][: (at // 2 + 1) // 2]
        with pytest.raises(trio.BrokenResourceError):
            await send.send_all(b"x")


async def test_a_bug_of_ours_ends_run_and_still_closes_the_session(intake, configure, make_message):
    def broken(messages, sessions, now):
        raise ZeroDivisionError

    with trio.fail_after(60), pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with running(configure("tcp"), intake, ingest=broken) as group, await connect(group) as stream:
            await stream.send_all(make_message())
            await trio.sleep_forever()
    assert len(intake.closed) == 1
