"""Wires the stages together: assembly, delivery lanes, supervision, shutdown."""
