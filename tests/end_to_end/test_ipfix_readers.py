"""What collectors read of every Template that flowjoin-ipfix sends: the table of its reference page, made here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from agent_traffic import agent_messages
from ipfix_collector import Collector
from kernel_harness import Harness
from real_programs import nfacctd_reads, nfdump_reads, tshark_reads

from flowjoin._generator.config import TrafficConfig
from flowjoin.api import AddressFamily, FlowBatch
from flowjoin.testing import RecordingContext, numbered_flows

flowjoin_ipfix = pytest.importorskip("flowjoin_ipfix", reason="flowjoin-ipfix is not installed")

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "exporters" / "ipfix.md"
KINDS = ("aggregator", "proxy", "agent")
RELEASES = ("antrea-2.7", "antrea-2.3")
FLOWS = 20
UNNAMED = {"cflow.enterprise_private_entry", "cflow.string_len_short"}


@dataclass(frozen=True)
class Sent:
    """One Template's flows.

    Attributes:
        elements: of the Template.
        domain: the observation domain that tells them from the others.
    """

    kind: str
    release: str
    batch: FlowBatch
    elements: int
    domain: int
    messages: list[bytes]

    def ways(self) -> set[tuple[Any, ...]]:
        """Addresses, port, packets and octets of each direction."""
        batch = self.batch
        rows = range(len(batch))
        source, destination = batch.address_text("source"), batch.address_text("destination")
        port = batch.column("sourceTransportPort")
        packets, octets = batch.column("packetDeltaCount"), batch.column("octetDeltaCount")
        back = batch.column("reversePacketDeltaCount"), batch.column("reverseOctetDeltaCount")
        forth = {(source[row], destination[row], port[row], packets[row], octets[row]) for row in rows}
        return forth | {(destination[row], source[row], port[row], back[0][row], back[1][row]) for row in rows}


async def messages_of(nursery: trio.Nursery, batches: list[FlowBatch], release: str, **keys: Any) -> Collector:
    collector = Collector(protocol=keys.get("protocol", "tcp"))
    await nursery.start(collector.run)
    config = flowjoin_ipfix.IpfixConfig(address=collector.address, **keys)
    [exporter_type] = flowjoin_ipfix.flowjoin_exporter_types()
    async with exporter_type.open(config, RecordingContext(name="ipfix", compatibility=release)) as exporter:
        for batch in batches:
            await exporter.export(batch)
        rows = sum(map(len, batches))
        with trio.fail_after(60):
            while await collector.count() < rows:  # noqa: ASYNC110 - counting reads
                await trio.sleep(0.01)
    return collector


@pytest.fixture
async def sent(nursery: trio.Nursery) -> list[Sent]:
    everything = []
    for kind in KINDS:
        for release in RELEASES:
            for family in AddressFamily:
                number = len(everything)
                batch = numbered_flows(FLOWS, family, first=1000 * number)
                keys = {"protocol": "udp", "template": kind, "observation_domain_id": number + 1}
                collector = await messages_of(nursery, [batch], release, **keys)
                [session] = collector.sessions
                elements = len(session.records[0])
                everything.append(Sent(kind, release, batch, elements, number + 1, session.messages))
    return everything


def lines_of(sent: list[Sent], cell: Any) -> set[str]:
    """A line of the page's table for each Template, both families being read alike."""
    cells: dict[tuple[str, str], set[str]] = {}
    for each in sent:
        cells.setdefault((each.kind, each.release), set()).add(cell(each))
    assert all(len(alternatives) == 1 for alternatives in cells.values()), cells
    return {f"| `{kind}` | `{release}` | {cells[kind, release].pop()} |" for kind, release in cells}


def table(program: str) -> set[str]:
    """The table's lines with one program's column."""
    page = PAGE.read_text(encoding="utf-8")
    section = page[page.index("## What collectors read") : page.index("## Faults")]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    column = rows[0].index(program)
    return {f"| {row[0]} | {row[1]} | {row[column]} |" for row in rows[2:]}


