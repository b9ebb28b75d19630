"""How long Hypothesis looks, in tests of the core and of plugins."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: the machine that runs the tests may be busy. By default the same examples each time, so that
# a change is what makes a test fail; .ci/long asks for "long", which looks further and elsewhere each time.
settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "long", deadline=None, print_blob=True, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
