from __future__ import annotations

import pytest

from flowjoin._kernel.plain_times import PlainTimes
from flowjoin._model.transport_session import ObservationDomainId
from flowjoin.wire.events import MessageHeader

EXPORTED = 1_700_000_000
HEADER = MessageHeader(
    version=10, length=0, export_time=EXPORTED, sequence_number=0, observation_domain_id=ObservationDomainId(0)
)
MS = EXPORTED * 1000


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"flowStartSeconds": EXPORTED - 3, "flowEndSeconds": EXPORTED - 1}, (MS - 3000, MS - 1000)),
        ({"flowStartMilliseconds": MS - 5, "flowEndMilliseconds": MS - 1}, (MS - 5, MS - 1)),
        ({"flowStartMicroseconds": MS * 1000 - 1, "flowEndMicroseconds": MS * 1000}, (MS - 1, MS)),
        ({"flowStartNanoseconds": MS * 10**6 - 1, "flowEndNanoseconds": MS * 10**6 + 1}, (MS - 1, MS)),
        # RFC 5102: offsets before the export time
        ({"flowStartDeltaMicroseconds": 3_000_000, "flowEndDeltaMicroseconds": 1_000_000}, (MS - 3000, MS - 1000)),
        ({"flowStartDeltaMicroseconds": 1, "flowEndDeltaMicroseconds": 0}, (MS - 1, MS)),
        (
            {"systemInitTimeMilliseconds": MS - 50_000, "flowStartSysUpTime": 10_000, "flowEndSysUpTime": 20_000},
            (MS - 40_000, MS - 30_000),
        ),
        # the one that can tell the most is believed
        ({"flowStartSeconds": 1, "flowStartMilliseconds": MS - 7, "flowEndMilliseconds": MS}, (MS - 7, MS)),
        # 0 tells nothing
        ({"flowStartMilliseconds": 0, "flowStartSeconds": EXPORTED - 9, "flowEndSeconds": EXPORTED}, (MS - 9000, MS)),
        # uptimes without the time that they count from
        ({"flowStartSysUpTime": 10_000, "flowEndSysUpTime": 20_000}, (MS, MS)),
        ({}, (MS, MS)),
        ({"flowStartSeconds": EXPORTED - 3}, (MS - 3000, MS)),
        ({"flowStartSeconds": EXPORTED + 3}, (MS + 3000, MS + 3000)),
        ({"flowEndSeconds": EXPORTED - 3}, (MS - 3000, MS - 3000)),
        ({"flowEndSeconds": EXPORTED + 3}, (MS, MS + 3000)),
    ],
)
def test_the_best_elements_tell_start_and_end(values: dict[str, int], expected: tuple[int, int]) -> None:
    times = PlainTimes({name: at for at, name in enumerate(values)})
    assert times.read(tuple(values.values()), HEADER) == (*expected, False)


def test_uptimes_count_from_what_an_options_record_told_unless_the_record_tells_itself() -> None:
    uptimes = {"flowStartSysUpTime": 0, "flowEndSysUpTime": 1}
    assert PlainTimes(uptimes).read((10_000, 20_000), HEADER, MS - 50_000) == (MS - 40_000, MS - 30_000, False)
    with_own = PlainTimes(uptimes | {"systemInitTimeMilliseconds": 2})
    assert with_own.read((10_000, 20_000, MS - 60_000), HEADER, MS - 50_000) == (MS - 50_000, MS - 40_000, False)
    assert with_own.read((10_000, 20_000, 0), HEADER, MS - 50_000) == (
        MS - 40_000,
        MS - 30_000,
        False,
    )  # 0 says nothing


def test_an_end_before_the_start_is_the_start_too() -> None:
    times = PlainTimes({"flowStartMilliseconds": 0, "flowEndMilliseconds": 1})
    assert times.read((MS, MS - 5), HEADER) == (MS - 5, MS - 5, True)


def test_what_no_element_tells_is_named() -> None:
    assert PlainTimes({}).absent == ("flowStartMilliseconds", "flowEndMilliseconds")
    assert PlainTimes({"flowEndSysUpTime": 0}).absent == ("flowStartMilliseconds", "flowEndMilliseconds")
    assert PlainTimes({"flowEndSysUpTime": 0}).absent_with_init_time == ("flowStartMilliseconds",)
    assert PlainTimes({}).absent_with_init_time == ("flowStartMilliseconds", "flowEndMilliseconds")
    assert PlainTimes({"flowEndDeltaMicroseconds": 0}).absent == ("flowStartMilliseconds",)


@pytest.mark.parametrize("value", [2**64 - 1, 2**63])
def test_no_time_leaves_64_bits(value: int) -> None:
    times = PlainTimes({"flowStartMilliseconds": 0, "flowEndSeconds": 1})
    start, end, _ = times.read((value, 2**32 - 1), HEADER)
    assert 0 <= start <= end < 2**64
    times = PlainTimes({"systemInitTimeMilliseconds": 0, "flowEndSysUpTime": 1})
    told = times.end((value, 2**32 - 1), HEADER)
    assert told is not None
    assert told < 2**64
