"""The TLS Collecting Process on real loopback sockets: who is let in, who is not, what becomes of what they send."""

from __future__ import annotations

import socket
import ssl
import struct
import time

import certificates
import pytest
import trio
from tls_collector import alert_of, collecting, connect, statistics_of, tls_files

from flowjoin._certificates.files import TlsFiles, read_files, server_tls
from flowjoin._collector.process import open_collector

__all__ = ["tls_files"]

TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize("version", [TLS12, TLS13], ids=lambda version: version.name)
async def test_a_client_of_our_authority_is_let_in_with_its_name(
    intake, configure, make_message, tls_files, tmp_path, version
):
    context = certificates.client_context(tmp_path, certificates.client())
    context.minimum_version = context.maximum_version = version
    async with collecting(configure("tls"), intake, tls_files) as group:
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
    intake, configure, tls_files, tmp_path, who, version
):
    pair, reason, alerts = REFUSED[who]
    context = certificates.client_context(tmp_path, pair())
    context.minimum_version = context.maximum_version = version
    async with collecting(configure("tls"), intake, tls_files) as group:
        assert await alert_of(group, context) in alerts
        await intake.wait_until(lambda: bool(intake.log.of("handshake_failed")))
        ((level, facts),) = intake.log.of("handshake_failed")
        assert (level, facts["reason"], facts["original_exporter"]) == ("warning", reason, "127.0.0.1")
        assert statistics_of(group).refused == {reason: 1}
        assert (statistics_of(group).sessions, statistics_of(group).sessions_opened) == (0, 0)
        assert intake.messages == intake.closed == []


async def test_a_client_that_minds_our_certificate_is_counted(intake, configure, tls_files, tmp_path):
    context = certificates.client_context(tmp_path, certificates.client(), ca="somebody else")
    async with collecting(configure("tls"), intake, tls_files) as group:
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
async def test_who_speaks_no_tls_is_closed_and_counted(intake, configure, tls_files, octets, reason):
    async with collecting(configure("tls"), intake, tls_files) as group:
        (address,) = group.addresses
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            await stream.send_all(octets)
            await stream.send_eof()
            await intake.wait_until(lambda: bool(intake.log.of("handshake_failed")))
            assert statistics_of(group).refused == {reason: 1}


async def test_without_authorities_no_certificate_is_asked_for(intake, configure, make_message, tmp_path):
    found = certificates.server_files(tmp_path)
    files = TlsFiles(certificate=found.certificate, key=found.key, client_ca=None, path="collectors[0].tls")
    async with collecting(configure("tls"), intake, files) as group:
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
    async with collecting(configure("tls"), intake, files) as group:
        with pytest.raises(trio.BrokenResourceError):
            await connect(group, context)
        await intake.wait_until(lambda: bool(intake.log.of("handshake_failed")))
        assert statistics_of(group).refused == {"tls_version_unsupported": 1}


async def test_what_was_sent_last_arrives_although_the_client_reads_nothing(
    intake, configure, make_message, tls_files, tmp_path
):
    """A server that sends session tickets makes the end of such a connection a reset."""
    context = certificates.client_context(tmp_path, certificates.client())
    async with collecting(configure("tls"), intake, tls_files) as group:
        for number in range(1, 21):
            stream = await connect(group, context)
            await stream.send_all(make_message(payload=10_000) * 100)
            await stream.aclose()
            await intake.wait_until(lambda expected=number: len(intake.closed) == expected)
            assert len(intake.messages) == 100 * number
        assert statistics_of(group).connections_reset == 0


async def test_a_connection_that_ends_without_close_notify_gives_what_it_sent_and_is_no_proper_end(
    intake, configure, make_message, tls_files, tmp_path
):
    context = certificates.client_context(tmp_path, certificates.client())
    async with collecting(configure("tls"), intake, tls_files) as group:
        stream = await connect(group, context)
        await stream.send_all(make_message(1))
        await stream.transport_stream.aclose()
        await intake.wait_until(lambda: len(intake.closed) == 1)
        assert intake.messages == [make_message(1)]
        assert statistics_of(group).connections_reset == 1


async def test_stop_intake_reads_what_had_arrived_and_says_so(intake, configure, make_message, tls_files, tmp_path):
    context = certificates.client_context(tmp_path, certificates.client())
    tls = server_tls(tls_files, read_files(tls_files), time.time())
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
    intake, configure, make_message, tls_files, tmp_path, require_program
):
    openssl = require_program("openssl")
    certificate, key = certificates.write(tmp_path, "s_client", certificates.client())
    ca, _ = certificates.write(tmp_path, "ca", certificates.authority())
    async with collecting(configure("tls"), intake, tls_files) as group:
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