async def test_nfdump(require_program: Any, tmp_path: Path, sent: list[Sent]) -> None:
    datagrams = [message for each in sent for message in each.messages]
    folder = tmp_path / "nfcapd"
    folder.mkdir()
    programs = require_program("nfcapd"), require_program("nfdump")
    ways = await trio.to_thread.run_sync(nfdump_reads, *programs, folder, datagrams)
    read = {
        (way.source, way.destination, max(way.source_port, way.destination_port) if way.source_port == 5201 else
         way.source_port, way.packets, way.octets)
        for way in ways
    }  # fmt: skip
    assert len(ways) == 2 * FLOWS * len(sent)
    times = "no times" if {way.start for way in ways} == {0} else "times"

    def cell(each: Sent) -> str:
        # The way back has the client's port as its destination's.
        client = {row[:2]: row[2] for row in each.ways()}
        assert {(*row[:2], client[row[:2]], *row[3:]) for row in read if row[:2] in client} == each.ways()
        return f"every flow, both directions, {times}"

    assert lines_of(sent, cell) == table("nfdump 1.7.1")


async def test_nfacctd(require_program: Any, tmp_path: Path, sent: list[Sent]) -> None:
    datagrams = [message for each in sent for message in each.messages]
    rows = await trio.to_thread.run_sync(nfacctd_reads, require_program("nfacctd"), tmp_path, datagrams)
    assert len(rows) == FLOWS * len(sent)
    read = {(row["ip_src"], row["ip_dst"], row["port_src"], row["packets"], row["bytes"]) for row in rows}

    def cell(each: Sent) -> str:
        mine = read & each.ways()
        assert len(mine) == FLOWS
        return "every flow, forward"

    assert lines_of(sent, cell) == table("nfacctd 1.7.7")


async def test_tshark(require_program: Any, tmp_path: Path, sent: list[Sent]) -> None:
    datagrams = [message for each in sent for message in each.messages]
    records = await trio.to_thread.run_sync(tshark_reads, require_program("tshark"), tmp_path, datagrams)
    assert len(records) == FLOWS * len(sent)

    def cell(each: Sent) -> str:
        mine = records[FLOWS * (each.domain - 1) : FLOWS * each.domain]
        ports = [int.from_bytes(record["cflow.srcport"], "big") for record in mine]
        assert ports == each.batch.column("sourceTransportPort").tolist()
        (named,) = {len(record.keys() - UNNAMED) for record in mine}
        return f"every flow, {named} of {each.elements} elements by name"

    assert lines_of(sent, cell) == table("tshark 4.0")


@pytest.mark.parametrize("release", RELEASES)
async def test_flowjoins_aggregator_joins_what_came_through_an_exporter_as_it_joins_what_agents_send(
    nursery: trio.Nursery, release: str
) -> None:
    """Agents' records into an aggregator, or through Proxy mode and ``template: agent`` into another: one result."""
    # Release 2.3 sends no proxySnat… elements, by which the halves of a flow from outside the cluster are found.
    external = 0.2 if release == "antrea-2.7" else 0.0
    traffic = list(agent_messages(TrafficConfig(flows=150, seed=11, external_share=external)))
    direct, proxy, behind = Harness(), Harness(is_proxy=True, form="python"), Harness()
    batches = []
    for message, session in traffic:
        direct.kernel.ingest([message], [session], 0.0)
        proxy.kernel.ingest([message], [session], 0.0)
        batches += proxy.expire()
    together = [FlowBatch.concatenate(same) for same in by_schema(batches)]
    collector = await messages_of(nursery, together, release, template="agent")
    [session] = collector.sessions
    for message in session.messages:
        behind.kernel.ingest([message], [session.transport], 0.0)
    carried = set(session.records[0]) | set(session.records[-1])
    carried -= {"httpVals"}  # release 2.3: an empty one is merged into an empty object, an absent one is not
    expected, found = flows_of(direct, carried), flows_of(behind, carried)
    assert len(expected) > 100
    assert found == expected


def by_schema(batches: list[FlowBatch]) -> list[list[FlowBatch]]:
    found: dict[Any, list[FlowBatch]] = {}
    for batch in batches:
        found.setdefault(batch.schema, []).append(batch)
    return list(found.values())


def flows_of(harness: Harness, carried: set[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Joined flows by their key, without what an agent's Template does not carry."""
    computed = ("FromSourceNode", "FromDestinationNode", "hroughput", "flowDirection")
    flows = {}
    for row in harness.stored():
        ends = tuple(value for name, value in row.items() if name.endswith("Address") and name[:4] in ("sour", "dest"))
        key = (*ends, row["sourceTransportPort"], row["destinationTransportPort"], row["protocolIdentifier"])
        assert key not in flows
        flows[key] = {
            name: value for name, value in row.items() if name in carried or any(part in name for part in computed)
        }
    return flows
