"""IPFIX on the wire, sans-IO: octets to events and back (public)."""

from flowjoin.wire.decoder import Decoder
from flowjoin.wire.events import (
    DataSetReceived,
    Event,
    MalformedMessage,
    MalformedTemplate,
    MessageHeader,
    MessageReceived,
    RecordsDropped,
    SequenceGap,
    TemplateReceived,
    TemplateWithdrawn,
    UndecodableSet,
)
from flowjoin.wire.framer import NEED_DATA, MessageFramer, NeedData
from flowjoin.wire.limits import DecoderLimits, DecoderStatistics
from flowjoin.wire.records import carries_octets
from flowjoin.wire.registry import default_registry
from flowjoin.wire.text import address_text, json_value, mac_address_text, packed_of, text_of

__all__ = [
    "NEED_DATA",
    "DataSetReceived",
    "Decoder",
    "DecoderLimits",
    "DecoderStatistics",
    "Event",
    "MalformedMessage",
    "MalformedTemplate",
    "MessageFramer",
    "MessageHeader",
    "MessageReceived",
    "NeedData",
    "RecordsDropped",
    "SequenceGap",
    "TemplateReceived",
    "TemplateWithdrawn",
    "UndecodableSet",
    "address_text",
    "carries_octets",
    "default_registry",
    "json_value",
    "mac_address_text",
    "packed_of",
    "text_of",
]
