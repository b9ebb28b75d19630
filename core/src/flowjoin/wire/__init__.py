"""IPFIX on the wire, sans-IO: octets to events and back (public)."""

from flowjoin._model.template import FieldSpecifier, Template, TemplateId
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.encoder import (
    MAX_MESSAGE_OCTETS,
    Encoder,
    encode_data_set,
    encode_message,
    encode_template_record,
    encode_template_set,
    encode_withdrawal_set,
)
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
from flowjoin.wire.record_encoder import RecordEncoder
from flowjoin.wire.records import carries_octets
from flowjoin.wire.registry import default_registry
from flowjoin.wire.remembered import RememberedTemplate
from flowjoin.wire.text import address_text, json_value, packed_of, text_of

__all__ = [
    "MAX_MESSAGE_OCTETS",
    "NEED_DATA",
    "DataSetReceived",
    "Decoder",
    "DecoderLimits",
    "DecoderStatistics",
    "Encoder",
    "Event",
    "FieldSpecifier",
    "MalformedMessage",
    "MalformedTemplate",
    "MessageFramer",
    "MessageHeader",
    "MessageReceived",
    "NeedData",
    "RecordEncoder",
    "RecordsDropped",
    "RememberedTemplate",
    "SequenceGap",
    "Template",
    "TemplateId",
    "TemplateReceived",
    "TemplateWithdrawn",
    "UndecodableSet",
    "address_text",
    "carries_octets",
    "default_registry",
    "encode_data_set",
    "encode_message",
    "encode_template_record",
    "encode_template_set",
    "encode_withdrawal_set",
    "json_value",
    "packed_of",
    "text_of",
]
