from __future__ import annotations

from collections import deque
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pipeline_fakes import batch_of

from flowjoin._pipeline.spool.index import Batch
from flowjoin._pipeline.spool.segments import SegmentFiles
from flowjoin._pipeline.spool.shelf import Segment, Shelf

STEPS = ("spool", "memory", "take", "older", "oldest", "shrink", "grow", "settled", "lose")


def spooled(number: int, rows: int) -> Segment:
    files = SegmentFiles(Path("nowhere"), number)
    segment = Segment(number, files, "here", "audit", octets=10 * rows, last_at=float(number), batches=None)
    segment.rows = rows
    return segment


@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), max_size=30))
def test_the_sums_are_those_of_the_segments_whatever_happened(steps: list[tuple[str, int]]) -> None:
    shelf = Shelf()
    number = 0
    for step, amount in steps:
        first = shelf.first()
        match step:
            case "spool":
                number += 1
                shelf.append(spooled(number, amount))
            case "memory":
                number += 1
                segment = Segment(number, None, "here", "audit", last_at=float(number), batches=None)
                segment.batches = deque()
                shelf.append(segment)
                for sequence in range(amount):
                    segment.keep(batch_of(*range(sequence + 1)), 1, sequence)
            case "take" if first is not None:
                if first.batches is None:
                    first.batches = deque([Batch(0, 1, 1, first.rows, ())])
                shelf.take(shelf.peek(first))
            case "older":
                shelf.give_up_older(number - amount)
            case "oldest":
                shelf.give_up_oldest()
            case "shrink":
                shelf.give_up_memory(amount * 100)
            case "grow" if first is not None:
                first.octets += amount
            case "lose" if first is not None:
                first.rows = 0
                first.batches = deque()
            case "settled":
                shelf.leave_settled(None, None)
        segments = list(shelf)
        assert shelf.rows == sum(segment.rows for segment in segments)
        assert shelf.spooled_rows == sum(segment.rows for segment in segments if segment.files is not None)
        assert shelf.octets == sum(segment.octets for segment in segments if segment.files is not None)
        assert shelf.memory_octets == sum(segment.octets for segment in segments if segment.files is None)


def test_a_segment_that_left_counts_nowhere() -> None:
    shelf = Shelf()
    segment = spooled(1, 4)
    shelf.append(segment)
    assert shelf.give_up_oldest() is segment
    segment.rows = 9
    assert (shelf.rows, shelf.octets) == (0, 0)
