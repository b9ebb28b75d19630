"""Structured logs and the registry of metrics."""
