"""Every hook, in the order in which they fire: once, at start-up, before anything is bound.

Hooks are synchronous and inert: they hand over types. The data path calls the protocols of those
types, never a hook.
"""

from __future__ import annotations

import pluggy

from flowjoin._model.information_element import InformationElement
from flowjoin.api._types import EnricherType, ExporterType, LookupType, SourceType

__all__ = [
    "flowjoin_enricher_types",
    "flowjoin_exporter_types",
    "flowjoin_information_elements",
    "flowjoin_lookup_types",
    "flowjoin_source_types",
    "hookimpl",
    "hookspec",
]

hookspec = pluggy.HookspecMarker("flowjoin")
hookimpl = pluggy.HookimplMarker("flowjoin")


@hookspec
def flowjoin_information_elements() -> list[InformationElement]:  # type: ignore[empty-body]
    """Information Elements beyond the built-in registries; fires first, so that later hooks may name them."""


@hookspec
def flowjoin_lookup_types() -> list[LookupType]:  # type: ignore[empty-body]
    """Providers of look-up protocols."""


@hookspec
def flowjoin_source_types() -> list[SourceType]:  # type: ignore[empty-body]
    """Sources of batches."""


@hookspec
def flowjoin_enricher_types() -> list[EnricherType]:  # type: ignore[empty-body]
    """Enrichers."""


@hookspec
def flowjoin_exporter_types() -> list[ExporterType]:  # type: ignore[empty-body]
    """Exporters."""
