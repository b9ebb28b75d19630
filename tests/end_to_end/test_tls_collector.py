"""The TLS Collecting Process on real loopback sockets: who is let in, who is not, and that a rotation costs nothing."""

from __future__ import annotations

import resource
import socket
import ssl
import struct
import time
from contextlib import asynccontextmanager, suppress

import certificates
import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from flowjoin._certificates.files import TlsFiles, read_files, server_tls
from flowjoin._certificates.process import open_file_tls
from flowjoin._collector.handshakes import Handshakes
from flowjoin._collector.metrics import CollectorCounters
from flowjoin._collector.process import open_collector
from flowjoin._collector.tls_stream import TlsReceiveStream

TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.fixture
def files(tmp_path):
    found = certificates.server_files(tmp_path)
    return TlsFiles(certificate=found.certificate, key=found.key, client_ca=found.client_ca, path="collectors[0].tls")


@asynccontextmanager
async def running(config, intake, files):
    tls = server_tls(files, read_files(files), time.time())
    async with (
        open_collector(config, **intake.arguments, tls=certificates.FixedTls(tls)) as group,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(group.run)
        yield group
        nursery.cancel_scope.cancel()


async def connect(group, context):
    (address,) = group.addresses
    stream = await trio.open_ssl_over_tcp_stream(address.host, address.port, ssl_context=context)
    try:
        await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


async def alert_of(group, context):
    """What the collector answers a client that it refuses."""
    with trio.fail_after(30), pytest.raises(trio.BrokenResourceError) as caught:
        async with await connect(group, context) as stream:
            await stream.receive_some(1)
    assert isinstance(caught.value.__cause__, ssl.SSLError)
    return caught.value.__cause__.reason


def statistics_of(group):
    (statistics,) = group.statistics()
    return statistics


@pytest.mark.parametrize("version", [TLS12, TLS13], ids=lambda version: version.name)
async def test_a_client_of_our_authority_is_let_in_with_its_name(
    intake, configure, make_message, files, tmp_path, version
):
    context = certificates.client_context(tmp_path, certificates.client())
    context.minimum_version = context.maximum_version = version
    async with running(configure("tls"), intake, files) as group:
        async with await connect(group, context) as stream:
            assert stream.version() == ("TLSv1.2" if version is TLS12 else "TLSv1.3")
            await stream.send_all(make_message(1) + make_message(2))
            await intake.wait_for_messages(2)
            assert statistics_of(group).sessions == 1
        await intake.wait_until(lambda: len(intake.closed) == 1)
        (session,) = set(intake.sessions)
        assert (session.protocol, session.peer, session.identity) == ("tls", "127.0.0.1", "exporter-1")
        await intake.wait_until(lambda: bool(intake.log.of("connection_closed")))
        ((level, facts),) = intake.log.of("connection_closed")
        assert (level, facts["cause"], facts["identity"]) == ("info", "end", "exporter-1")
        assert statistics_of(group).refused == {}


REFUSED = {
    "none": (
        lambda: None,
        "tls_certificate_missing",
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
    ),
    "other authority": (
        lambda: certificates.client("somebody else"),
        "tls_certificate_untrusted",
        ("TLSV1_ALERT_UNKNOWN_CA",),
    ),
    "expired": (
        lambda: certificates.client(is_expired=True),
        "tls_certificate_expired",
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED",),
    ),
    "not yet valid": (
        lambda: certificates.client(is_early=True),
        "tls_certificate_not_yet_valid",
        ("SSLV3_ALERT_BAD_CERTIFICATE",),
    ),
    "a server's": (certificates.server, "tls_certificate_purpose", ("SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",)),
}


@pytest.mark.parametrize("version", [TLS12, TLS13], ids=lambda version: version.name)
@pytest.mark.parametrize("who", REFUSED)
async def test_a_client_that_does_not_show_a_good_certificate_is_refused_told_why_and_counted(
    intake, configure, files, tmp_path, who, version
):
    pair, reason, alerts = REFUSED[who]
    context = certificates.client_context(tmp_path, pair())
    context.minimum_version = context.maximum_version = version
    async with running(configure("tls"), intake, files) as group:
        assert await alert_of(group, context) in alerts
        await intake.wait_until(lambda: bool(intake.log.of("handshake_failed")))
        ((level, facts),) = intake.log.of("handshake_failed")
        assert (level, facts["reason"], facts["original_exporter"]) == ("warning", reason, "127.0.0.1")
        assert statistics_of(group).refused == {reason: 1}
        assert (statistics_of(group).sessions, statistics_of(group).sessions_opened) == (0, 0)
        assert intake.messages == intake.closed == []


async def test_a_client_that_minds_our_certificate_is_counted(intake, configure, files, tmp_path):
    context = certificates.client_context(tmp_path, certificates.client(), ca="somebody else")
    async with running(configure("tls"), intake, files) as group:
        (address,) = group.addresses

        def connect_and_say_why():  # trio's own stream would leave without a word
            with (
                socket.create_connection((address.host, address.port)) as connection,
                pytest.raises(ssl.SSLCertVerificationError),
            ):
                context.wrap_socket(connection, server_hostname="localhost")

        await trio.to_thread.run_sync(connect_and_say_why)
        await intake.wait_until(lambda: bool(intake.log.of("handshake_failed")))
        assert statistics_of(group).refused == {"tls_refused_by_peer": 1}


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "tls_not_spoken"),
        (struct.pack(">HHIII", 10, 24, 0, 0, 1) + struct.pack(">HHI", 256, 8, 0), "tls_not_spoken"),
        (b"", "tls_handshake_cut"),
        (b"\x16\x03\x01", "tls_handshake_cut"),
    ],
    ids=["http", "ipfix", "nothing", "three octets"],
)
async def test_who_speaks_no_tls_is_closed_and_counted(intake, configure, files, octets, reason):
    async with running(configure("tls"), intake, files) as group:
        (address,) = group.addresses
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            await stream.send_all(octets)
            await stream.send_eof()
            await intake.wait_until(lambda: bool(intake.log.of("handshake_failed")))
            assert statistics_of(group).refused == {reason: 1}


