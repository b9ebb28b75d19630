"""How long Hypothesis looks, in tests of the core and of plugins."""

from __future__ import annotations

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
