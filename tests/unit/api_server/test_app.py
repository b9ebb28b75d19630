from __future__ import annotations

import json
from typing import Any

import pytest
from api_fakes import FakeFigures, batch, flow

from flowjoin._api_server.app import HttpApi
from flowjoin._api_server.config import ApiServerLimits
from flowjoin._model.flow_key import FlowFilter

FLOWS = [batch([flow("10.0.0.1", "10.0.0.2", 8080, 3700)]), batch([flow("10.0.0.3", "10.0.0.4", 1, 2)])]


class Answered:
    """What the application sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.turns = 0

    async def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    async def give_way(self) -> None:
        self.turns += 1

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])

    @property
    def is_whole(self) -> bool:
        return not self.messages[-1].get("more_body", False)


async def answer(
    figures: FakeFigures,
    target: str,
    *,
    method: str = "GET",
    host: str | None = "127.0.0.1:10348",
    version: str = "1.1",
    scans: int = 4,
    gone_after: int | None = None,
) -> Answered:
    path, _, query = target.partition("?")
    answered = Answered()
    api = HttpApi(figures, ApiServerLimits(scans=scans), give_way=answered.give_way)
    scope = {
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "http_version": version,
        "headers": [] if host is None else [(b"host", host.encode())],
    }
    await api.answer(scope, answered.send, lambda: gone_after is not None and answered.turns >= gone_after)
    return answered


async def test_all_flows_are_one_json_array_with_a_line_break_at_its_end() -> None:
    answered = await answer(FakeFigures(FLOWS), "/flowrecords")
    assert answered.status == 200
    assert answered.body.endswith(b"]\n")
    assert [record["sourceTransportPort"] for record in json.loads(answered.body)] == [8080, 1]
    assert answered.is_whole


async def test_everyone_has_their_turn_before_each_slice_whether_or_not_it_gave_a_flow() -> None:
    figures = FakeFigures([batch([]), *FLOWS, batch([])])
    answered = await answer(figures, "/flowrecords?srcport=9")
    assert answered.turns == 4
    assert [cursor for _, cursor in figures.scans] == [0, 1, 2, 3]
    assert figures.scans[0][0] == FlowFilter(source_port=9)
    assert len(json.loads(answered.body)) == 2


async def test_no_flow_is_null() -> None:
    assert (await answer(FakeFigures(), "/flowrecords")).body == b"null\n"
    assert (await answer(FakeFigures([batch([])]), "/flowrecords?srcip=10.0.0.10")).body == b"null\n"


ALL_FIVE = "/flowrecords?srcip=10.0.0.1&dstip=10.0.0.2&proto=6&srcport=8080&dstport=3700"


async def test_a_flow_that_is_named_whole_is_looked_up() -> None:
    figures = FakeFigures(FLOWS)
    figures.found = FLOWS[0]
    answered = await answer(figures, ALL_FIVE)
    assert [record["sourceTransportPort"] for record in json.loads(answered.body)] == [8080]
    assert not figures.scans


async def test_a_plain_flow_whose_key_has_more_parts_is_found_by_going_through_the_table() -> None:
    figures = FakeFigures(FLOWS[:1])
    answered = await answer(figures, ALL_FIVE)
    assert len(figures.lookups) == 1
    assert len(json.loads(answered.body)) == 1


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("proto=tcp", "Error when parsing protocol: "),
        ("srcport=tcp-port", "Error when parsing source port: "),
        ("dstport=tcp-port", "Error when parsing destination port: "),
    ],
)
async def test_a_bad_query_is_404_and_a_sentence(query: str, text: str) -> None:
    figures = FakeFigures(FLOWS)
    answered = await answer(figures, f"/flowrecords?{query}")
    assert answered.status == 404
    assert answered.body.decode().startswith(text)
    assert answered.headers["content-type"].startswith("text/plain")
    assert not figures.scans


async def test_a_client_that_left_costs_no_more_slices_and_gets_no_end() -> None:
    figures = FakeFigures(FLOWS)
    figures.is_endless = True
    answered = await answer(figures, "/flowrecords", gone_after=3)
    assert len(figures.scans) == 3
    assert not answered.is_whole


async def test_more_long_replies_than_the_limit_are_told_to_come_again() -> None:
    answered = await answer(FakeFigures(FLOWS), "/flowrecords", scans=0)
    assert answered.status == 503
    assert answered.headers["retry-after"] == "1"


async def test_head_has_the_head_alone_and_reads_no_flow() -> None:
    figures = FakeFigures(FLOWS)
    answered = await answer(figures, "/flowrecords", method="HEAD", scans=0)
    assert (answered.status, answered.body) == (200, b"")
    assert not figures.scans


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "BREW"])
async def test_other_methods_are_405(method: str) -> None:
    answered = await answer(FakeFigures(FLOWS), "/flowrecords", method=method)
    assert answered.status == 405
    assert answered.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "host",
    [None, "localhost", "LOCALHOST:10348", "localhost.", "127.0.0.1", "127.1.2.3:8", "[::1]:10348", "[::1]"],
)
async def test_this_machines_names_are_answered(host: str | None) -> None:
    assert (await answer(FakeFigures(), "/livez", host=host)).status == 200


@pytest.mark.parametrize(
    "host", ["rebound.example:10348", "192.0.2.1", "localhost.example", "[2001:db8::1]:1", "", "127.0.0.1.x"]
)
async def test_a_name_of_another_machine_is_403(host: str) -> None:
    answered = await answer(FakeFigures(FLOWS), "/flowrecords", host=host)
    assert answered.status == 403
    assert b"10.0.0.1" not in answered.body


async def test_http_2_is_505() -> None:
    assert (await answer(FakeFigures(), "/livez", version="2")).status == 505


@pytest.mark.parametrize(
    ("target", "label", "status"),
    [
        ("/livez", "/livez", 200),
        ("/healthz/exporters/nobody", "/healthz", 404),
        ("/flowrecords?proto=x", "/flowrecords", 404),
        ("/flowrecords", "/flowrecords", 200),
        ("/", "other", 404),
        ("/flowrecords/", "other", 404),
        ("//livez", "other", 404),
        ("", "other", 404),
        ("/" + "x" * 9000, "other", 404),
    ],
)
async def test_requests_are_counted_under_few_names(target: str, label: str, status: int) -> None:
    figures = FakeFigures(FLOWS)
    assert (await answer(figures, target)).status == status
    assert figures.requests == {(label, status): 1}


async def test_metrics_are_prometheus_text() -> None:
    answered = await answer(FakeFigures(), "/metrics")
    assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answered.headers["content-length"] == str(len(answered.body))
    assert answered.body == b"flowjoin_kernel_rows_total 1.0\n"


async def test_the_release_whose_keys_are_written_is_said() -> None:
    answered = await answer(FakeFigures(compatibility="antrea-2.3"), "/recordmetrics")
    assert answered.headers["flowjoin-compatibility"] == "antrea-2.3"
    assert answered.body == b"{}\n"
