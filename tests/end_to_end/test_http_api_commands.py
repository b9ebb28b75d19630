"""The commands that ask the HTTP API of a running flowjoin, and the addresses at which it is not to be had."""

from __future__ import annotations

import csv
import io
import json
import re
import socket
from contextlib import closing
from pathlib import Path

import pytest
from held_port import HeldPort
from running_api import TRAFFIC, Start, flowjoin, start
from running_flowjoin import send
from waiting import wait_until

__all__ = ["start"]

pytest.importorskip("flowjoin_log", reason="the log plugin is not installed")

pytestmark = pytest.mark.slow


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
