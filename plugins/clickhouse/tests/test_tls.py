"""TLS towards the server: who is trusted, who we are, and that no password is shown whatever fails."""

from __future__ import annotations

import dataclasses
import logging
import re
import traceback
from pathlib import Path

import certificates
import pytest
from clickhouse_lane import context, deliver, expected, sums
from clickhouse_process import ClickHouseProcess, require_engine

from flowjoin.api import RetryableExportError
from flowjoin.testing.batches import numbered_flows
from flowjoin_clickhouse import ClickHouseConfig, TlsConfig
from flowjoin_clickhouse._exporter import open_clickhouse

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("tls", ["verified", "unverified"])
async def test_tls_with_an_own_authority_or_without_verification(
    tmp_path: Path, config: ClickHouseConfig, password: str, tls: str
) -> None:
    require_engine()
    certificate = DATA / "server.pem"
    server = ClickHouseProcess(tmp_path / "data", password=password, certificate=certificate, key=DATA / "server.key")
    with server.running():
        settings = TlsConfig(ca=certificate) if tls == "verified" else TlsConfig(insecure_skip_verify=True)
        config = dataclasses.replace(
            config, database_url=f"tls://127.0.0.1:{server.port}", http_port=server.port, tls=settings
        )
        batch = numbered_flows(5).with_id("a")
        ctx = context()
        async with open_clickhouse(config, ctx) as exporter:
            await deliver(exporter, batch)
        assert sums(server, config.database) == expected([batch])
        said = [line.event for line in ctx.log.lines if line.level == "warning"]
        assert said == ["native_protocol_replaced", *["certificate_not_verified"] * (tls == "unverified")]
        async with open_clickhouse(dataclasses.replace(config, tls=TlsConfig()), context()) as exporter:
            with pytest.raises(RetryableExportError, match=r"(?i)certificate"):
                await exporter.export(batch)


@pytest.mark.parametrize("known_by", ["certificate", "password"])
async def test_a_client_certificate_is_shown_and_without_a_password_it_is_who_we_are(
    tmp_path: Path, config: ClickHouseConfig, password: str, known_by: str
) -> None:
    require_engine()
    certificate, key = DATA / "server.pem", DATA / "server.key"
    server = ClickHouseProcess(
        tmp_path / "data", password=password, certificate=certificate, key=key, is_client_verified=True
    )
    with server.running():
        config = dataclasses.replace(
            config,
            database_url=server.url,
            password=config.password if known_by == "password" else None,
            tls=TlsConfig(ca=certificate, certificate=certificate, key=key),
        )
        batch = numbered_flows(5).with_id("a")
        async with open_clickhouse(config, context()) as exporter:
            await deliver(exporter, batch)
        assert sums(server, config.database) == expected([batch])
        unknown = dataclasses.replace(config, tls=TlsConfig(ca=certificate))
        async with open_clickhouse(unknown, context()) as exporter:
            with pytest.raises(RetryableExportError, match=re.escape(server.url)):
                await exporter.export(batch)
        assert sums(server, config.database) == expected([batch])


async def test_a_custom_authority_is_read_at_each_connection(tmp_path: Path, config: ClickHouseConfig) -> None:
    file = tmp_path / "ca.crt"
    config = dataclasses.replace(config, database_url="https://127.0.0.1:1", tls=TlsConfig(ca=file))
    async with open_clickhouse(config, context()) as exporter:
        with pytest.raises(RetryableExportError, match="error when reading custom CA certificate"):
            await exporter.export(numbered_flows(1))
        file.write_text("no certificate")
        with pytest.raises(RetryableExportError, match="failed to add the custom CA certificate"):
            await exporter.export(numbered_flows(1))
        file.write_bytes((DATA / "server.pem").read_bytes())
        with pytest.raises(RetryableExportError, match=r"(?i)refused"):
            await exporter.export(numbered_flows(1))


@pytest.mark.parametrize(
    ("stranger", "problem"),
    [
        ("expired", "certificate has expired"),
        ("of another name", "doesn't match"),
        ("of another authority", "unable to get local issuer|self-signed"),
        ("no client's", "(?i)alert|reset|EOF|aborted"),
    ],
)
async def test_who_is_not_trusted_gets_no_row_and_no_password(
    tmp_path: Path,
    config: ClickHouseConfig,
    password: str,
    caplog: pytest.LogCaptureFixture,
    stranger: str,
    problem: str,
) -> None:
    require_engine()
    caplog.set_level(logging.DEBUG)
    pair = certificates.server(
        "another-ca" if stranger == "of another authority" else "flowjoin-test-ca", is_expired=stranger == "expired"
    )
    certificate, key = certificates.write(tmp_path, "server", pair)
    authority, _ = certificates.write(tmp_path, "authority", certificates.authority())
    tls = TlsConfig(ca=authority, server_name="elsewhere.example" if stranger == "of another name" else "")
    server = ClickHouseProcess(
        tmp_path / "data",
        password=password,
        certificate=certificate,
        key=key,
        is_client_verified=stranger == "no client's",
    )
    with server.running():
        config = dataclasses.replace(config, database_url=server.url, tls=tls)
        ctx = context()
        async with open_clickhouse(config, ctx) as exporter:
            with pytest.raises(RetryableExportError, match=problem) as caught:
                await exporter.export(numbered_flows(5).with_id("a"))
    said = [repr(line) for line in ctx.log.lines] + [record.getMessage() for record in caplog.records]
    said += traceback.format_exception(caught.value)
    assert not [text for text in said if password in text]
    assert ctx.counters["rows_delivered"].value == 0
