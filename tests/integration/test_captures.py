"""Captures that other projects published: counts, Templates and values agree with what they and tshark report.

The folder named by FLOWJOIN_CAPTURES has an INDEX.json and a folder for each case. The files are other people's
and no part of this repository.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flowjoin._cli.decode_lines import DecodeLines, Line
from flowjoin._collector.capture import CapturedMessage, open_capture
from flowjoin.wire.decoder import Decoder
from flowjoin.wire.registry import default_registry

FOLDER = os.environ.get("FLOWJOIN_CAPTURES")
REGISTRY = default_registry()


def cases(*files: str, ipfix_only: bool = True) -> list[Any]:
    """The cases that have one of ``files``; those of other protocols skip with the reason."""
    if FOLDER is None:
        return [pytest.param(None, marks=pytest.mark.skip(reason="FLOWJOIN_CAPTURES names no folder of captures"))]
    return [
        pytest.param(entry, id=entry["case"], marks=_skip_unless_ipfix(entry))
        for entry in json.loads((Path(FOLDER) / "INDEX.json").read_text())
        if (entry["versions"] == [10] or not ipfix_only)
        and (not files or any((folder_of(entry) / file).exists() for file in files))
    ]


def _skip_unless_ipfix(entry: dict[str, Any]) -> list[pytest.MarkDecorator]:
    versions = entry["versions"]
    if versions == [10]:
        return []
    told = f"version {versions[0]}" if versions else "no IPFIX"
    return [pytest.mark.skip(reason=f"{told}: not read yet")]


def folder_of(entry: dict[str, Any]) -> Path:
    assert FOLDER is not None
    return Path(FOLDER) / str(entry["case"])


def decoded(folder: Path) -> list[Line]:
    (path,) = [path for path in folder.iterdir() if path.suffix in {".pcap", ".ipfix"}]
    decoder = Decoder(REGISTRY)
    lines = DecodeLines()
    written: list[Line] = []
    with open_capture(path) as capture:
        for item in capture:
            assert isinstance(item, CapturedMessage), "all published captures are UDP or files"
            events = decoder.receive_message(item.payload, item.session, item.time)
            written.extend(lines.lines_of(item.session, events))
    return [*written, lines.counters()]


def records_of(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["type"] in {"record", "option_record"}]


def number_of(name: str) -> tuple[int, int]:
    """(enterprise, id) of an element as a line names it."""
    if "/" in name:
        enterprise, element_id = name.split("/")
        return int(enterprise), int(element_id)
    element = REGISTRY.by_name(name)
    return element.enterprise_number, element.element_id


def values_of(record: Line, name: str) -> list[Any]:
    return [value for known, value in record["elements"] if known == name]


def instant(text: str) -> datetime:
    """ISO 8601 with any precision, to the microsecond."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{(fraction or '0')[:6]:0<6}").replace(tzinfo=UTC)


# ---------------------------------------------------------------- counts and Templates: structure.json


def structure_sets(folder: Path) -> Iterator[dict[str, Any]]:
    for told in json.loads((folder / "structure.json").read_text()):
        yield from told.get("sets", [])


@pytest.mark.parametrize("entry", cases(ipfix_only=False))
def test_counts_are_those_of_the_index(entry: dict[str, Any]) -> None:
    counters = decoded(folder_of(entry))[-1]

    assert counters["records"] + counters["option_records"] == entry["records"]
    assert counters["sets_without_template"] == entry.get("sets_without_template", 0)
    told = json.loads((folder_of(entry) / "structure.json").read_text())
    assert counters["malformed_messages"] == sum(
        not 16 <= each["length"] <= each["bytes"] or any("error" in each_set for each_set in each["sets"])
        for each in told
    )
    assert counters["messages"] == sum(each["length"] >= 16 for each in told)


@pytest.mark.parametrize("entry", cases())
def test_templates_have_the_published_fields(entry: dict[str, Any]) -> None:
    folder = folder_of(entry)
    expected = [
        (told["id"], told["fields"])
        for each in structure_sets(folder)
        for told in each.get("templates", [])
        if "error" not in told
    ]

    found = []
    for line in decoded(folder):
        if line["type"] in {"template", "options_template"}:
            fields = []
            for name, length in line["fields"]:
                enterprise, element_id = number_of(name)
                where = f"{enterprise}/" if enterprise else ""
                fields.append(f"{where}{element_id}[{'v' if length == 65535 else length}]")
            found.append((line["template_id"], fields))
    assert found == expected


