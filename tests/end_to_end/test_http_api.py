"""The HTTP API of a running flowjoin, and the commands that ask it."""

from __future__ import annotations

import csv
import http.client
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agent_traffic import agent_messages
from held_port import HeldPort
from prometheus_client.parser import text_string_to_metric_families
from running_flowjoin import Program, Run, send
from waiting import wait_until

from flowjoin._generator.config import TrafficConfig

pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = pytest.mark.slow

TRAFFIC = TrafficConfig(flows=300, seed=3)
PATIENCE = 30.0


class Api:
    """A running flowjoin and its HTTP API."""

    def __init__(self, program: Program) -> None:
        self.program = program
        (self.address,) = program.wait_line("api_ready")["addresses"]
        self.collector = program.wait_ready()
        self.host, _, port = self.address.rpartition(":")
        self.port = int(port)

    def get(self, target: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request("GET", target)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def json(self, target: str) -> Any:
        status, body = self.get(target)
        assert status == 200, body
        return json.loads(body)

    def metrics(self) -> dict[str, float]:
        """The sums over all labels."""
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1].decode()):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0) + sample.value
        return sums

    def stop(self) -> dict[str, Any]:
        """End it; gives its books."""
        self.program.process.terminate()
        assert self.program.finish() == 0
        *_, books, _ = map(json.loads, self.program.text.splitlines())
        assert books["event"] == "books"
        found: dict[str, Any] = books
        return found


Start = Callable[..., Api]


@pytest.fixture
def start(run: Run, tmp_path: Path) -> Start:
    def begin(text: str = "", exporters: str = "") -> Api:
        path = tmp_path / "flowjoin.yaml"
        path.write_text(
            f"stateDirectory: {tmp_path}/state\n"
            'collectors: [{protocol: tcp, address: "127.0.0.1:0"}]\n'
            f"exporters: [{{type: log, path: {tmp_path}/flows.csv}}{exporters}]\n"
            'apiServer: {address: "127.0.0.1:0"}\n' + text
        )
        return Api(run("-c", str(path)))

    return begin


