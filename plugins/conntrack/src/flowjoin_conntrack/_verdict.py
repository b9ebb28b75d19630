"""What a logged packet says of the rule that denied it: by the rule's prefix, or the packet's mark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["DROP", "REJECT", "Direction", "Verdict", "VerdictRule", "verdict_of"]

Direction: TypeAlias = Literal["ingress", "egress"]

# Values of ingressNetworkPolicyRuleAction.
DROP: Final = 2
REJECT: Final = 3
_ACTIONS: Final = {"drop": DROP, "reject": REJECT}
_WRITTEN: Final = re.compile(r"fj:(ingress|egress):(drop|reject)(?::(\d{1,10}|implicit))?")
_GREATEST_RULE: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a packet did not pass.

    Attributes:
        action: 2 dropped, 3 rejected.
        direction: of the policy that denied it; None where nothing says so.
        rule_id: to be asked of the policy look-up; 0 where there is none.
        is_implicit: no rule let it pass, and a Kubernetes policy isolates the Pod.
    """

    action: int = DROP
    direction: Direction | None = None
    rule_id: int = 0
    is_implicit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRule:
    """A verdict, and the packets that it is of.

    Attributes:
        prefix: the rule's prefix begins so; empty for any.
        mark: the packet's mark under ``mask``; None for any.
    """

    verdict: Verdict
    prefix: str = ""
    mark: int | None = None
    mask: int = 0xFFFFFFFF

    def fits(self, prefix: str, mark: int) -> bool:
        """Whether a packet is meant."""
        return prefix.startswith(self.prefix) and (self.mark is None or mark & self.mask == self.mark & self.mask)


def verdict_of(rules: Sequence[VerdictRule], prefix: str, mark: int) -> Verdict:
    """The first rule that fits; else what the prefix says by itself, ``fj:ingress:drop:7``; else a drop."""
    for rule in rules:
        if rule.fits(prefix, mark):
            return rule.verdict
    said = _WRITTEN.fullmatch(prefix.strip())
    if said is None:
        return Verdict()
    direction, action, rule_text = said.groups()
    rule_id = int(rule_text) if rule_text and rule_text != "implicit" else 0
    return Verdict(
        action=_ACTIONS[action],
        direction="ingress" if direction == "ingress" else "egress",
        rule_id=rule_id if rule_id <= _GREATEST_RULE else 0,
        is_implicit=rule_text == "implicit",
    )
