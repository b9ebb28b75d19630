"""Rows of one schema, in columns: what crosses every stage and plugin boundary."""

from __future__ import annotations

__all__ = ["FlowBatch"]


class FlowBatch:
    """Immutable rows of one schema; each batch owns its columns."""
