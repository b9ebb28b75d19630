"""Testing plugins: the conformance kits, sample batches, a recording context, an in-memory exporter.

For authors of plugins; install ``flowjoin[testing]``. The checks themselves need no pytest: ``testing.checks`` (of
exporters), ``testing.enricher_checks``, ``testing.lookup_checks``, ``testing.source_checks``.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pytest") is not None:
    import pytest

    # Before the import below, so that a check that fails shows the values it compared.
    pytest.register_assert_rewrite(
        "flowjoin.testing.checks",
        "flowjoin.testing.enricher_checks",
        "flowjoin.testing.lookup_checks",
        "flowjoin.testing.requirements",
        "flowjoin.testing.source_checks",
        "flowjoin.testing.watching",
    )

    from flowjoin.testing.enricher_conformance import EnricherConformance as EnricherConformance
    from flowjoin.testing.exporter_conformance import ExporterConformance as ExporterConformance
    from flowjoin.testing.lookup_conformance import LookupConformance as LookupConformance
    from flowjoin.testing.source_conformance import SourceConformance as SourceConformance

from flowjoin.testing.batches import (
    every_data_type,
    hostile_flows,
    numbered_flows,
    plain_flows,
    standard_flow,
)
from flowjoin.testing.context import LogLine, RecordingContext
from flowjoin.testing.enricher_checks import EnricherExample
from flowjoin.testing.golden import compare_with_golden_file
from flowjoin.testing.lookup_checks import LookupExample
from flowjoin.testing.memory_exporter import MEMORY_EXPORTER, MemoryConfig
from flowjoin.testing.source_checks import SourceExample

__all__ = [
    "MEMORY_EXPORTER",
    "EnricherConformance",
    "EnricherExample",
    "ExporterConformance",
    "LogLine",
    "LookupConformance",
    "LookupExample",
    "MemoryConfig",
    "RecordingContext",
    "SourceConformance",
    "SourceExample",
    "compare_with_golden_file",
    "every_data_type",
    "hostile_flows",
    "numbered_flows",
    "plain_flows",
    "standard_flow",
]
