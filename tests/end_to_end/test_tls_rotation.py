"""Certificates that change while the TLS Collecting Process runs: nothing is lost, nothing bad is taken."""

from __future__ import annotations

import certificates
import pytest
import trio
from tls_collector import connect, statistics_of, tls_files

from flowjoin._certificates.process import open_file_tls
from flowjoin._collector.process import open_collector

__all__ = ["tls_files"]


@pytest.mark.slow
async def test_rotated_under_load_no_connection_is_dropped_and_no_record_lost(
    intake, configure, make_message, tls_files, tmp_path, monkeypatch
):
    """Certificate and both authorities change while old connections send on and new ones come."""
    monkeypatch.setattr("flowjoin._certificates.process.LOOK_SECONDS", 0.02)
    first = certificates.client_context(tmp_path, certificates.client())
    second = certificates.client_context(tmp_path, certificates.client("new ca"), ca="new ca")
    problems = []
    sent = 0
    is_over = False
    async with (
        open_file_tls(tls_files, log=intake.log, report=problems.append) as tls,
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
    intake, configure, tls_files, tmp_path, monkeypatch
):
    monkeypatch.setattr("flowjoin._certificates.process.LOOK_SECONDS", 0.01)
    context = certificates.client_context(tmp_path, certificates.client())
    problems = []
    async with (
        open_file_tls(tls_files, log=intake.log, report=problems.append) as tls,
        open_collector(configure("tls"), **intake.arguments, tls=tls) as group,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(group.run)
        tls_files.key.write_bytes(certificates.server(serial=1).key)
        await intake.wait_until(lambda: bool(intake.log.of("certificate_refused")))
        assert "does not belong to the certificate" in str(problems[-1])
        (await connect(group, context)).transport_stream.socket.close()
        tls_files.certificate.unlink()
        await intake.wait_until(lambda: len(intake.log.of("certificate_refused")) == 2)
        assert "cannot be read: No such file" in str(problems[-1])
        certificates.server_files(tmp_path, certificates.server(serial=1))
        await intake.wait_until(lambda: bool(intake.log.of("certificate_replaced")))
        assert problems[-1] is None
        (await connect(group, context)).transport_stream.socket.close()
        nursery.cancel_scope.cancel()
