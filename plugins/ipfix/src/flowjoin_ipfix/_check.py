"""What can be known to be wrong before anything connects: files, and Messages that no Template fits into."""

from __future__ import annotations

from typing import Final

from flowjoin.api import ConfigError, ElementRegistry
from flowjoin_ipfix._config import IpfixConfig, TlsConfig
from flowjoin_ipfix._session import IpfixSession
from flowjoin_ipfix._templates import TemplateBook
from flowjoin_ipfix._tls import client_context

__all__ = ["check", "has_switches", "make_book", "refuse_small_messages"]

_RELEASES: Final = ("antrea-2.7", "antrea-2.3")


def check(config: IpfixConfig, registry: ElementRegistry) -> None:
    """See to all of it; what a look-up gives may come later.

    Raises:
        ConfigError: a file of ``tls`` is not what it should be, or a Message is too small in any ``compatibility``.
    """
    settings = config.tls or TlsConfig()
    if config.protocol == "tls" and not settings.from_lookup:
        client_context(settings)
    books = [make_book(config, release, registry) for release in _RELEASES]
    refuse_small_messages(config, min(books, key=_largest_definition))


def has_switches(config: IpfixConfig, compatibility: str) -> bool:
    """Whether names and UUIDs of Kubernetes can be left out: Antrea 2.3 and agents send names and no UUIDs."""
    return compatibility != "antrea-2.3" and config.template != "agent"


def make_book(config: IpfixConfig, compatibility: str, registry: ElementRegistry) -> TemplateBook:
    """The Templates that the configuration asks for."""
    is_switched = has_switches(config, compatibility)
    return TemplateBook(
        registry,
        config.template,
        compatibility=compatibility,
        names=config.include_k8s_names or not is_switched,
        uids=config.include_k8s_uids and is_switched,
        extra=config.include_extra_elements,
    )


def refuse_small_messages(config: IpfixConfig, book: TemplateBook) -> None:
    """See to it that each Template fits into a Message.

    Raises:
        ConfigError: one does not.
    """
    largest = _largest_definition(book)
    if config.record_format == "IPFIX" and 0 < config.max_ipfix_msg_size < largest:
        raise ConfigError(
            f"a Template of these flows has {largest} octets and fits into no Message of {config.max_ipfix_msg_size}; "
            f"write at least {largest}, or 0 for what the path carries",
            path="maxIPFIXMsgSize",
        )


def _largest_definition(book: TemplateBook) -> int:
    """Octets of the largest Message with a Template; 0 where flows have to come first."""
    return max(map(IpfixSession.definition_octets, book.templates), default=0)
