"""The door for plugins: everything a plugin may import, and nothing else of the core but ``flowjoin.wire``."""

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.errors import (
    ConfigError,
    EncodeError,
    FlowjoinError,
    PermanentExportError,
    PluginContractError,
    PluginError,
    PluginLoadError,
    RetryableExportError,
)
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_key import FlowFilter, FlowKey
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema
from flowjoin._model.information_element import (
    VARIABLE_LENGTH,
    DataType,
    ElementId,
    EnterpriseNumber,
    InformationElement,
    MergeRule,
    Value,
)
from flowjoin.api._hookspecs import hookimpl
from flowjoin.api._lookups import (
    Node,
    NodeLookup,
    Pod,
    PodLookup,
    PolicyLookup,
    PolicyRule,
    Service,
    ServiceLookup,
    ServicePort,
)
from flowjoin.api._settings import Duration, Octets
from flowjoin.api._types import (
    API_VERSION,
    Batching,
    Counter,
    Enricher,
    EnricherType,
    Exporter,
    ExporterType,
    Logger,
    LookupType,
    PluginContext,
    SourceType,
)

__all__ = [
    "API_VERSION",
    "VARIABLE_LENGTH",
    "AddressFamily",
    "Batching",
    "ConfigError",
    "Counter",
    "DataType",
    "Duration",
    "ElementId",
    "ElementRegistry",
    "EncodeError",
    "Enricher",
    "EnricherType",
    "EnterpriseNumber",
    "Exporter",
    "ExporterType",
    "FlowBatch",
    "FlowFilter",
    "FlowKey",
    "FlowOrigin",
    "FlowSchema",
    "FlowjoinError",
    "InformationElement",
    "Logger",
    "LookupType",
    "MergeRule",
    "Node",
    "NodeLookup",
    "Octets",
    "PermanentExportError",
    "PluginContext",
    "PluginContractError",
    "PluginError",
    "PluginLoadError",
    "Pod",
    "PodLookup",
    "PolicyLookup",
    "PolicyRule",
    "RetryableExportError",
    "Service",
    "ServiceLookup",
    "ServicePort",
    "SourceType",
    "Value",
    "hookimpl",
]
