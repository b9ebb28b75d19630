"""Types of configuration fields that mean more than their Python type."""

from __future__ import annotations

from typing import NewType

__all__ = ["Duration", "Octets"]

Duration = NewType("Duration", float)
"""Seconds; written in Go syntax: ``90s``, ``1m30s``, ``250ms``."""

Octets = NewType("Octets", int)
"""A size; written ``256MiB``, ``1GiB``, ``4096``."""
