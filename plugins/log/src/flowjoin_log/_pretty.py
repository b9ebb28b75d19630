"""Names for numbers, as Antrea's flow log writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["PRETTY", "PROTOCOLS", "RULE_ACTIONS", "action_name", "policy_type_name", "protocol_name"]

PROTOCOLS: Final[Mapping[int, str]] = {1: "ICMP", 2: "IGMP", 6: "TCP", 17: "UDP", 58: "IPv6-ICMP", 132: "SCTP"}
RULE_ACTIONS: Final[Mapping[int, str]] = {0: "", 1: "Allow", 2: "Drop", 3: "Reject"}
# Type 4 (K8sClusterNetworkPolicy) is younger than this list; Antrea's own log writes Invalid for it.
_POLICY_TYPES: Final[Mapping[int, str]] = {
    0: "",
    1: "K8sNetworkPolicy",
    2: "AntreaNetworkPolicy",
    3: "AntreaClusterNetworkPolicy",
}


def protocol_name(value: object) -> str:
    """``TCP`` for 6."""
    return PROTOCOLS.get(value, "Unknown Protocol")  # type: ignore[call-overload, no-any-return]  # not an int: no name


def action_name(value: object) -> str:
    """``Drop`` for 2; nothing for 0, no rule."""
    return RULE_ACTIONS.get(value, "Invalid")  # type: ignore[call-overload, no-any-return]  # not an int: no name


def policy_type_name(value: object) -> str:
    """``K8sNetworkPolicy`` for 1; nothing for 0, no policy."""
    return _POLICY_TYPES.get(value, "Invalid")  # type: ignore[call-overload, no-any-return]  # not an int: no name


PRETTY: Final[Mapping[str, Callable[[object], str]]] = {
    "protocolIdentifier": protocol_name,
    "ingressNetworkPolicyRuleAction": action_name,
    "ingressNetworkPolicyType": policy_type_name,
    "egressNetworkPolicyRuleAction": action_name,
    "egressNetworkPolicyType": policy_type_name,
}
