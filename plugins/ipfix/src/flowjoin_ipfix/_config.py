"""The keys under ``exporters: [{type: ipfix, …}]``."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from flowjoin.api import Bounds, ConfigError, Duration, Key, Octets

__all__ = ["Address", "IpfixConfig", "TlsConfig", "parse_address", "patience"]

_DEFAULT_PORT: Final = 4739  # IANA: ipfix
_LEAST_MESSAGE: Final = 512  # what Antrea allows; a Template of its flows hardly fits
_MARGIN_SECONDS: Final = 30.0  # over what the two time-outs end by themselves
_SERVICE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST_NAME: Final = 253  # RFC 1035 section 2.3.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a collector listens.

    Attributes:
        host: a name, an address without brackets, or ``namespace/name`` of a Kubernetes Service.
    """

    host: str
    port: int

    @property
    def is_service(self) -> bool:
        """Whether it is a Service, whose address is looked up."""
        return "/" in self.host

    @property
    def dns_name(self) -> str:
        """The host as a name: that of a Service in its cluster."""
        namespace, _, name = self.host.partition("/")
        return f"{name}.{namespace}.svc" if name else self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read ``host:port`` or ``host``; an IPv6 address stands in brackets, a Service is ``namespace/name``.

    Raises:
        ValueError: with the sentence for the operator.
    """
    if "@" in text:  # what stands before it may be a password, which no error repeats
        raise ValueError('an address has no user and no password; write text such as "collector:4739"')
    if "://" in text or text.rpartition(":")[2] in ("tcp", "udp", "tls"):
        raise ValueError(f'"{text[:100]}" names a protocol; write "host:port", and protocol: in a key of its own')
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(_DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise ValueError(f'"{text[:100]}" has no port from 1 to 65535; write text such as "collector:4739"')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f'"{host[:100]}" in brackets is not an IPv6 address') from None
    elif ":" in host or "[" in host or "]" in host:
        raise ValueError(f'"{text[:100]}" needs brackets around the IPv6 address, as in "[2001:db8::5]:4739"')
    elif "/" in host:
        if not _SERVICE.fullmatch(host):
            raise ValueError(f'"{host[:100]}" is no Service; write namespace/name')
    elif not _is_name(host):
        raise ValueError(f'"{host[:100]}" is neither an address nor a host name')
    return Address(host=host, port=int(port))


def _is_name(host: str) -> bool:
    """Whether a resolver can be asked for it."""
    if not host or len(host) > _LONGEST_NAME or not host.isprintable() or any(each in host for each in " /@"):
        return False
    if host.rpartition(".")[2].isdigit():  # no name ends in a number (RFC 3696 section 2): a lone port, most likely
        return _is_ipv4(host)
    try:
        host.encode("idna")  # no empty label, none of more than 63 octets
    except UnicodeError:
        return False
    return True


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """How the collector is verified, and what we show it. The files are read at each connect."""

    ca: Annotated[Path | None, "PEM file of the authorities to trust; without it the system's"] = None
    certificate: Annotated[Path | None, "PEM file of our certificate and its chain, for mutual TLS"] = None
    key: Annotated[Path | None, "its key, PEM, not encrypted; default: in the same file"] = None
    server_name: Annotated[str, "the name the collector's certificate must have; empty: the host of address"] = ""
    min_version: Annotated[Literal["VersionTLS12", "VersionTLS13"], "the oldest version to speak"] = "VersionTLS12"
    insecure_skip_verify: Annotated[bool, "take any certificate: anybody in between can read and change flows"] = False
    from_lookup: Annotated[
        bool, "in place of files: what a Flow Aggregator publishes for its agents, asked for at each connect"
    ] = False

    def __post_init__(self) -> None:
        if self.from_lookup and (self.ca, self.certificate, self.key) != (None, None, None):
            raise ConfigError(
                "stands in place of ca, certificate and key; leave one or the other out", path="fromLookup"
            )
        if self.key is not None and self.certificate is None:
            raise ConfigError("is given without tls.certificate; name the certificate's PEM file too", path="key")
        if self.server_name and not _is_name(self.server_name):
            problem = f'"{self.server_name[:100]}" is no name that a certificate can have'
            raise ConfigError(problem, path="serverName")


@dataclass(frozen=True, slots=True, kw_only=True)
class IpfixConfig:
    """Where flows are sent, and as what."""

    address: Annotated[str, "the collector: host or namespace/service, :port (4739); an IPv6 address in brackets"]
    protocol: Annotated[Literal["tcp", "udp", "tls"], "tls is TLS over TCP"] = "tcp"
    tls: Annotated[TlsConfig | None, "with protocol tls"] = None
    record_format: Annotated[Literal["IPFIX", "JSON"], "JSON: an object and a line break for each flow"] = "IPFIX"
    template: Annotated[
        Literal["aggregator", "proxy", "agent"], "whose elements, in whose order: those of which part of Antrea"
    ] = "aggregator"
    include_k8s_names: Annotated[bool, Key("includeK8sNames"), "names of Pods, Nodes, Services and policies"] = True
    include_k8s_uids: Annotated[bool, Key("includeK8sUIDs"), "UUIDs of the same"] = False
    include_extra_elements: Annotated[bool, "after the template's elements all others that the flows have"] = False
    observation_domain_id: Annotated[
        int | None,
        Key("observationDomainID"),
        Bounds(0, 4294967295),
        "without it: made from the cluster's UUID, with template agent from the Node's name",
    ] = None
    template_refresh_timeout: Annotated[Duration, Bounds(1), "udp: Templates are sent again so often"] = Duration(600.0)
    max_ipfix_msg_size: Annotated[
        int, Key("maxIPFIXMsgSize"), Bounds(0, 65535), "octets of a Message, at least 512; 0: what the path carries"
    ] = 0
    resend_interval: Annotated[
        Duration, Bounds(0, 3600), "tcp and tls: what was sent so long before a connection was lost goes again"
    ] = Duration(5.0)
    resend_buffer: Annotated[Octets, Bounds(0), "tcp and tls: the most that is kept in memory for that"] = Octets(
        64 * 1024 * 1024
    )
    connect_timeout: Annotated[Duration, Bounds(0.1, 3600), "for the connection and the TLS handshake"] = Duration(10.0)
    send_timeout: Annotated[
        Duration, Bounds(0.1, 3600), "a collector that takes nothing for so long is connected to anew"
    ] = Duration(60.0)

    def __post_init__(self) -> None:
        try:
            parse_address(self.address)
        except ValueError as exc:
            raise ConfigError(str(exc), path="address") from exc
        if self.tls is not None and self.protocol == "tcp":
            raise ConfigError("is given and the protocol is tcp; write protocol: tls", path="tls")
        if self.tls is not None and self.protocol == "udp":
            problem = "TLS over udp (DTLS) is not supported yet; use protocol: tls, which is TLS over TCP"
            raise ConfigError(problem, path="tls")
        if 0 < self.max_ipfix_msg_size < _LEAST_MESSAGE:
            problem = f"must be 0 or at least {_LEAST_MESSAGE}, not {self.max_ipfix_msg_size}"
            raise ConfigError(problem, path="maxIPFIXMsgSize")


def patience(config: IpfixConfig) -> float:
    """Longer than a connection may take, and then the collector to take something."""
    return config.connect_timeout + config.send_timeout + _MARGIN_SECONDS
