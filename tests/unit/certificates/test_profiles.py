from __future__ import annotations

import datetime
import ssl

import certificates
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID as Purpose

from flowjoin._certificates.profiles import Pair, make_server, subject_alternative_name

NOW = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)


def read(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


@pytest.mark.parametrize("kind", ["authority", "server", "client"])
def test_what_all_have_in_common(kind: str) -> None:
    pair = getattr(certificates, kind)()
    certificate = read(pair)
    key = certificate.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    assert key.key_size == 2048
    assert certificate.serial_number.bit_length() <= 128
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == datetime.timedelta(days=365)
    made = certificates.NOW.replace(microsecond=0)
    assert certificate.not_valid_before_utc == made - datetime.timedelta(hours=1)
    assert pair.key.startswith(b"-----BEGIN RSA PRIVATE KEY-----\n")
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert usage.key_cert_sign == (kind == "authority")
    assert not usage.key_encipherment
    purposes = {
        "authority": {Purpose.CLIENT_AUTH, Purpose.SERVER_AUTH},
        "server": {Purpose.SERVER_AUTH},
        "client": {Purpose.CLIENT_AUTH},
    }
    assert set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == purposes[kind]


def test_only_an_authority_has_basic_constraints_and_it_issues_itself() -> None:
    authority = read(certificates.authority())
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.issuer == authority.subject
    for pair in (certificates.server(), certificates.client()):
        certificate = read(pair)
        certificate.verify_directly_issued_by(authority)
        with pytest.raises(x509.ExtensionNotFound):
            certificate.extensions.get_extension_for_class(x509.BasicConstraints)


def test_a_server_has_its_names_and_a_client_has_none() -> None:
    pair = make_server(certificates.authority(), "s", NOW, names=("flow-aggregator.flow-aggregator.svc", "10.0.0.1"))
    names = read(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["flow-aggregator.flow-aggregator.svc"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    with pytest.raises(x509.ExtensionNotFound):
        read(certificates.client()).extensions.get_extension_for_class(x509.SubjectAlternativeName)


@pytest.mark.parametrize("text", ["", "a b", "-a", "a-", "a..b", "é.example", "x" * 64, "a." * 127 + "a", "a/b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither an address nor a DNS name"):
        subject_alternative_name(text)


@pytest.mark.parametrize("text", ["collector", "*.example.org", "node_1.example.", "2001:db8::1", "192.0.2.1"])
def test_what_is_a_name_is_taken(text: str) -> None:
    assert str(subject_alternative_name(text).value) == text


def test_serials_are_random() -> None:
    assert read(certificates.server(serial=1)).serial_number != read(certificates.server(serial=2)).serial_number


def test_the_strictest_verification_of_openssl_takes_them() -> None:
    context = ssl.create_default_context(cadata=certificates.authority().certificate.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    from flowjoin._certificates.material import TlsMaterial
    from flowjoin._certificates.server_context import server_context

    pair = certificates.server()
    theirs = server_context(TlsMaterial(certificate=pair.certificate, key=pair.key)).wrap_bio(
        outgoing, incoming, server_side=True
    )
    done = set()
    for _ in range(6):
        for each in (client, theirs):
            try:
                each.do_handshake()
                done.add(each)
            except ssl.SSLWantReadError:
                continue
    assert done == {client, theirs}
