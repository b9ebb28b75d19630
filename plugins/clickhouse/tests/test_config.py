"""A configuration that cannot work is refused in one sentence, before anything connects, and no secret is repeated."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path

import pytest

from flowjoin.__main__ import main

DATA = Path(__file__).parent / "data"
URL = "databaseURL: http://ch.example:8123"


def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str) -> tuple[int, list[str]]:
    """Exit status of ``flowjoin check`` with these keys, and what it complained of."""
    entry = textwrap.indent(keys, "    ")
    file = tmp_path / "flow.conf"
    file.write_text(f"exporters:\n  - type: clickhouse\n{entry}\n", encoding="utf-8")
    code = main(["check", "-c", str(file)])
    return code, [line for line in capsys.readouterr().err.splitlines() if not line.startswith("info:")]


@pytest.mark.parametrize(
    ("keys", "path", "words"),
    [
        ("{}", "exporters[0].databaseURL", ("is missing; give text",)),
        ("databaseURL: 5", "exporters[0].databaseURL", ("'5' has no scheme", "write tcp://HOST:9000")),
        (
            "databaseURL: ch.example:9000",
            "exporters[0].databaseURL",
            ("'ch.example:9000' has no scheme", "write tcp://HOST:9000"),
        ),
        (
            "databaseURL: udp://h:1",
            "exporters[0].databaseURL",
            ("udp transport", "write tcp, tls, http, https or chdb"),
        ),
        (
            "databaseURL: http://h:0",
            "exporters[0].databaseURL",
            ("'http://h:0' has no host, or port 0", "write http://HOST:8123"),
        ),
        ("databaseURL: tcp://h:99999", "exporters[0].databaseURL", ("'tcp://h:99999'", "1 to 65535")),
        ('databaseURL: "http://a b:8123"', "exporters[0].databaseURL", ("http://a b:8123", "write http://HOST:8123")),
        (
            "databaseURL: http://h:1/db",
            "exporters[0].databaseURL",
            ("'http://h:1/db'", "write username, password and database"),
        ),
        (
            f"{URL}\nhttpPort: 18123",
            "exporters[0].databaseURL",
            ("httpPort is for tcp", "write http://ch.example:18123"),
        ),
        ("databaseURL: tcp://h\nhttpPort: 0", "exporters[0].httpPort", ("0", "1")),
        (f"{URL}\ndatabase: ''", "exporters[0].database", ("database: ''", "write one such as flows")),
        (f'{URL}\ntable: "a\\nb"', "exporters[0].table", ("table: 'a\\nb'", "write one such as flows")),
        (f"{URL}\ntable: {'ä' * 65}", "exporters[0].table", ("of 1 to 128 octets",)),
        (f"{URL}\nusername: plain", "exporters[0].username", ("env",)),
        (f"{URL}\npassword: hunter2", "exporters[0].password", ("env",)),
        (f"{URL}\ncompress: lz4", "exporters[0].compress", ("lz4", "true")),
        (f"{URL}\ncommitInterval: -1s", "exporters[0].commitInterval", ("-1s",)),
        (f"{URL}\nmaxRows: 0", "exporters[0].maxRows", ("0", "1000000")),
        (f"{URL}\nconnectTimeout: 10ms", "exporters[0].connectTimeout", ("10ms", "1s")),
        (f"{URL}\ntimeout: 1 day", "exporters[0].timeout", ("1 day",)),
        (f"{URL}\ncreateSchema: perhaps", "exporters[0].createSchema", ("perhaps", "true")),
        (f"{URL}\nschema: {{ttl: 999999h}}", "exporters[0].schema.ttl", ("999999h", "438000h")),
        (f"{URL}\nschema: {{partitionBy: hour}}", "exporters[0].schema.partitionBy", ("hour", "day")),
        (f"{URL}\nschema: {{views: 2}}", "exporters[0].schema.views", ("2", "true")),
        (f"{URL}\nschema: {{deduplicationWindow: -1}}", "exporters[0].schema.deduplicationWindow", ("-1", "0")),
        (f"{URL}\nelements: [octetCount]", "exporters[0].elements[0]", ("'octetCount'", "such as octetDeltaCount")),
        (f"{URL}\nelements: octetDeltaCount", "exporters[0].elements", ("list",)),
        (
            f"{URL}\ntls: {{serverName: 'https://x'}}",
            "exporters[0].tls.serverName",
            ("'https://x'", "such as ch.example"),
        ),
        (f"{URL}\ntls: {{insecureSkipVerify: 1}}", "exporters[0].tls.insecureSkipVerify", ("1", "true")),
        (f"{URL}\ntls: {{key: k.pem}}", "exporters[0].tls.key", ("tls.certificate",)),
        (
            f"{URL}\ntls: {{certificate: c.pem}}",
            "exporters[0].tls.certificate",
            ("http://ch.example:8123", "write https://HOST:8443"),
        ),
        (f"{URL}\ntls: {{ca: [a]}}", "exporters[0].tls.ca", ("[",)),
        (f"{URL}\nmaxrows: 5", "exporters[0].maxrows", ("maxRows",)),
    ],
)
def test_each_wrong_key_is_refused_in_one_sentence_with_its_place_and_what_would_be_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str, path: str, words: tuple[str, ...]
) -> None:
    code, lines = checked(tmp_path, capsys, "" if keys == "{}" else keys)
    assert code == 2, lines
    (line,) = lines
    assert f"{path}: " in line
    for each in words:
        assert each in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "url",
    [
        "tcp://user:hunter2@ch.example:9000",
        "tcp://ch.example:9000?username=u&password=hunter2",
        "tcp://ch.example:9000?username=u&password=a@hunter2",
        "http://u:hun?hunter2@ch.example",
        "user:hunter2@ch.example:9000",
        "http://user:hunter2@ch.example:port",
        "http://user:hunter2@",
        "chdb://user:hunter2@memory/x",
    ],
)
def test_a_password_in_the_url_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str) -> None:
    code, lines = checked(tmp_path, capsys, f'databaseURL: "{url}"')
    assert code == 2
    (line,) = lines
    assert "hunter2" not in line
    assert "ClickHouse database URL" in line


def test_each_file_of_tls_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key = DATA / "server.pem", DATA / "server.key"
    encrypted = tmp_path / "encrypted.key"
    serialization = pytest.importorskip(
        "cryptography.hazmat.primitives.serialization", reason="cryptography is not installed"
    )
    encrypted.write_bytes(
        serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    (tmp_path / "empty.pem").touch()
    for files, path, words in (
        (f"ca: {tmp_path}/none.pem", "ca", "none.pem cannot be used: No such file or directory; give a PEM"),
        (f"ca: {tmp_path}/empty.pem", "ca", "empty.pem cannot be used: it holds no certificate; give a PEM"),
        (f"certificate: {tmp_path}/none.pem", "certificate", "none.pem cannot be used: No such file or directory"),
        (f"certificate: {certificate}\nkey: {tmp_path}/none.pem", "key", "none.pem cannot be used: No such file"),
        (f"certificate: {certificate}", "certificate", "there is no certificate with its key; give a PEM"),
        (
            f"certificate: {certificate}\nkey: {encrypted}",
            "key",
            "encrypted.key cannot be used: its key is encrypted and must",
        ),
    ):
        keys = f"databaseURL: https://ch.example:8443\ntls:\n{textwrap.indent(files, '  ')}"
        code, lines = checked(tmp_path, capsys, keys)
        assert code == 2
        (line,) = lines
        assert f"exporters[0].tls.{path}: " in line
        assert words in line
    keys = f"databaseURL: https://h\ntls: {{ca: {certificate}, certificate: {certificate}, key: {key}}}"
    assert checked(tmp_path, capsys, keys) == (0, [])


def test_the_engine_and_its_directory_are_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: True)
    (tmp_path / "file").touch()
    code, (line,) = checked(tmp_path, capsys, f"databaseURL: chdb://{tmp_path}/file")
    assert (code, line.partition("exporters[0].databaseURL: ")[2]) == (
        2,
        f"chdb://{tmp_path}/file names a file; write chdb:///PATH of a directory",
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    code, (line,) = checked(tmp_path, capsys, "databaseURL: chdb://memory")
    assert code == 2
    assert "exporters[0].databaseURL: chdb:// needs the embedded engine: pip install" in line