async def test_without_authorities_no_certificate_is_asked_for(intake, configure, make_message, tmp_path):
    found = certificates.server_files(tmp_path)
    files = TlsFiles(certificate=found.certificate, key=found.key, client_ca=None, path="collectors[0].tls")
    async with running(configure("tls"), intake, files) as group:
        async with await connect(group, certificates.client_context(tmp_path, None)) as stream:
            await stream.send_all(make_message(1))
            await intake.wait_for_messages(1)
        assert intake.sessions[0].identity is None


async def test_minimum_version_1_3_refuses_1_2(intake, configure, tmp_path):
    found = certificates.server_files(tmp_path)
    files = TlsFiles(
        certificate=found.certificate, key=found.key, client_ca=found.client_ca, minimum_version=TLS13, path=""
    )
    context = certificates.client_context(tmp_path, certificates.client())
    context.maximum_version = TLS12
    async with running(configure("tls"), intake, files) as group:
        with pytest.raises(trio.BrokenResourceError):
            await connect(group, context)
        await intake.wait_until(lambda: bool(intake.log.of("handshake_failed")))
        assert statistics_of(group).refused == {"tls_version_unsupported": 1}


async def test_what_was_sent_last_arrives_although_the_client_reads_nothing(
    intake, configure, make_message, files, tmp_path
):
    """A server that sends session tickets makes the end of such a connection a reset."""
    context = certificates.client_context(tmp_path, certificates.client())
    async with running(configure("tls"), intake, files) as group:
        for number in range(1, 21):
            stream = await connect(group, context)
            await stream.send_all(make_message(payload=10_000) * 100)
            await stream.aclose()
            await intake.wait_until(lambda expected=number: len(intake.closed) == expected)
            assert len(intake.messages) == 100 * number
        assert statistics_of(group).connections_reset == 0


async def test_a_connection_that_ends_without_close_notify_gives_what_it_sent_and_is_no_proper_end(
    intake, configure, make_message, files, tmp_path
):
    context = certificates.client_context(tmp_path, certificates.client())
    async with running(configure("tls"), intake, files) as group:
        stream = await connect(group, context)
        await stream.send_all(make_message(1))
        await stream.transport_stream.aclose()
        await intake.wait_until(lambda: len(intake.closed) == 1)
        assert intake.messages == [make_message(1)]
        assert statistics_of(group).connections_reset == 1


