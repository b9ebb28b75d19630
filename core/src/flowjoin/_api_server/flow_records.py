"""Flows as JSON objects, with the keys of an Antrea release.

Where Antrea has no key for an element, because the operator added it (``recordContents.elements``, enrichers) or
because the flow is a plain one, which Antrea does not know, the element's name is the key.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Final

from flowjoin._api_server.figures import Compatibility
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import FlowOrigin, FlowSchema
from flowjoin._model.schemas import AGGREGATED_NAMES, of_family

__all__ = ["json_records", "keys_of"]

_NEW: Final = (
    "sourceIPv4Address",
    "destinationIPv4Address",
    "sourceTransportPort",
    "destinationTransportPort",
    "protocolIdentifier",
    "tcpState",
    "flowStartSeconds",
    "flowEndSeconds",
    "flowEndSecondsFromSourceNode",
    "flowEndSecondsFromDestinationNode",
    "flowType",
    "sourcePodName",
    "sourcePodNamespace",
    "sourceNodeName",
    "destinationPodName",
    "destinationPodNamespace",
    "destinationNodeName",
    "destinationClusterIPv4",
    "destinationServiceIPv4",
    "destinationServicePort",
    "destinationServicePortName",
    "ingressNetworkPolicyNamespace",
    "ingressNetworkPolicyName",
    "ingressNetworkPolicyRuleName",
    "ingressNetworkPolicyRuleAction",
    "egressNetworkPolicyNamespace",
    "egressNetworkPolicyName",
    "egressNetworkPolicyRuleName",
    "egressNetworkPolicyRuleAction",
    "flowEndReason",
    "egressName",
    "egressIP",
    "egressNodeName",
    "packetTotalCount",
    "reversePacketTotalCount",
    "octetTotalCount",
    "reverseOctetTotalCount",
    "packetDeltaCount",
    "reversePacketDeltaCount",
    "octetDeltaCount",
    "reverseOctetDeltaCount",
    "throughput",
    "reverseThroughput",
)
# Antrea 2.3 wrote its record as it was; these elements came later.
_AFTER_2_3: Final = frozenset(
    {
        *(name for name in AGGREGATED_NAMES if name.endswith("UUID")),
        "proxySnatPort",
        "proxySnatIPv4",
        "destinationServiceIPv4",
    }
)
_OLD: Final = tuple(name for name in AGGREGATED_NAMES if name not in _AFTER_2_3)
_MAY_BE_UNSET: Final = ("destinationClusterIPv4", "destinationServiceIPv4")
_UNSET: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - the default of an address, not one to bind


@functools.lru_cache(maxsize=64)  # a handful of schemas for a run
def keys_of(schema: FlowSchema, compatibility: Compatibility) -> tuple[str, ...]:
    """The keys of each flow of a schema."""
    family = schema.family
    known = {of_family(name, family) for name in AGGREGATED_NAMES}
    if schema.origin is FlowOrigin.PLAIN and compatibility == "antrea-2.3":
        return schema.names
    antreas = _NEW if compatibility == "antrea-2.7" else _OLD
    others = (name for name in schema.names if name not in known)
    return tuple(dict.fromkeys((*(of_family(name, family) for name in antreas), *others)))


def json_records(batch: FlowBatch, compatibility: Compatibility) -> Iterator[str]:
    """Each flow of a batch as a JSON object."""
    schema = _schema_of(batch.schema, compatibility)
    blank: list[str] = []
    if compatibility == "antrea-2.7":
        blank = [name for name in (of_family(name, schema.family) for name in _MAY_BE_UNSET) if name in schema]
    for record in FlowBatch(schema, [batch.column(name) for name in schema.names]).to_dicts():
        for name in blank:
            if record[name] in _UNSET:
                record[name] = ""
        yield json.dumps(record, separators=(",", ":"))


@functools.lru_cache(maxsize=64)
def _schema_of(schema: FlowSchema, compatibility: Compatibility) -> FlowSchema:
    elements = tuple(schema.registry.by_name(name) for name in keys_of(schema, compatibility))
    return FlowSchema(origin=schema.origin, family=schema.family, elements=elements, registry=schema.registry)
