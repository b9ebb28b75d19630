"""How long Hypothesis looks, and what the garbage collector need not look at, in tests of the core and of plugins."""

from __future__ import annotations

import gc
import os
from typing import Final

from hypothesis import HealthCheck, settings

# No deadline: the machine that runs the tests may be busy. By default the same examples each time, so that
# a change is what makes a test fail; .ci/long asks for "long", which looks further and elsewhere each time.
# For the same reason no complaint that making examples takes long.
COMMON: Final = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", derandomize=True, **COMMON)
settings.register_profile("long", max_examples=5_000, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_finish() -> None:
    """Let a collection of garbage see what a test made, not all tests and modules: that takes a fifth of a second.

    The conformance kit asks for one at each checkpoint at which it cancels.
    """
    gc.collect()
    gc.freeze()
