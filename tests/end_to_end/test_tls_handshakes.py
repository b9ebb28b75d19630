"""Handshakes of the TLS Collecting Process: many at once, slow ones, cancelled ones."""

from __future__ import annotations

import resource
import subprocess
import time
from contextlib import suppress
from functools import partial

import certificates
import pytest
import trio
from tls_collector import collecting, connect, statistics_of, tls_files
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from flowjoin._certificates.files import read_files, server_tls
from flowjoin._collector.handshakes import Handshakes
from flowjoin._collector.metrics import CollectorCounters
from flowjoin._collector.tls_stream import TlsReceiveStream

__all__ = ["tls_files"]


@pytest.mark.slow
async def test_a_thousand_half_open_handshakes_are_bounded_and_an_honest_client_gets_in(
    intake, configure, make_message, tls_files, tmp_path
):
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2200:
        pytest.skip(f"needs 2200 file descriptors, the limit is {soft}")
    context = certificates.client_context(tmp_path, certificates.client())
    async with collecting(configure("tls", handshakes=250), intake, tls_files) as group:
        (address,) = group.addresses
        silent = [await trio.open_tcp_stream(address.host, address.port) for _ in range(1000)]
        most = 0

        async def watch():
            nonlocal most
            while True:
                most = max(most, statistics_of(group).handshakes)
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            with trio.fail_after(60):
                async with await connect(group, context) as stream:
                    await stream.send_all(make_message(1))
                    await intake.wait_for_messages(1)
            nursery.cancel_scope.cancel()
        assert 0 < most <= 250
        refused = statistics_of(group).refused
        assert set(refused) <= {"tls_handshake_limit", "tls_handshake_timeout"}
        assert sum(refused.values()) >= 1000 - 2 * 250
        for stream in silent:
            await trio.aclose_forcefully(stream)


async def test_who_takes_too_long_is_closed_and_counted(intake, tls_files, autojump_clock, configure):
    tls = server_tls(tls_files, read_files(tls_files), time.time())
    counters = CollectorCounters()
    handshakes = Handshakes(certificates.FixedTls(tls), configure("tls").limits, counters, intake.log, address="here")
    ours, theirs = memory_stream_pair()

    async def trickle():
        for octet in b"\x16\x03\x01\x02\x00\x01" + bytes(100):
            await theirs.send_all(bytes([octet]))
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trickle)
        assert await handshakes.admit(handshakes.enter(), ours, peer="192.0.2.1", port=1) is None
        nursery.cancel_scope.cancel()
    assert trio.current_time() == pytest.approx(10, abs=0.5)
    assert counters.refused == {"tls_handshake_timeout": 1}
    assert len(handshakes) == 0


async def test_who_has_been_at_it_for_a_second_gives_its_place_to_who_waits(
    intake, tls_files, autojump_clock, configure
):
    tls = server_tls(tls_files, read_files(tls_files), time.time())
    counters = CollectorCounters()
    limits = configure("tls", handshakes=2).limits
    handshakes = Handshakes(certificates.FixedTls(tls), limits, counters, intake.log, address="here")
    silent = [memory_stream_pair() for _ in range(2)]
    async with trio.open_nursery() as nursery:

        async def shake(stream):
            await handshakes.admit(handshakes.enter(), stream, peer="192.0.2.1", port=1)

        for ours, _theirs in silent:
            await handshakes.wait_place()
            nursery.start_soon(shake, ours)
            await wait_all_tasks_blocked()
            await trio.sleep(0.1)
        assert len(handshakes) == 2
        await handshakes.wait_place()
        assert trio.current_time() == pytest.approx(1, abs=0.01)
        await wait_all_tasks_blocked()
        assert len(handshakes) == 1
        assert counters.refused == {"tls_handshake_limit": 1}
        nursery.cancel_scope.cancel()
    assert len(handshakes) == 0


@pytest.mark.parametrize("at", range(6))
async def test_cancelled_at_any_await_of_the_handshake_its_place_is_free_and_nothing_is_counted(
    intake, tls_files, tmp_path, configure, at
):
    tls = server_tls(tls_files, read_files(tls_files), time.time())
    counters = CollectorCounters()
    handshakes = Handshakes(certificates.FixedTls(tls), configure("tls").limits, counters, intake.log, address="here")
    ours, theirs = memory_stream_pair()
    scope = trio.CancelScope()
    seen = 0

    async def count():
        nonlocal seen
        seen += 1
        if seen > at:
            scope.cancel()
        await trio.lowlevel.checkpoint()

    pump = ours.send_stream.send_all_hook  # carries the octets over to the other end

    async def count_and_pump():
        await count()
        await pump()

    ours.receive_stream.receive_some_hook = count
    ours.send_stream.send_all_hook = count_and_pump
    context = certificates.client_context(tmp_path, certificates.client())
    client = trio.SSLStream(theirs, context, server_hostname="localhost")
    async with trio.open_nursery() as nursery:

        async def shake():
            with suppress(trio.BrokenResourceError):
                await client.do_handshake()

        nursery.start_soon(shake)
        with scope:
            stream = await handshakes.admit(handshakes.enter(), ours, peer="192.0.2.1", port=1)
        if not scope.cancelled_caught:
            assert isinstance(stream, TlsReceiveStream), "fewer awaits than that"
            assert seen <= at + 1
        nursery.cancel_scope.cancel()
    assert len(handshakes) == 0
    assert counters.refused == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "command", "outcome"),
    [("-tls1_2", b"R\n", b"RENEGOTIATING"), ("-tls1_3", b"K\n", b"KEYUPDATE"), ("-tls1_3", b"k\n", b"KEYUPDATE")],
    ids=["a new handshake", "new keys of both sides", "new keys of the client"],
)
async def test_keys_may_change_in_the_middle_and_a_second_handshake_harms_only_who_asks_for_it(
    intake, configure, make_message, tls_files, tmp_path, require_program, version, command, outcome
):
    """openssl s_client takes commands that stand alone in what it reads."""
    openssl = require_program("openssl")
    certificate, key = certificates.write(tmp_path, "s_client", certificates.client())
    async with collecting(configure("tls"), intake, tls_files) as group, trio.open_nursery() as nursery:
        (address,) = group.addresses
        other = await connect(group, certificates.client_context(tmp_path, certificates.client()))
        shown = [openssl, "s_client", "-connect", str(address), version, "-cert", certificate, "-key", key]
        process = await nursery.start(
            partial(
                trio.run_process, shown,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )
        )  # fmt: skip
        said = b""

        async def wait_said(what):
            nonlocal said
            with trio.fail_after(60):
                while what not in said:
                    piece = await process.stdout.receive_some()
                    assert piece, said
                    said += bytes(piece)

        async def give(what):
            """A command, which must not share a read with what follows it."""
            nonlocal said
            said = b""
            await process.stdin.send_all(what)
            await wait_said(outcome)

        async with other:
            await wait_said(b"Verify return code")
            await give(command)
            if version == "-tls1_3":
                await process.stdin.send_all(make_message(1))
                await intake.wait_for_messages(1)
                await give(command)
                await process.stdin.send_all(make_message(2))
                await intake.wait_for_messages(2)
            process.kill()
            await other.send_all(make_message(3))
            await intake.wait_until(lambda: make_message(3) in intake.messages)
        await intake.wait_until(lambda: statistics_of(group).sessions == 0)