def flowjoin(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flowjoin", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


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


def test_flow_records_are_printed_in_antctls_columns(start: Start) -> None:
    api = start()
    send(api.collector, TRAFFIC)
    server = ("--server", api.address)
    table = flowjoin("get", "flowrecords", *server)
    as_csv = flowjoin("get", "flowrecords", *server, "--output", "csv")
    as_json = flowjoin("get", "flowrecords", *server, "--output", "json")
    one = json.loads(as_json.stdout)[0]
    filtered = flowjoin("get", "flowrecords", *server, "--output", "json", f"--srcport={one['sourceTransportPort']}")
    nothing = flowjoin("get", "flowrecords", *server, "--srcip", "203.0.113.255")
    no_json = flowjoin("get", "flowrecords", *server, "--srcip", "203.0.113.255", "--output", "json")
    wrong = flowjoin("get", "flowrecords", *server, "--proto", "tcp")
    api.stop()

    heading = ["SRC_IP", "DST_IP", "SPORT", "DPORT", "PROTO", "SRC_POD", "DST_POD", "SRC_NS", "DST_NS", "SERVICE"]
    assert table.stdout.splitlines()[0].split() == heading
    assert len(table.stdout.splitlines()) == 1 + TRAFFIC.flows
    rows = list(csv.DictReader(io.StringIO(as_csv.stdout)))
    assert len(rows) == TRAFFIC.flows
    assert list(rows[0]) == heading
    assert len(json.loads(as_json.stdout)) == TRAFFIC.flows
    assert {record["sourceTransportPort"] for record in json.loads(filtered.stdout)} == {one["sourceTransportPort"]}
    assert nothing.stdout == "no such flow is held\n"
    assert no_json.stdout == "[]\n"
    assert wrong.returncode == 2
    assert wrong.stderr == 'flowjoin: Error when parsing protocol: "tcp" is not a decimal number\n'


@pytest.mark.parametrize(("compatibility", "counts_drops"), [("antrea-2.7", True), ("antrea-2.3", False)])
def test_record_metrics_are_printed_in_antctls_columns(start: Start, compatibility: str, counts_drops: bool) -> None:
    api = start(f"compatibility: {compatibility}\n")
    send(api.collector, TRAFFIC)
    # no figure moves any more
    wait_until(lambda: api.json("/recordmetrics").get("numRecordsExported") == TRAFFIC.flows)
    printed = flowjoin("get", "recordmetrics", "--server", api.address, "--output", "csv")
    as_json = flowjoin("get", "recordmetrics", "--server", api.address, "--output", "json")
    counters = api.json("/recordmetrics")
    api.stop()

    (row,) = csv.DictReader(io.StringIO(printed.stdout))
    assert ("RECORDS-DROPPED" in row) is counts_drops
    assert row["FLOWS"] == "300"
    assert row["RECORDS-RECEIVED"] == str(counters["numRecordsReceived"])
    assert row["EXPORTERS-CONNECTED"] == "0"
    assert (row["LOG-EXPORTER"], row["S3-EXPORTER"]) == ("true", "false")
    assert json.loads(as_json.stdout) == counters


def test_the_level_of_the_log_is_shown_and_changed(start: Start) -> None:
    api = start()
    before = flowjoin("log-level", "--server", api.address)
    changed = flowjoin("log-level", "debug", "--server", api.address)
    wrong = flowjoin("log-level", "loud", "--server", api.address)
    after = flowjoin("log-level", "--server", api.address)
    verbosity = api.json("/loglevel")
    api.stop()

    assert (before.stdout, changed.stdout, after.stdout, verbosity) == ("info\n", "", "debug\n", 4)
    assert wrong.returncode == 2
    assert "log level must be a positive integer" in wrong.stderr


def test_record_metrics_are_printed_for_each_exporter(start: Start) -> None:
    api = start()
    send(api.collector, TRAFFIC)
    wait_until(lambda: api.metrics()["flowjoin_lane_delivered_rows_total"] == TRAFFIC.flows)
    table = flowjoin("get", "recordmetrics", "--server", api.address)
    alone = flowjoin("get", "recordmetrics", "--server", api.address, "--exporters", "--output", "csv")
    as_json = flowjoin("get", "recordmetrics", "--server", api.address, "--exporters", "--output", "json")
    api.stop()

    assert json.loads(as_json.stdout) == [
        {
            "exporter": "log",
            "delivered": TRAFFIC.flows,
            "retried": 0,
            "held": 0,
            "spooled": 0,
            "deadLettered": 0,
            "dropped": 0,
            "lagSeconds": 0.0,
        }
    ]
    (row,) = csv.DictReader(io.StringIO(alone.stdout))
    assert (row["EXPORTER"], row["DELIVERED"], row["LAG-SECONDS"]) == ("log", str(TRAFFIC.flows), "0.0")
    antrea, _, exporters = table.stdout.partition("\n\n")
    assert antrea.splitlines()[0].split()[:2] == ["RECORDS-EXPORTED", "RECORDS-RECEIVED"]
    assert exporters.splitlines()[0].split() == list(row)


def test_top_shows_one_interval_for_programs_and_for_people(start: Start) -> None:
    api = start()
    send(api.collector, TRAFFIC)
    as_json = flowjoin("top", "--server", api.address, "--once", "--interval", "0.1", "--output", "json")
    table = flowjoin("top", "--server", api.address, "--once", "--interval", "0.1")
    endless = flowjoin("top", "--server", api.address)
    api.stop()

    (line,) = as_json.stdout.splitlines()
    view = json.loads(line)
    assert view["phase"] == "ready"
    assert view["flows"]["held"] == TRAFFIC.flows
    assert [lane["name"] for lane in view["lanes"]] == ["log"]
    assert [collector["protocol"] for collector in view["collectors"]] == ["tcp"]
    assert view["degraded"] == {}
    assert table.stdout.startswith("flowjoin 127.0.0.1:")
    (flows,) = [line for line in table.stdout.splitlines() if line.startswith("flows ")]
    assert flows.endswith(" evicted")  # nothing is folded
    assert "300 held" in table.stdout
    assert re.search(r"^log +", table.stdout, re.M)
    assert endless.returncode == 2
    assert "write --once" in endless.stderr


@pytest.mark.parametrize(
    ("address", "command", "code", "sentence"),
    [
        ("127.0.0.1:{}", ("get", "flowrecords"), 1, "nobody answers at 127.0.0.1:{}; is flowjoin running"),
        ("127.0.0.1:{}", ("top", "--once"), 1, "nobody answers at 127.0.0.1:{}; is flowjoin running"),
        ("none", ("get", "recordmetrics"), 2, "switches the HTTP API off"),
        ("127.0.0.1:0", ("top",), 2, "leaves the port to the system"),
    ],
)
def test_commands_find_the_server_in_its_configuration(
    tmp_path: Path, address: str, command: tuple[str, ...], code: int, sentence: str
) -> None:
    path = tmp_path / "flowjoin.yaml"
    with closing(HeldPort()) as port:
        path.write_text(f'collectors: []\napiServer: {{address: "{address.format(port.number)}"}}\n')
        done = flowjoin(*command, "-c", str(path))
    assert done.returncode == code
    assert sentence.format(port.number) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["run", "check"])
def test_an_address_that_others_reach_ends_with_2_and_one_sentence(tmp_path: Path, command: str) -> None:
    path = tmp_path / "flowjoin.yaml"
    path.write_text(f'stateDirectory: {tmp_path}/state\ncollectors: []\napiServer: {{address: "0.0.0.0:10348"}}\n')
    done = flowjoin(command, "-c", str(path))
    assert done.returncode == 2
    assert "apiServer.address: others reach this address, and the HTTP API says who talks to whom" in done.stderr


def test_an_address_that_was_asked_for_and_is_in_use_ends_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        path = tmp_path / "flowjoin.yaml"
        path.write_text(f'stateDirectory: {tmp_path}/state\ncollectors: []\napiServer: {{address: "{address}"}}\n')
        done = flowjoin("run", "-c", str(path))
    assert done.returncode == 1
    assert f"flowjoin: apiServer.address: {address} is in use" in done.stderr
    assert "Traceback" not in done.stderr
