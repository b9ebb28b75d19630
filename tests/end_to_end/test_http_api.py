"""The HTTP API of a running flowjoin."""

from __future__ import annotations

import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from agent_traffic import agent_messages
from running_api import TRAFFIC, Start, start
from running_flowjoin import send
from waiting import wait_until

from flowjoin._generator.config import TrafficConfig

__all__ = ["start"]

pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = pytest.mark.slow


def records_of(traffic: TrafficConfig) -> int:
    """Data Records, one a Message, without the Messages that hold Templates."""
    return len(list(agent_messages(traffic))) - templates_of(traffic)


def templates_of(traffic: TrafficConfig) -> int:
    return sum(1 for message, _ in agent_messages(traffic) if message[17] == 2)  # Set id of Templates


def test_the_figures_are_the_books(start: Start) -> None:
    api = start()
    send(api.collector, TRAFFIC)
    metrics = api.metrics()
    counters = api.json("/recordmetrics")
    health = api.json("/healthz?output=json")
    books = api.stop()

    assert counters["numRecordsReceived"] == records_of(TRAFFIC)
    assert counters["numRecordsReceived"] == metrics["flowjoin_kernel_records_received_total"]
    assert counters["numFlows"] == metrics["flowjoin_kernel_flows_held"] == TRAFFIC.flows
    assert counters.get("numRecordsExported", 0) <= TRAFFIC.flows
    assert counters["withLogExporter"] is True
    assert counters.keys().isdisjoint({"withS3Exporter", "numRecordsDropped", "numConnToCollector"})
    components = {"configuration/file", "exporters/log", "spools/log", "core/api"}
    assert {row["component"] for row in health["components"]} == components
    assert books["records"] == records_of(TRAFFIC)
    assert (books["flows"], books["flows_exported_last"]) == (300, 300)


def test_the_figures_are_the_books_with_antrea_2_3s_meaning(start: Start) -> None:
    api = start("compatibility: antrea-2.3\nactiveFlowRecordTimeout: 1s\ninactiveFlowRecordTimeout: 1s\n")
    send(api.collector, TRAFFIC)
    wait_until(lambda: api.metrics()["flowjoin_lane_delivered_rows_total"] >= TRAFFIC.flows)
    wait_until(lambda: api.metrics()["flowjoin_lane_held_rows"] == api.metrics()["flowjoin_kernel_flows_held"] == 0)
    counters = api.json("/recordmetrics")
    delivered = api.metrics()["flowjoin_lane_delivered_rows_total"]
    books = api.stop()

    assert counters == {
        "numRecordsExported": delivered,
        "numRecordsReceived": len(list(agent_messages(TRAFFIC))),  # Messages, Templates included
        "withLogExporter": True,
    }
    assert books["lanes"]["log"]["delivered"] == delivered


def test_connected_exporters_are_counted(start: Start) -> None:
    api = start()
    host, _, port = api.collector.rpartition(":")
    with socket.create_connection((host, int(port))), socket.create_connection((host, int(port))):
        wait_until(lambda: api.json("/recordmetrics").get("numConnToCollector") == 2)
    wait_until(lambda: "numConnToCollector" not in api.json("/recordmetrics"))
    api.stop()


def test_flows_are_shown_as_they_stand_and_found_by_each_filter(start: Start) -> None:
    api = start()
    send(api.collector, TRAFFIC)
    flows = api.json("/flowrecords")
    assert len(flows) == TRAFFIC.flows
    keys = ("srcip", "dstip", "proto", "srcport", "dstport")

    def key(record: dict[str, Any]) -> tuple[Any, ...]:
        family = "IPv4" if "sourceIPv4Address" in record else "IPv6"
        addresses = (record[f"source{family}Address"], record[f"destination{family}Address"])
        ports = (record["sourceTransportPort"], record["destinationTransportPort"])
        return (*addresses, record["protocolIdentifier"], *ports)

    wanted = [key(record) for record in flows]
    assert len(set(wanted)) == TRAFFIC.flows
    chosen = next(each for each in wanted if all(each))
    for at, name in enumerate(keys):
        found = api.json(f"/flowrecords?{name}={chosen[at]}")
        assert sorted(map(key, found)) == sorted(each for each in wanted if each[at] == chosen[at])
    everything = "&".join(f"{name}={value}" for name, value in zip(keys, chosen, strict=True))
    assert list(map(key, api.json(f"/flowrecords?{everything}"))) == [chosen]
    assert api.json("/flowrecords?srcip=203.0.113.255") is None
    assert api.get("/flowrecords?proto=tcp")[0] == 404
    api.stop()


def test_proxy_mode_holds_no_flow(start: Start) -> None:
    api = start("mode: Proxy\n")
    send(api.collector, TRAFFIC)
    assert api.json("/flowrecords") is None
    assert "numFlows" not in api.json("/recordmetrics")
    api.stop()


def test_the_loop_is_not_held_while_many_flows_are_shown(start: Start) -> None:
    many = TrafficConfig(flows=10_000, seed=4, updates=0)
    api = start("activeFlowRecordTimeout: 10m\ninactiveFlowRecordTimeout: 10m\n")
    send(api.collector, many)
    shown: list[int] = []
    reader = threading.Thread(target=lambda: shown.append(len(api.json("/flowrecords"))))
    reader.start()
    answered = 0
    while reader.is_alive():
        assert api.get("/livez") == (200, b"ok\n")
        answered += reader.is_alive()
    reader.join()

    assert shown == [10_000]
    assert answered > 3
    api.stop()


def test_a_destination_that_is_away_is_unhealthy_and_not_unready(start: Start, tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    api = start(
        "activeFlowRecordTimeout: 1s\nshutdownGracePeriod: 100ms\n",
        exporters=f", {{type: log, name: full, path: {tmp_path}/full, spool: none}}",
    )
    send(api.collector, TRAFFIC)
    wait_until(lambda: api.get("/healthz")[0] == 503)
    assert api.get("/healthz/exporters/log") == (200, b"ok\n")
    status, text = api.get("/healthz/exporters/full")
    assert status == 503
    assert b"[-]exporters/full degraded: " in text
    assert api.get("/readyz")[0] == 200
    assert api.get("/livez")[0] == 200


def test_the_api_answers_unready_while_lanes_drain_and_is_gone_at_the_end(start: Start, tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    api = start(
        "shutdownGracePeriod: 1h\n", exporters=f", {{type: log, name: full, path: {tmp_path}/full, spool: none}}"
    )
    send(api.collector, TRAFFIC)
    api.program.process.send_signal(signal.SIGTERM)
    api.program.wait_line("draining")
    assert api.get("/readyz")[0] == 503
    assert api.get("/livez")[0] == 200
    assert api.metrics()["flowjoin_lane_held_rows"] > 0
    with socket.create_connection((api.host, api.port)) as idle:
        api.program.process.send_signal(signal.SIGTERM)
        api.program.finish()
        assert idle.recv(1) == b""


def test_stopping_under_requests_stays_within_the_grace_period(start: Start) -> None:
    api = start("shutdownGracePeriod: 5s\n")
    send(api.collector, TrafficConfig(flows=3000, seed=4, updates=0))
    stuck = []
    for _ in range(4):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((api.host, api.port))
        client.sendall(b"GET /flowrecords HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1) == b"H"
        stuck.append(client)
    books = api.stop()  # whose patience ends
    assert books["lanes"]["log"]["delivered"] == 3000
    assert "Traceback" not in api.program.text
    for client in stuck:
        client.close()
