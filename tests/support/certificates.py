"""Certificates for tests: made once in a process, because a key takes a tenth of a second."""

from __future__ import annotations

import datetime
import functools
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import trio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from flowjoin._certificates.files import ServerTls
from flowjoin._certificates.profiles import Pair, make_authority, make_client, make_server

NOW = datetime.datetime.now(datetime.UTC)
_LONG_AGO = NOW - datetime.timedelta(days=400)


def authority(name: str = "flowjoin-test-ca") -> Pair:
    return _authority(name)


@functools.cache
def _authority(name: str) -> Pair:
    return make_authority(name, NOW)


@functools.cache
def server(ca: str = "flowjoin-test-ca", *, serial: int = 0, is_expired: bool = False) -> Pair:
    issued = _LONG_AGO if is_expired else NOW
    return make_server(authority(ca), f"server-{serial}", issued, names=("localhost", "127.0.0.1", "::1"))


@functools.cache
def client(ca: str = "flowjoin-test-ca", *, is_expired: bool = False, is_early: bool = False) -> Pair:
    issued = NOW + datetime.timedelta(days=30) if is_early else _LONG_AGO if is_expired else NOW
    return make_client(authority(ca), "exporter-1", issued)


def write(directory: Path, name: str, pair: Pair) -> tuple[Path, Path]:
    """As ``name.crt`` and ``name.key``, each replaced at once."""
    paths = []
    for suffix, octets in (("crt", pair.certificate), ("key", pair.key)):
        path = directory / f"{name}.{suffix}"
        new = path.with_suffix(".new")
        new.write_bytes(octets)
        new.chmod(0o600)
        new.replace(path)
        paths.append(path)
    return paths[0], paths[1]


@dataclass(frozen=True)
class ServerFiles:
    """The files of a server's configuration, in a directory."""

    certificate: Path
    key: Path
    client_ca: Path


def server_files(directory: Path, pair: Pair | None = None, *, client_ca: str = "flowjoin-test-ca") -> ServerFiles:
    certificate, key = write(directory, "server", server() if pair is None else pair)
    ca, _ = write(directory, "client-ca", authority(client_ca))
    return ServerFiles(certificate, key, ca)


def client_context(directory: Path, pair: Pair | None, *, ca: str = "flowjoin-test-ca") -> ssl.SSLContext:
    """What a client connects with that trusts the authority, and shows the pair."""
    context = ssl.create_default_context(cadata=authority(ca).certificate.decode())
    if pair is not None:
        context.load_cert_chain(*write(directory, "client", pair))
    return context


def authority_with(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, issuer: Pair | None) -> Pair:
    """An authority that was not made by us, with a key of another kind."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "theirs")])
    above = None if issuer is None else x509.load_pem_x509_certificate(issuer.certificate)
    signing = key if issuer is None else load_pem_private_key(issuer.key, password=None)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if above is None else above.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - datetime.timedelta(hours=1))
        .not_valid_after(NOW + datetime.timedelta(days=300))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(signing, None if isinstance(signing, ed25519.Ed25519PrivateKey) else SHA256())  # type: ignore[arg-type]
    )
    octets = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pair(certificate=certificate.public_bytes(Encoding.PEM), key=octets)


def client_context_of(ca: str, shown: Pair) -> ssl.SSLContext:
    """What a client connects with that trusts the authority and shows the pair."""
    context = ssl.create_default_context(cadata=ca)
    descriptor = os.memfd_create("client")
    try:
        os.write(descriptor, shown.certificate + shown.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


def shakes_hands(server_side: ssl.SSLContext, ca: str, shown: Pair, name: str) -> bool:
    """Whether such a client gets in, and takes the server for what it is."""
    return is_handshake(client_context_of(ca, shown), server_side, name)


def is_handshake(client_side: ssl.SSLContext, server_side: ssl.SSLContext, name: str) -> bool:
    """Whether both are content with each other."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client_side.wrap_bio(there, back, server_hostname=name),
        server_side.wrap_bio(back, there, server_side=True),
    ]
    finished = set()
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
                finished.add(side)
            except ssl.SSLWantReadError:
                continue
    return len(finished) == 2


@dataclass(frozen=True)
class FixedTls:
    """A ``TlsSource`` that never changes."""

    current: ServerTls

    async def wait_ready(self) -> None:
        await trio.lowlevel.checkpoint()
