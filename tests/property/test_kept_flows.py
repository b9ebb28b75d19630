"""Flows that outlive the process: after any history, a restart changes nothing but the counters' beginning."""

from __future__ import annotations

import random
from typing import Any

import pytest
from both_forms import BothForms, contents
from compiled_kernel import require_compiled_kernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_histories import EXTRA, REGISTRY, History

from flowjoin._kernel import KernelLimits
from flowjoin._model.flow_batch import FlowBatch

STEPS = 40
ROOMY = KernelLimits(flows=1000, string_octets=10_000_000, active_timeout=3.0, idle_timeout=9.0)


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    require_compiled_kernel()


def rows(batches: list[FlowBatch]) -> list[dict[str, Any]]:
    """Everything but the places that flows have in their table."""
    return [{**contents(batch), "handles": None} for batch in batches]


def restarted(history: History, limit: int) -> BothForms:
    """The same limits, schemas and flows, all else new."""
    forms = history.forms.anew()
    outcomes = forms.restore(history.forms.dump(limit), offset=0.0, is_continued=True)
    assert all(isinstance(outcome, tuple) and outcome[1] == 0 for outcome in outcomes)
    return forms


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**64 - 1), limit=st.sampled_from([1, 3, 1000]), is_flushed=st.booleans())
def test_both_forms_write_the_same_octets_and_what_is_read_leaves_as_it_would_have(
    seed: int, limit: int, is_flushed: bool
) -> None:
    history = History(seed)
    history.run(STEPS, ends=False)
    now = history.latest
    history.forms.expire(now, 1000)  # rows of flows that were evicted are no part of it
    if is_flushed:
        history.forms.flush(limit)
    others = restarted(history, limit)
    for later in (1.0, 5.0, 1000.0, 2000.0, 3000.0):
        assert rows(others.expire(now + later, 1000)) == rows(history.forms.expire(now + later, 1000))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), data=st.data())
def test_any_octets_are_read_alike_or_refused_by_both_forms(seed: int, data: st.DataObject) -> None:
    history = History(seed)
    history.run(10, ends=False)
    octets = bytearray(history.forms.dump(1000)[0])
    choose = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(choose.randrange(4)):
        octets[choose.randrange(len(octets))] = choose.choice([0, 1, 2, 3, 4, 255, choose.randrange(256)])
    damaged = bytes(octets[: choose.choice([len(octets)] * 3 + [choose.randrange(len(octets))])])
    forms = history.forms.anew()
    forms.restore([damaged], offset=1.0, is_continued=choose.random() < 0.5)
    forms.kernels[0].expire(history.now + 1e9, 1000)
    forms.kernels[1].expire(history.now + 1e9, 1000)


@given(octets=st.binary(max_size=200))
def test_no_octets_are_read_as_flows_that_nobody_wrote(octets: bytes) -> None:
    forms = BothForms(REGISTRY, limits=ROOMY, extra=EXTRA)
    outcomes = forms.restore([octets], offset=0.0, is_continued=True)
    assert outcomes in (["refused"], [(0, 0)])
