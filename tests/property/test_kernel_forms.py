"""Both forms of the kernel, fed with one history, give the same batches, counters and deadlines, at every step."""

from __future__ import annotations

import pytest
from compiled_kernel import require_compiled_kernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_histories import History

STEPS = 60


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    require_compiled_kernel()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**64 - 1))
def test_any_history_is_the_same_in_both_forms(seed: int) -> None:
    History(seed).run(STEPS)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**64 - 1))
def test_in_proxy_mode_too(seed: int) -> None:
    History(seed, is_proxy=True).run(STEPS)
