"""What a line of the flow log costs.

Measured by ``pytest --benchmark-enable --benchmark-columns=median,ops tests/benchmarks/test_log_writers.py``.

One batch of 4,096 joined flows, rendered to octets; nothing is written. Operations per second times 4,096 are rows.
"""

from __future__ import annotations

from typing import Any

import pytest

from flowjoin.testing import numbered_flows

pytest.importorskip("pytest_benchmark", reason="pytest-benchmark is not installed")
flowjoin_log = pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

ROWS = 4096


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"pretty_print": False, "csv_quoting": "antrea"},
        {"format": "jsonLines"},
        {"format": "jsonLines", "omit_defaults": True},
        {"format": "table"},
    ],
    ids=lambda keys: "-".join(str(value) for value in keys.values()) or "csv",
)
def test_rendering(benchmark: Any, keys: dict[str, Any]) -> None:
    from flowjoin_log._exporter import make_writer

    config = flowjoin_log.LogConfig(path="-", **keys)
    writer = make_writer(config, compatibility="antrea-2.7", terminal_width=120, colours=False)
    batch = numbered_flows(ROWS)
    octets = benchmark(lambda: sum(map(len, writer.render(batch))))
    assert octets > 100 * ROWS
