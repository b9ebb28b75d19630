"""Rows of one schema, in columns: what crosses every stage and plugin boundary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from flowjoin._model.flow_schema import FlowSchema
from flowjoin._model.information_element import Value

__all__ = ["FlowBatch"]


class FlowBatch:
    """Immutable rows of one schema; each batch owns its columns."""
