from __future__ import annotations

import io
import json
from typing import cast

import pytest
import trio
from pipeline_fakes import schema_of

from flowjoin._cli.terminal_exporter import TerminalSettings, terminal_exporter_type
from flowjoin.api import FlowBatch, PluginContext

NAMES = (
    "flowEndSeconds",
    "protocolIdentifier",
    "sourceTransportPort",
    "destinationTransportPort",
    "packetTotalCount",
    "octetTotalCount",
    "reverseOctetTotalCount",
)
CONTEXT = cast(PluginContext, object())  # the exporter asks nothing of it


def batch_of(family: int, *, pod: str = "", protocol: int = 6, reverse: int = 7) -> FlowBatch:
    addresses = [f"sourceIPv{family}Address", f"destinationIPv{family}Address"]
    schema = schema_of(*NAMES, *addresses, "destinationPodNamespace", "destinationPodName", family=family)
    source, destination = ("10.0.0.1", "10.0.0.2") if family == 4 else ("2001:db8::1", "2001:db8::2")
    values = (1_700_000_000, protocol, 1234, 80, 1000, 2000, reverse, source, destination, "default", pod)
    return FlowBatch.from_rows(schema, [values])


async def written(batch: FlowBatch, form: str) -> str:
    out = io.StringIO()
    assert form in {"table", "json"}
    settings = TerminalSettings(out=out, form="json" if form == "json" else "table", on_closed=lambda _cause: None)
    async with terminal_exporter_type().open(settings, CONTEXT) as exporter:
        await exporter.export(batch)
    return out.getvalue()


async def test_people_read_a_line_a_flow() -> None:
    assert await written(batch_of(4, pod="web"), "table") == (
        "2023-11-14T22:13:20Z  tcp    10.0.0.1:1234 -> 10.0.0.2:80 (default/web)  1,000 packets, 2,000 octets, 7 back\n"
    )


async def test_ipv6_addresses_stand_in_brackets() -> None:
    line = await written(batch_of(6, reverse=0), "table")
    assert "[2001:db8::1]:1234 -> [2001:db8::2]:80  1,000 packets, 2,000 octets\n" in line


@pytest.mark.parametrize(("protocol", "name"), [(1, "icmp"), (58, "icmp6")])
async def test_what_has_no_ports_shows_none(protocol: int, name: str) -> None:
    assert f"  {name:<5}  10.0.0.1 -> 10.0.0.2  " in await written(batch_of(4, protocol=protocol), "table")


async def test_an_unnamed_protocol_is_a_number() -> None:
    assert "  47     10.0.0.1:1234 -> " in await written(batch_of(4, protocol=47), "table")


async def test_control_characters_never_reach_the_terminal() -> None:
    line = await written(batch_of(4, pod="\x1b[31mred"), "table")
    assert "(default/\\x1b[31mred)" in line


async def test_programs_read_json_lines() -> None:
    row = json.loads(await written(batch_of(4, pod="\x1b"), "json"))
    assert (row["sourceIPv4Address"], row["destinationPodName"], row["octetTotalCount"]) == ("10.0.0.1", "\x1b", 2000)


async def test_when_nobody_reads_the_run_is_ended_and_the_rows_are_not_settled() -> None:
    class Closed(io.StringIO):
        def write(self, _text: str, /) -> int:
            raise BrokenPipeError

    with trio.CancelScope() as scope:
        settings = TerminalSettings(out=Closed(), form="json", on_closed=lambda _cause: scope.cancel())
        async with terminal_exporter_type().open(settings, CONTEXT) as exporter:
            await exporter.export(batch_of(4))
    assert scope.cancelled_caught
