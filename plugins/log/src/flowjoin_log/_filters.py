"""Which flows are written: by what network policies did to them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Final

from flowjoin.api import FlowBatch
from flowjoin_log._config import ACTION_NUMBERS, FilterConfig

__all__ = ["FlowFilters"]

_NO_ACTION: Final = -1  # what any other name stands for: no flow has it, so that such a name never matches

_ACTIONS: Final = ("ingressNetworkPolicyRuleAction", "egressNetworkPolicyRuleAction")


class FlowFilters:
    """A flow passes if there is no filter or at least one matches it."""

    def __init__(self, filters: Sequence[FilterConfig]) -> None:
        self._filters = [
            (
                frozenset(ACTION_NUMBERS.get(name, _NO_ACTION) for name in each.ingress_network_policy_rule_actions),
                frozenset(ACTION_NUMBERS.get(name, _NO_ACTION) for name in each.egress_network_policy_rule_actions),
            )
            for each in filters
        ]

    def passes(self, ingress_action: object, egress_action: object) -> bool:
        """Whether a flow with these rule actions is written."""
        if not self._filters:
            return True
        return any(
            (not ingress or ingress_action in ingress) and (not egress or egress_action in egress)
            for ingress, egress in self._filters
        )

    def apply(self, batch: FlowBatch) -> FlowBatch:
        """The rows that pass; the batch itself where all do."""
        if not self._filters:
            return batch
        passing = batch.map_distinct(_ACTIONS, lambda actions: self.passes(*actions))
        rows = list(compress(range(len(batch)), passing))
        return batch if len(rows) == len(batch) else batch.take(rows)
