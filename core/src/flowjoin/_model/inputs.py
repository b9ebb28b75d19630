"""Which elements of a record feed a flow, and under which name the flow knows them."""

from __future__ import annotations

from typing import Final

from flowjoin._model.flow_schema import FlowOrigin
from flowjoin._model.information_element import MergeRule
from flowjoin._model.merge_rules import merge_rule
from flowjoin._model.schemas import FlowSchemas

__all__ = ["ALIASES", "PLAIN_INPUTS", "TIME_INPUTS", "inputs_of"]

# RFC 5103's forerunners: deltas, whatever their registry entries call them.
ALIASES: Final = {
    "initiatorOctets": "octetDeltaCount",
    "initiatorPackets": "packetDeltaCount",
    "responderOctets": "reverseOctetDeltaCount",
    "responderPackets": "reversePacketDeltaCount",
}

TIME_INPUTS: Final = (
    "flowStartNanoseconds",
    "flowEndNanoseconds",
    "flowStartMicroseconds",
    "flowEndMicroseconds",
    "flowStartMilliseconds",
    "flowEndMilliseconds",
    "flowStartSeconds",
    "flowEndSeconds",
    "systemInitTimeMilliseconds",
    "flowStartSysUpTime",
    "flowEndSysUpTime",
    "flowStartDeltaMicroseconds",
    "flowEndDeltaMicroseconds",
)

# Beside its columns, what a plain flow's columns are computed from.
PLAIN_INPUTS: Final = frozenset(TIME_INPUTS)

_THROUGHPUT: Final = ("throughput", "reverseThroughput")


def inputs_of(origin: FlowOrigin, schemas: FlowSchemas) -> frozenset[str]:
    """Names of the elements that a record may bring into flows of that origin, both families together."""
    names = {
        element
        for (schema_origin, _), schema in schemas.items()
        if schema_origin is origin
        for element in schema.elements
    }
    if origin is FlowOrigin.AGGREGATED:  # statistics per side are the core's own
        return frozenset(
            element.name
            for element in names
            if merge_rule(element, origin) is not MergeRule.PER_SIDE and not element.name.startswith(_THROUGHPUT)
        )
    return frozenset(element.name for element in names) | PLAIN_INPUTS