# ---------------------------------------------------------------- values: Logstash's expected.json


def is_logstash_value(name: str, expected: Any, record: Line) -> bool:
    found = values_of(record, name)
    if name == "systemInitTimeMilliseconds":  # the one time that Logstash leaves a number
        return any(round(instant(value).timestamp() * 1000) == expected for value in found)
    if isinstance(expected, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", expected):
        return any(instant(str(value)) == instant(expected) for value in found)
    if found:
        return expected in found
    # A vendor's element that our registry does not have: its octets must read as the value.
    octets = [bytes.fromhex(value) for name, value in record["elements"] if "/" in name]
    if isinstance(expected, int):
        return any(int.from_bytes(value, "big") == expected for value in octets)
    return any(value.rstrip(b"\0").decode("utf-8", "replace") == expected for value in octets)


@pytest.mark.parametrize("entry", cases("expected.json"))
def test_values_are_those_that_logstash_reports(entry: dict[str, Any]) -> None:
    path = folder_of(entry) / "expected.json"
    records = records_of(decoded(path.parent))
    expected = json.loads(path.read_text())
    assert len(records) == expected["expected_event_count"]
    for event in expected["json_events"]:
        elements = {name: value for name, value in event["netflow"].items() if name != "version"}
        best = max(records, key=lambda record: sum(is_logstash_value(*pair, record) for pair in elements.items()))
        assert [pair for pair in elements.items() if not is_logstash_value(*pair, best)] == []
        assert best["version"] == event["netflow"]["version"]


# ---------------------------------------------------------------- values: Telegraf's expected.out

TELEGRAF_NAMES = {
    "src": ("sourceIPv4Address", "sourceIPv6Address"),
    "dst": ("destinationIPv4Address", "destinationIPv6Address"),
    "src_port": ("sourceTransportPort",),
    "dst_port": ("destinationTransportPort",),
    "in_total_bytes": ("octetTotalCount",),
    "in_total_packets": ("packetTotalCount",),
    "in_bytes": ("octetDeltaCount",),
    "in_packets": ("packetDeltaCount",),
    "flow_start_ms": ("flowStartMilliseconds",),
    "flow_end_ms": ("flowEndMilliseconds",),
    "flow_start": ("flowStartSeconds",),
    "flow_end": ("flowEndSeconds",),
    "first_switched": ("flowStartSysUpTime",),
    "last_switched": ("flowEndSysUpTime",),
    "in_snmp": ("ingressInterface",),
    "out_snmp": ("egressInterface",),
    "next_hop": ("ipNextHopIPv4Address",),
    "in_src_mac": ("sourceMacAddress",),
    "out_dst_mac": ("postDestinationMacAddress",),
    "vlan_src": ("vlanId",),
    "src_tos": ("ipClassOfService",),
    "dst_tos": ("postIpClassOfService",),
}


def telegraf_fields(line: str) -> dict[str, str]:
    _, fields, _ = re.fullmatch(r"(\S+) (.*) (\d+)", line).groups()  # type: ignore[union-attr]
    return dict(re.findall(r'(\w+)=("[^"]*"|[^,]+)(?:,|$)', fields))


def telegraf_names(name: str) -> tuple[str, ...]:
    """What an element's line calls it; nothing for what Telegraf makes a word of (protocols, TCP flags)."""
    if numbered := re.fullmatch(r"type_(\d+)_(rev_)?(\d+)", name):
        enterprise, reverse, element_id = numbered.groups()
        # Telegraf leaves the enterprise bit in some ids, and takes the bit that RFC 5103 section 6.1 sets for
        # the reverse direction out of others.
        number = int(enterprise), int(element_id) & 0x7FFF | (0x4000 if reverse else 0)
        element = REGISTRY.get(*number)
        return (f"{number[0]}/{number[1]}" if element is None else element.name,)
    return TELEGRAF_NAMES.get(name, ())


def is_telegraf_value(name: str, expected: str, record: Line) -> bool:
    found = [value for each in telegraf_names(name) for value in values_of(record, each)]
    if expected.startswith('"0x'):
        wanted = expected[3:-1]
        return any(value == wanted or (isinstance(value, int) and value == int(wanted, 16)) for value in found)
    if expected.startswith('"'):
        return expected[1:-1] in found
    number = int(expected.rstrip("u"))
    if name.startswith("flow_"):
        scale = 1000 if name.endswith("_ms") else 1
        return any(round(instant(value).timestamp() * scale) == number for value in found)
    return number in found


@pytest.mark.parametrize("entry", cases("expected.out"))
def test_values_are_those_that_telegraf_reports(entry: dict[str, Any]) -> None:
    path = folder_of(entry) / "expected.out"
    records = records_of(decoded(path.parent))
    expected = [telegraf_fields(line) for line in path.read_text().splitlines()]
    assert len(records) == len(expected)
    for record, fields in zip(records, expected, strict=True):
        compared = {name: value for name, value in fields.items() if telegraf_names(name)}
        assert len(compared) >= 3
        assert [pair for pair in compared.items() if not is_telegraf_value(*pair, record)] == []


# ---------------------------------------------------------------- values: tshark's JSON

TSHARK_NAMES = {
    "cflow.srcaddr": "sourceIPv4Address",
    "cflow.dstaddr": "destinationIPv4Address",
    "cflow.srcaddrv6": "sourceIPv6Address",
    "cflow.dstaddrv6": "destinationIPv6Address",
    "cflow.srcport": "sourceTransportPort",
    "cflow.dstport": "destinationTransportPort",
    "cflow.protocol": "protocolIdentifier",
    "cflow.octets": "octetDeltaCount",
    "cflow.packets": "packetDeltaCount",
    "cflow.permanent_octets": "octetTotalCount",
    "cflow.permanent_packets": "packetTotalCount",
    "cflow.inputint": "ingressInterface",
    "cflow.outputint": "egressInterface",
    "cflow.nexthop": "ipNextHopIPv4Address",
    "cflow.tcpflags": "tcpControlBits",
    "cflow.tos": "ipClassOfService",
    "cflow.flow_end_reason": "flowEndReason",
    "cflow.icmp_type_code_ipv4": "icmpTypeCodeIPv4",
    "cflow.ip_version": "ipVersion",
    "cflow.srcmac": "sourceMacAddress",
    "cflow.if_name": "interfaceName",
    "cflow.sampling_packet_interval": "samplingPacketInterval",
    "cflow.flow_id": "flowId",
}


class Pairs(list[tuple[str, Any]]):
    """A JSON object of tshark's, in which names repeat."""


def tshark_flows(node: Any, name: str = "") -> Iterator[Pairs]:
    if isinstance(node, Pairs):
        if re.fullmatch(r"Flow \d+", name):
            yield node
            return
        for key, value in node:
            yield from tshark_flows(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from tshark_flows(value)


def is_tshark_value(name: str, expected: str, record: Line) -> bool:
    # tshark shows an element and its reverse (RFC 5103) under one name.
    found = values_of(record, name) + values_of(record, f"reverse{name[0].upper()}{name[1:]}")
    return expected in found or (expected[:1].isdigit() and _number(expected) in found)


def _number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


@pytest.mark.parametrize("entry", cases())
def test_values_are_those_that_tshark_reports(entry: dict[str, Any]) -> None:
    (path,) = folder_of(entry).glob("tshark*.json")
    flows = list(tshark_flows(json.loads(path.read_text(), object_pairs_hook=Pairs)))
    records = records_of(decoded(path.parent))
    if path.stem == "tshark":
        assert len(flows) == len(records)
    else:
        assert flows
    for record, flow in zip(records, flows, strict=False):  # of the longest file tshark's first Messages are kept
        compared = [(TSHARK_NAMES[name], value) for name, value in flow if name in TSHARK_NAMES]
        assert compared or record["type"] == "option_record"
        assert [pair for pair in compared if not is_tshark_value(*pair, record)] == []
