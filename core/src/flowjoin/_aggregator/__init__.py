"""Intermediate Aggregation Process: what is a half, when it is ready, when it leaves; ticks the kernel."""
