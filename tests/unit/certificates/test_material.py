from __future__ import annotations

import dataclasses
import datetime
import subprocess

import certificates
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from flowjoin._certificates.material import MaterialError, TlsMaterial, examine
from flowjoin._certificates.server_context import server_context

DAY = datetime.timedelta(days=1)


def material(**changes: object) -> TlsMaterial:
    pair = certificates.server()
    good = TlsMaterial(certificate=pair.certificate, key=pair.key, client_ca=certificates.authority().certificate)
    return dataclasses.replace(good, **changes)  # type: ignore[arg-type]


def encrypted(key: bytes) -> bytes:
    loaded = load_pem_private_key(key, password=None)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


def test_good_material_has_no_remarks_and_says_when_it_ends() -> None:
    examined = examine(material(), certificates.NOW)
    assert examined.remarks == ()
    assert examined.expires == pytest.approx((certificates.NOW + 365 * DAY).timestamp(), abs=3601)


@pytest.mark.parametrize(
    ("changes", "part", "problem"),
    [
        (
            {"certificate": b""},
            "certificate",
            "holds no PEM and no certificate; give one that begins BEGIN CERTIFICATE",
        ),
        (
            {"certificate": certificates.server().key},
            "certificate",
            "holds a rsa private key and no certificate; give one that begins BEGIN CERTIFICATE",
        ),
        (
            {"certificate": certificates.server().certificate.replace(b"M", b"N", 3)},
            "certificate",
            "holds a certificate that cannot be read; it is cut or changed",
        ),
        (
            {"key": certificates.server().certificate},
            "key",
            "holds a certificate and no private key; give one that begins BEGIN PRIVATE KEY",
        ),
        (
            {"key": encrypted(certificates.server().key)},
            "key",
            "is encrypted, and nobody is there to type its password; write it again with openssl pkey -in OLD -out NEW",
        ),
        (
            {"key": certificates.server(serial=1).key},
            "key",
            "does not belong to the certificate; in a chain the server's own one comes first",
        ),
        (
            {"key": certificates.server().key[:200]},
            "key",
            "holds a private key that cannot be read; it is cut or changed",
        ),
        ({"client_ca": b"x"}, "client_ca", "holds no PEM and no certificate; give one that begins BEGIN CERTIFICATE"),
    ],
)
def test_what_no_handshake_could_survive_is_an_error_of_its_part(
    changes: dict[str, bytes], part: str, problem: str
) -> None:
    with pytest.raises(MaterialError) as caught:
        examine(material(**changes), certificates.NOW)
    assert (caught.value.part, caught.value.problem) == (part, problem)


@pytest.mark.parametrize(
    ("days", "remark"),
    [
        (366, "expired on "),
        (360, "expires on "),
        (-1, "is not valid before "),
    ],
)
def test_what_some_peers_mind_is_a_remark(days: int, remark: str) -> None:
    examined = examine(material(), certificates.NOW + days * DAY)
    assert [(part, problem.startswith(remark)) for part, problem in examined.remarks] == [
        ("certificate", True),
        ("client_ca", True),
    ]


def test_a_clients_certificate_in_a_servers_place_is_a_remark() -> None:
    pair = certificates.client()
    examined = examine(material(certificate=pair.certificate, key=pair.key), certificates.NOW)
    assert [part for part, _ in examined.remarks] == ["certificate"]
    assert "is not for servers" in examined.remarks[0][1]


def test_the_latest_of_several_authorities_says_when_clients_end() -> None:
    pair = certificates.server()
    both = certificates.authority().certificate + certificates.authority("other").certificate
    assert examine(material(client_ca=both), certificates.NOW).remarks == ()
    assert server_context(TlsMaterial(certificate=pair.certificate, key=pair.key, client_ca=both)).verify_mode


def test_a_key_of_a_curve_that_openssl_does_not_use_is_one_sentence(require_program, tmp_path) -> None:  # type: ignore[no-untyped-def]
    openssl = require_program("openssl")
    key = tmp_path / "x25519.key"
    subprocess.run([openssl, "genpkey", "-algorithm", "X25519", "-out", key], check=True, timeout=60)
    with pytest.raises(MaterialError, match="does not belong"):
        examine(material(key=key.read_bytes()), certificates.NOW)


def test_a_key_never_shows_in_a_repr() -> None:
    pair = certificates.server()
    for text in (repr(material()), repr(pair)):
        assert "PRIVATE" not in text
