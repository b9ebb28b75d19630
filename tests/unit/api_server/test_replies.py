from __future__ import annotations

import json

import pytest

from flowjoin._api_server.figures import ComponentState, Phase
from flowjoin._api_server.replies import health_reply, liveness_reply, readiness_reply, record_metrics_reply

GOOD = ComponentState(name="exporters/audit", state="ok")
BAD = ComponentState(name="exporters/away", state="degraded", problem="OSError: refused\nby all", failures=3)


def test_whoever_answers_is_alive() -> None:
    assert (liveness_reply().status, liveness_reply().body) == (200, b"ok\n")


@pytest.mark.parametrize(("phase", "status"), [(Phase.STARTING, 503), (Phase.READY, 200), (Phase.STOPPING, 503)])
def test_it_is_ready_while_messages_are_taken_in_whatever_fails(phase: Phase, status: int) -> None:
    assert readiness_reply(phase, [GOOD, BAD], b"").status == status


@pytest.mark.parametrize(
    ("phase", "components", "status"),
    [
        (Phase.READY, [GOOD], 200),
        (Phase.READY, [], 200),
        (Phase.READY, [GOOD, BAD], 503),
        (Phase.STARTING, [GOOD], 503),
        (Phase.READY, [ComponentState(name="lookups/k", state="starting")], 200),
        (Phase.READY, [ComponentState(name="sources/file", state="ended")], 200),
    ],
)
def test_it_is_healthy_while_everything_works(phase: Phase, components: list[ComponentState], status: int) -> None:
    assert health_reply(phase, components, b"").status == status


def test_what_fails_is_told_a_line_each() -> None:
    reply = health_reply(Phase.READY, [GOOD, BAD], b"")
    assert reply.body.decode().splitlines() == [
        "[+]core ready",
        "[+]exporters/audit ok",
        "[-]exporters/away degraded: OSError: refused by all (3 failures)",
        "healthz check failed",
    ]


def test_verbose_tells_what_works_too() -> None:
    assert readiness_reply(Phase.READY, [GOOD], b"verbose").body == (
        b"[+]core ready\n[+]exporters/audit ok\nreadyz check passed\n"
    )


def test_one_component_is_asked_for_by_its_name() -> None:
    assert health_reply(Phase.READY, [GOOD, BAD], b"", "exporters/audit").body == b"ok\n"
    assert health_reply(Phase.READY, [GOOD, BAD], b"", "exporters/away").status == 503
    missing = health_reply(Phase.READY, [GOOD], b"", "exporters/none\n")
    assert missing.status == 404
    assert b"there is no component exporters/none " in missing.body


def test_programs_get_json() -> None:
    reply = health_reply(Phase.READY, [BAD], b"output=json")
    assert reply.status == 503
    assert json.loads(reply.body) == {
        "status": "failed",
        "phase": "ready",
        "components": [
            {"component": "exporters/away", "state": "degraded", "problem": "OSError: refused\nby all", "failures": 3}
        ],
    }


def test_counters_that_are_zero_or_false_are_left_out() -> None:
    counters = {"numRecordsExported": 20, "numRecordsDropped": 0, "withS3Exporter": False, "withLogExporter": True}
    assert record_metrics_reply(counters).body == b'{"numRecordsExported":20,"withLogExporter":true}\n'
    assert record_metrics_reply({"numFlows": 0}).body == b"{}\n"
