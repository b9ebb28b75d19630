from __future__ import annotations

from flowjoin._collector.metrics import CollectorCounters, collector_metrics


def test_every_count_is_a_metric_labelled_with_protocol_and_address():
    counters = CollectorCounters(**{name: number for number, name in enumerate(_NAMES, 1)})
    counters.refuse("session_limit", 5)
    snapshot = counters.snapshot(protocol="tcp", address="[::]:4739", sessions=3)
    samples = {sample.name: sample for metric in collector_metrics([snapshot]) for sample in metric.samples}
    for number, name in enumerate(_NAMES, 1):
        sample = samples[f"flowjoin_collector_{name}_total"]
        assert sample.value == number
        assert sample.labels == {"protocol": "tcp", "address": "[::]:4739"}
    assert samples["flowjoin_collector_sessions"].value == 3
    refused = samples["flowjoin_collector_refused_total"]
    assert refused.labels["reason"] == "session_limit"
    assert refused.value == 5


def test_a_snapshot_does_not_change_with_what_comes_later():
    counters = CollectorCounters()
    snapshot = counters.snapshot(protocol="udp", address="", sessions=0)
    counters.refuse("session_limit")
    counters.messages += 1
    assert snapshot.messages == 0
    assert dict(snapshot.refused) == {}


_NAMES = [name for name in CollectorCounters.__slots__ if name != "refused"]