async def test_stop_intake_reads_what_had_arrived_and_says_so(intake, configure, make_message, files, tmp_path):
    context = certificates.client_context(tmp_path, certificates.client())
    tls = server_tls(files, read_files(files), time.time())
    async with (
        open_collector(configure("tls"), **intake.arguments, tls=certificates.FixedTls(tls)) as group,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(group.run)
        (address,) = group.addresses
        stream = await connect(group, context)
        half_open = await trio.open_tcp_stream(address.host, address.port)
        await stream.send_all(b"".join(map(make_message, range(1000))))
        await intake.wait_for_messages(1)
        group.stop_intake()
        await intake.wait_until(lambda: len(intake.closed) == 1)
        assert len(intake.messages) == 1000
        with trio.fail_after(30):
            assert await stream.receive_some(1) == b"", "close_notify"
            assert await half_open.receive_some(1) == b""
        assert statistics_of(group).refused == {}
        await trio.aclose_forcefully(stream)
        await half_open.aclose()


@pytest.mark.slow
async def test_openssls_own_client_is_let_in_and_refused(
    intake, configure, make_message, files, tmp_path, require_program
):
    openssl = require_program("openssl")
    certificate, key = certificates.write(tmp_path, "s_client", certificates.client())
    ca, _ = certificates.write(tmp_path, "ca", certificates.authority())
    async with running(configure("tls"), intake, files) as group:
        (address,) = group.addresses
        command = [openssl, "s_client", "-connect", str(address), "-CAfile", ca, "-verify_return_error", "-quiet"]

        async def talk(*more):
            with trio.fail_after(60):
                return await trio.run_process(
                    [*command, *more], stdin=make_message(7), capture_stdout=True, capture_stderr=True, check=False
                )

        done = await talk("-cert", certificate, "-key", key, "-no_ign_eof")
        assert done.returncode == 0, done.stderr
        await intake.wait_for_messages(1)
        assert intake.messages == [make_message(7)]
        for version in ("-tls1_2", "-tls1_3"):
            refused = await talk(version)
            assert b"alert" in refused.stderr, refused.stderr
        await intake.wait_until(lambda: len(intake.log.of("handshake_failed")) == 2)
        assert statistics_of(group).refused == {"tls_certificate_missing": 2}


@pytest.mark.slow
async def test_a_thousand_half_open_handshakes_are_bounded_and_an_honest_client_gets_in(
    intake, configure, make_message, files, tmp_path
):
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2200:
        pytest.skip(f"needs 2200 file descriptors, the limit is {soft}")
    context = certificates.client_context(tmp_path, certificates.client())
    async with running(configure("tls", handshakes=250), intake, files) as group:
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


async def test_who_takes_too_long_is_closed_and_counted(intake, files, autojump_clock, configure):
    tls = server_tls(files, read_files(files), time.time())
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


async def test_who_has_been_at_it_for_a_second_gives_its_place_to_who_waits(intake, files, autojump_clock, configure):
    tls = server_tls(files, read_files(files), time.time())
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
    intake, files, tmp_path, configure, at
):
    tls = server_tls(files, read_files(files), time.time())
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
async def test_rotated_under_load_no_connection_is_dropped_and_no_record_lost(
    intake, configure, make_message, files, tmp_path, monkeypatch
):
    """Certificate and both authorities change while old connections send on and new ones come."""
    monkeypatch.setattr("flowjoin._certificates.process.LOOK_SECONDS", 0.02)
    first = certificates.client_context(tmp_path, certificates.client())
    second = certificates.client_context(tmp_path, certificates.client("new ca"), ca="new ca")
    problems = []
    sent = 0
    is_over = False
    async with (
        open_file_tls(files, log=intake.log, report=problems.append) as tls,
        open_collector(configure("tls"), **intake.arguments, tls=tls) as group,
        trio.open_nursery() as serving,
    ):
        await serving.start(group.run)

        async def send_on(stream):
            nonlocal sent
            async with stream:
                while not is_over:
                    await stream.send_all(make_message(sent))
                    sent += 1
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as senders:
            for _ in range(5):
                senders.start_soon(send_on, await connect(group, first))
            await intake.wait_for_messages(200)
            certificates.server_files(tmp_path, certificates.server("new ca"), client_ca="new ca")
            await intake.wait_until(lambda: bool(intake.log.of("certificate_replaced")))
            for _ in range(5):
                senders.start_soon(send_on, await connect(group, second))
            with pytest.raises(trio.BrokenResourceError):
                await connect(group, first)
            await intake.wait_for_messages(len(intake.messages) + 200)
            assert intake.closed == []
            is_over = True
        await intake.wait_until(lambda: len(intake.closed) == 10)
        assert len(intake.messages) == sent
        assert statistics_of(group).sessions_opened == 10
        assert statistics_of(group).connections_reset == statistics_of(group).connections_cut == 0
        serving.cancel_scope.cancel()
    assert [problem for problem in problems if problem is not None] == []


async def test_files_that_cannot_be_used_are_refused_and_what_was_there_stays_in_use(
    intake, configure, files, tmp_path, monkeypatch
):
    monkeypatch.setattr("flowjoin._certificates.process.LOOK_SECONDS", 0.01)
    context = certificates.client_context(tmp_path, certificates.client())
    problems = []
    async with (
        open_file_tls(files, log=intake.log, report=problems.append) as tls,
        open_collector(configure("tls"), **intake.arguments, tls=tls) as group,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(group.run)
        files.key.write_bytes(certificates.server(serial=1).key)
        await intake.wait_until(lambda: bool(intake.log.of("certificate_refused")))
        assert "does not belong to the certificate" in str(problems[-1])
        (await connect(group, context)).transport_stream.socket.close()
        files.certificate.unlink()
        await intake.wait_until(lambda: len(intake.log.of("certificate_refused")) == 2)
        assert "cannot be read: No such file" in str(problems[-1])
        certificates.server_files(tmp_path, certificates.server(serial=1))
        await intake.wait_until(lambda: bool(intake.log.of("certificate_replaced")))
        assert problems[-1] is None
        (await connect(group, context)).transport_stream.socket.close()
        nursery.cancel_scope.cancel()
