"""Property tests run the same examples each time, however slow the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("flowjoin", derandomize=True, deadline=None)
settings.load_profile("flowjoin")
