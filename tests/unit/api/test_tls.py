"""Files of a TLS client: what is wrong with which of them is said, and nobody is asked for a password."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import certificates
import pytest
from cryptography.hazmat.primitives import serialization

from flowjoin.api import ConfigError
from flowjoin.api.tls import client_context


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    certificate, key = certificates.write(tmp_path, "client", certificates.client())
    stranger, stranger_key = certificates.write(tmp_path, "stranger", certificates.client("stranger-ca"))
    ca, _ = certificates.write(tmp_path, "ca", certificates.authority())
    encrypted, both, both_encrypted, empty = (
        tmp_path / name for name in ("encrypted.key", "both.pem", "both-encrypted.pem", "empty.pem")
    )
    encrypted.write_bytes(
        serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"geheim"),
        )
    )
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    both_encrypted.write_bytes(certificate.read_bytes() + encrypted.read_bytes())
    empty.touch()
    return {
        "ca": ca,
        "client": certificate,
        "client key": key,
        "stranger": stranger,
        "stranger's key": stranger_key,
        "encrypted": encrypted,
        "both": both,
        "both encrypted": both_encrypted,
        "empty": empty,
        "missing": tmp_path / "missing.pem",
        "folder": tmp_path,
        "no name": Path("a\0b"),
    }


def test_the_server_is_verified_by_the_systems_authorities_or_by_those_given(files: dict[str, Path]) -> None:
    for context in (client_context(), client_context(ca=files["ca"])):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
    assert [each["subject"] for each in context.get_ca_certs()] == [((("commonName", "flowjoin-test-ca"),),)]


def test_a_key_may_be_in_a_file_of_its_own_or_in_the_certificates(files: dict[str, Path]) -> None:
    client_context(certificate=files["client"], key=files["client key"])
    client_context(certificate=files["both"])


@pytest.mark.parametrize(
    ("given", "path", "problem"),
    [
        ({"ca": "missing"}, "x.tls.ca", "missing.pem cannot be used: No such file or directory; give a PEM file"),
        ({"ca": "folder"}, "x.tls.ca", "cannot be used: Is a directory"),
        ({"ca": "no name"}, "x.tls.ca", "cannot be used: embedded null byte"),
        ({"ca": "empty"}, "x.tls.ca", "empty.pem cannot be used: it holds no certificate"),
        ({"ca": "client key"}, "x.tls.ca", "client.key cannot be used: it holds no certificate"),
        (
            {"certificate": "missing", "key": "client key"},
            "x.tls.certificate",
            "missing.pem cannot be used: No such file",
        ),
        ({"certificate": "client", "key": "missing"}, "x.tls.key", "missing.pem cannot be used: No such file"),
        ({"certificate": "client", "key": "stranger's key"}, "x.tls.key", "its key is not that of .*client.crt"),
        (
            {"certificate": "client", "key": "encrypted"},
            "x.tls.key",
            "encrypted.key cannot be used: its key is encrypted",
        ),
        ({"certificate": "both encrypted"}, "x.tls.certificate", "both-encrypted.pem .*: its key is encrypted"),
        (
            {"certificate": "client"},
            "x.tls.certificate",
            "client.crt cannot be used: there is no certificate with its key",
        ),
        (
            {"certificate": "empty", "key": "client key"},
            "x.tls.certificate",
            "empty.pem with .*client.key cannot be used",
        ),
        ({"certificate": "client", "key": "empty"}, "x.tls.certificate", "client.crt with .*empty.pem cannot be used"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_key_and_the_cause(
    files: dict[str, Path], given: dict[str, str], path: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        client_context(**{name: files[file] for name, file in given.items()}, path="x.tls")
    assert refused.value.path == path
    assert re.search("geheim|PRIVATE KEY", str(refused.value)) is None
