"""The material of a TLS server from the files that a configuration names."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from flowjoin._certificates.material import Examined, MaterialError, Part, TlsMaterial, examine
from flowjoin._certificates.server_context import server_context
from flowjoin._model.errors import ConfigError

__all__ = ["ServerTls", "TlsFiles", "TlsSource", "read_files", "server_tls"]

_MAX_OCTETS: Final = 1024 * 1024
_KEYS: Final[dict[Part, str]] = {"certificate": "certificate", "key": "key", "client_ca": "clientCA"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the material is.

    Attributes:
        may_be_nobody: clients without a certificate are let in too.
        path: of the configuration's key, ``collectors[0].tls``.
    """

    certificate: Path
    key: Path
    client_ca: Path | None
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: str = ""
    may_be_nobody: bool = False
    path: str = ""

    def error(self, part: Part, problem: str) -> ConfigError:
        """What is wrong with one of the files, as the operator reads it."""
        return ConfigError(f"{getattr(self, part)} {problem}", path=f"{self.path}.{_KEYS[part]}")

    def remark(self, part: Part, problem: str) -> tuple[str, str]:
        """The key's path, and a sentence."""
        return f"{self.path}.{_KEYS[part]}", f"{getattr(self, part)} {problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """What the next handshake is made with.

    Attributes:
        expires: when its certificate, or the last authority of clients, expires; seconds since the Unix epoch.
        remarks: what the operator should know, each with the key's path.
    """

    context: ssl.SSLContext
    expires: float
    remarks: tuple[tuple[str, str], ...] = ()


class TlsSource(Protocol):
    """Gives the TLS of a server, which may change from one handshake to the next."""

    @property
    def current(self) -> ServerTls | None:
        """What the next handshake is made with; None before it is ready."""
        ...

    async def wait_ready(self) -> None:
        """Wait until there is one, for ever if there never is."""
        ...


def read_files(files: TlsFiles) -> TlsMaterial:
    """Read them all; blocks.

    Raises:
        ConfigError: one cannot be read.
    """
    return TlsMaterial(
        certificate=_read(files, "certificate"),
        key=_read(files, "key"),
        client_ca=None if files.client_ca is None else _read(files, "client_ca"),
    )


def server_tls(files: TlsFiles, material: TlsMaterial, now: float) -> ServerTls:
    """TLS of what was read; takes a millisecond.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        examined: Examined = examine(material, datetime.datetime.fromtimestamp(now, datetime.UTC))
        context = server_context(
            material,
            minimum_version=files.minimum_version,
            ciphers=files.ciphers,
            may_be_nobody=files.may_be_nobody,
        )
    except MaterialError as exc:
        raise files.error(exc.part, exc.problem) from exc
    except ValueError as exc:
        raise ConfigError(str(exc), path=files.path) from exc
    remarks = tuple(files.remark(part, problem) for part, problem in examined.remarks)
    return ServerTls(context=context, expires=examined.expires, remarks=remarks)


def _read(files: TlsFiles, part: Part) -> bytes:
    path: Path = getattr(files, part)
    try:
        if path.exists() and not path.is_file():
            raise files.error(part, "is no file")
        with path.open("rb") as file:
            octets = file.read(_MAX_OCTETS + 1)
    except OSError as exc:
        raise files.error(part, f"cannot be read: {exc.strerror or exc}; give the path of a PEM file") from exc
    if len(octets) > _MAX_OCTETS:
        raise files.error(part, f"is larger than {_MAX_OCTETS} octets, and no PEM file of one server is")
    return octets
