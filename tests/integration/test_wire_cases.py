"""Every IPFIX case of other systems' bug reports, byte for byte, gives what it should."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from flowjoin._model.errors import DecodeError
from flowjoin._model.reasons import Reason
from flowjoin._model.transport_session import TransportSession
from flowjoin.wire import (
    NEED_DATA,
    DataSetReceived,
    Decoder,
    Event,
    MalformedMessage,
    MalformedTemplate,
    MessageFramer,
    SequenceGap,
    UndecodableSet,
    default_registry,
    json_value,
)

CASES = json.loads((Path(__file__).parents[1] / "data" / "wire-cases.json").read_text(encoding="utf-8"))
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
# What a case expects beyond its octets in step; the counts of its records hold all the same.
OF_LATER_STAGES = {
    "subtemplatemultilist": "the content of RFC 6313 lists is given as octets",
    "time-delta-micros": "elements 158 and 159 are offsets, from which a flow's start and end are made",
    "type-info-options": "names told by RFC 5610 options are not learnt",
    "icmp-code-in-dst-port": "NetFlow, which the decoder does not read yet",
    "sampling-by-sampler-id": "sampling rates are joined to flows by a later stage",
    "sampling-in-data": "sampling rates are joined to flows by a later stage",
    "sampling-other-port": "sampling rates are joined to flows by a later stage",
}


def is_other_version(case: dict[str, Any]) -> bool:
    return any(len(message["hex"]) >= 32 and message["hex"][:4] in ("0005", "0009") for message in case["messages"])


@dataclass
class Outcome:
    records: list[list[object]] = field(default_factory=list)
    option_records: list[list[object]] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case DataSetReceived(template=template, records=records):
                    rows = self.option_records if template.is_options else self.records
                    elements = [field.element for field in template.fields]
                    for record in records:
                        assert len(record) == len(elements)
                        rows.append([json_value(*pair) for pair in zip(elements, record, strict=True)])
                case UndecodableSet(reason=Reason.TEMPLATE_UNKNOWN | Reason.HELD_LIMIT):
                    self.counters["sets_without_template"] += 1
                case MalformedMessage():
                    self.counters["malformed_messages"] += 1
                case MalformedTemplate():
                    self.counters["malformed_templates"] += 1
                case SequenceGap(lost=lost):
                    self.counters["sequence_lost"] += lost

    @property
    def values(self) -> list[list[object]]:
        return self.records + self.option_records


def session_of(case: dict[str, Any], source: str) -> TransportSession:
    peer, port = source.rsplit(":", 1)
    return TransportSession(protocol=case["transport"], peer=peer, peer_port=int(port))


def run_datagrams(case: dict[str, Any]) -> Outcome:
    decoder, outcome = Decoder(default_registry()), Outcome()
    for message in case["messages"]:
        data = bytes.fromhex(message["hex"])
        outcome.take(decoder.receive_message(data, session_of(case, message["src"]), 0.0))
    return outcome


def run_stream(case: dict[str, Any], step: int) -> Outcome:
    decoder, outcome = Decoder(default_registry()), Outcome()
    [source] = {message["src"] for message in case["messages"]}
    stream = b"".join(bytes.fromhex(message["hex"]) for message in case["messages"])
    framer = MessageFramer()
    try:
        for at in range(0, len(stream), step):
            framer.receive_data(stream[at : at + step])
            while (message := framer.next_message()) is not NEED_DATA:
                outcome.take(decoder.receive_message(message, session_of(case, source), 0.0))
    except DecodeError:
        outcome.counters["malformed_messages"] += 1
    return outcome


def comparable(value: object) -> object:
    if isinstance(value, str) and INSTANT.fullmatch(value):
        return datetime.fromisoformat(value)
    return value


def check_counts(expect: dict[str, Any], outcome: Outcome) -> None:
    if "records" in expect:
        assert len(outcome.records) == expect["records"]
    if "records_min" in expect:
        assert expect["records_min"] <= len(outcome.records) <= expect["records_max"]
    if "option_records" in expect:
        assert len(outcome.option_records) == expect["option_records"]
    for name, count in expect.get("counters", {}).items():
        assert outcome.counters[name] == count, name


def outcomes(case: dict[str, Any]) -> Iterator[Outcome]:
    if case["transport"] == "udp":
        yield run_datagrams(case)
        return
    for step in (1 << 20, 1500, 1):  # a stream cut anywhere
        yield run_stream(case, step)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_case_gives_its_records_and_counters(case: dict[str, Any]) -> None:
    if is_other_version(case):
        pytest.skip("NetFlow v9 or v5, which the decoder does not read yet")
    begin = time.process_time()
    for outcome in outcomes(case):
        check_counts(case["expect"], outcome)
    assert time.process_time() - begin < case["expect"].get("max_seconds", 5)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if not {"values", "values_last"}.isdisjoint(case["expect"])],
    ids=lambda case: case["id"],
)
def test_the_case_gives_its_values(case: dict[str, Any]) -> None:
    if is_other_version(case):
        pytest.skip("NetFlow v9 or v5, which the decoder does not read yet")
    if case["id"] in OF_LATER_STAGES:
        pytest.skip(OF_LATER_STAGES[case["id"]])
    expect = case["expect"]
    for outcome in outcomes(case):
        if "values" in expect:
            given, wanted = outcome.values, expect["values"]
        else:
            given, wanted = outcome.values[-1:], [expect["values_last"]]
        assert [list(map(comparable, row)) for row in given] == [list(map(comparable, row)) for row in wanted]


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if not {"sampling", "values_named"}.isdisjoint(case["expect"])],
    ids=lambda case: case["id"],
)
def test_the_case_gives_what_later_stages_make_of_it(case: dict[str, Any]) -> None:
    pytest.skip(OF_LATER_STAGES.get(case["id"], "NetFlow v9 or v5, which the decoder does not read yet"))


def test_the_two_messages_of_a_tcp_case_that_are_whole_come_before_the_streams_end() -> None:
    [case] = [case for case in CASES if case["id"] == "tcp-garbage-version"]
    for outcome in outcomes(case):
        assert outcome.counters == {"malformed_messages": 1}
