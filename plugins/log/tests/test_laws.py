"""What must hold for any input: texts come back as they were, lines are counted out as they were counted in."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from flowjoin.testing import standard_flow
from flowjoin_log import LogConfig
from flowjoin_log._columns import columns_of
from flowjoin_log._exporter import make_writer
from flowjoin_log._file import RotatingFile
from flowjoin_log._table import TableWriter

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def rendered(text: str, **keys: object) -> str:
    writer = make_writer(
        LogConfig(path="x", **keys),  # type: ignore[arg-type]  # LogConfig's own keys
        compatibility="antrea-2.7",
        terminal_width=None,
        colours=False,
    )
    batch = standard_flow(sourcePodName=text, sourcePodNamespace=text, destinationPodName=text, egressName=text)
    return b"".join(writer.render(batch)).decode()


@given(TEXTS)
def test_any_text_is_read_back_from_rfc_4180(text: str) -> None:
    (row,) = csv.reader(io.StringIO(rendered(text), newline=""))
    by_column = dict(zip(columns_of("antrea-2.7"), row, strict=True))
    assert by_column["sourcePodName"] == by_column["egressName"] == text


@given(TEXTS)
def test_any_text_is_read_back_from_json_lines(text: str) -> None:
    line = rendered(text, format="jsonLines")
    assert line.count("\n") == 1
    assert json.loads(line)["sourcePodName"] == text


@given(TEXTS)
def test_any_text_is_one_line_of_antreas_csv_and_one_of_the_table(text: str) -> None:
    assert len(rendered(text, csv_quoting="antrea").split("\n")) == 2
    table = b"".join(TableWriter(width=120, colours=False).render(standard_flow(sourcePodName=text))).decode()
    heading, line, end = table.split("\n")
    assert end == ""
    assert (heading + line).isprintable()
    assert len(line) <= 120


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 6)),
        st.tuples(st.just("full"), st.integers(0, 60)),
        st.tuples(st.sampled_from(["move", "replace", "reopen"]), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(5, 60))
def test_every_line_is_in_some_file_once(steps: list[tuple[str, int]], max_octets: int) -> None:
    written = number = 0
    clock = iter(range(1_764_511_509, 2_000_000_000))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "flows.log"
        file = RotatingFile(path, max_octets=max_octets, header=b"", clock=lambda: float(next(clock)))
        for step, amount in steps:
            number += 1
            if step == "write":
                file.write([b"%09d\n" % line for line in range(written, written + amount)])
                written += amount
            elif step == "full":
                room = amount

                def write(descriptor: int, data: memoryview, write: object = os.write) -> int:
                    nonlocal room
                    if not room:
                        raise OSError(errno.ENOSPC, "No space left on device")
                    taken: int = write(descriptor, data[:room])  # type: ignore[operator]  # os.write
                    room -= taken
                    return taken

                with mock.patch.object(os, "write", write), suppress(OSError):
                    file.write([b"%09d\n" % line for line in range(written, written + 3)])
                    written += 3
            elif step == "reopen":
                file.close()
            elif path.exists():
                path.rename(path.with_name(f"moved-{number}"))
                if step == "replace":
                    path.touch()
        file.close()
        lines = b"".join(each.read_bytes() for each in Path(name).iterdir()).splitlines()
    assert sorted(lines) == [b"%09d" % line for line in range(written)]
