"""The elements of each kind of record, in the order that Antrea's collectors know.

They are the columns of the core's batches, whose order is that of Antrea's aggregator of release 2.7; what other
releases and agents have elsewhere is listed here. One ordered list drives both the Template and the values, so that
they cannot part.
"""

from __future__ import annotations

import functools
from typing import Final, Literal, TypeAlias

from flowjoin.api import AddressFamily
from flowjoin.api.schemas import AGGREGATED_NAMES, PROXY_NAMES, of_family

__all__ = ["SWITCHED_BY_NAMES", "SWITCHED_BY_UIDS", "TemplateKind", "element_names", "known_names"]

TemplateKind: TypeAlias = Literal["aggregator", "proxy", "agent"]

_LAYER_7: Final = ("appProtocolName", "httpVals")  # gone in Antrea 2.6
_EGRESS_NODE: Final = ("egressNodeName", "egressNodeUUID")
_LAST_COMMON: Final = AGGREGATED_NAMES.index("egressIP") + 1
_LAST_OF_AGENTS: Final = AGGREGATED_NAMES.index("destinationServiceIPv4") + 1
_COMMON: Final = AGGREGATED_NAMES[:_LAST_COMMON]
_JOINED: Final = AGGREGATED_NAMES[_LAST_OF_AGENTS:]
_PROXIED: Final = PROXY_NAMES[_LAST_OF_AGENTS:]
_NEW: Final = tuple(name for name in AGGREGATED_NAMES[:_LAST_OF_AGENTS] if name not in _LAYER_7)
# Orders of their own: the agent's last elements, and those of release 2.3.
_NEW_AGENT: Final = (
    *_COMMON,
    *_EGRESS_NODE,
    "proxySnatPort",
    "destinationClusterIPv4",
    "proxySnatIPv4",
    "destinationServiceIPv4",
)
_OLD: Final = (*_COMMON, *_LAYER_7, *_EGRESS_NODE, "destinationClusterIPv4")
_LISTS: Final[dict[tuple[str, TemplateKind], tuple[str, ...]]] = {
    ("antrea-2.3", "agent"): _OLD,
    ("antrea-2.3", "aggregator"): (*_OLD, *_JOINED),
    ("antrea-2.3", "proxy"): (*_OLD, *_PROXIED),
    ("antrea-2.7", "agent"): _NEW_AGENT,
    ("antrea-2.7", "aggregator"): (*_NEW, *_JOINED),
    ("antrea-2.7", "proxy"): (*_NEW, *_PROXIED),
}

SWITCHED_BY_UIDS: Final = frozenset(name for name in _NEW if name.endswith("UUID"))
SWITCHED_BY_NAMES: Final = frozenset(
    {
        "sourcePodName",
        "sourcePodNamespace",
        "sourceNodeName",
        "destinationPodName",
        "destinationPodNamespace",
        "destinationNodeName",
        "destinationServicePortName",
        "ingressNetworkPolicyName",
        "ingressNetworkPolicyNamespace",
        "egressNetworkPolicyName",
        "egressNetworkPolicyNamespace",
        "egressName",
        "egressNodeName",
    }
)
_RULE_NAMES: Final = frozenset({"ingressNetworkPolicyRuleName", "egressNetworkPolicyRuleName"})


def element_names(
    kind: TemplateKind, family: AddressFamily, *, compatibility: str, names: bool = True, uids: bool = False
) -> tuple[str, ...]:
    """The elements of a Template, in order.

    Args:
        compatibility: ``antrea-2.7`` or ``antrea-2.3``; the switches came after the second.
        names: whether names of Kubernetes objects are there; an agent's Template always has them.
        uids: whether their UUIDs are there; an agent's Template never has them. A rule's name belongs to both.
    """
    if compatibility == "antrea-2.3" or kind == "agent":
        names, uids = True, False
    left_out: frozenset[str] = frozenset()
    if not names:
        left_out |= SWITCHED_BY_NAMES
    if not uids:
        left_out |= SWITCHED_BY_UIDS
    if not names and not uids:
        left_out |= _RULE_NAMES
    return tuple(of_family(name, family) for name in _LISTS[compatibility, kind] if name not in left_out)


@functools.cache
def known_names(family: AddressFamily) -> frozenset[str]:
    """Every element of any of the lists."""
    return frozenset(of_family(name, family) for names in _LISTS.values() for name in names)
