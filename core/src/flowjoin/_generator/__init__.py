"""Realistic traffic of a small cluster, for trying things out and for tests."""
