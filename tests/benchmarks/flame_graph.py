"""A flame graph of the steady state: ``python tests/benchmarks/flame_graph.py > docs/explanation/steady-state.svg``.

Needs ``perf``. What is profiled is the receiving half under 40,000 Messages a second with one record each. Frames of
Python's interpreter are one frame, for it does not say which function it runs; start-up is left out.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

WIDTH, ROW, LEAST = 1_200, 16, 0.4  # pixels
PYTHON = "Python"
KERNEL_OR_C = (
    "recvmmsg",
    "epoll",
    "mem",
    "malloc",
    "free",
    "realloc",
    "do_",
    "sys_",
    "__x64",
    "__sys",
    "udp",
    "entry_",
    "ep_",
    "sock",
    "_copy",
    "schedule",
)
INTERPRETER = ("do_call_core", "do_mktuple", "free_list_items", "freechildren")
COMPILED = re.compile(r"__pyx_.*?(?:_compiled|_recvmmsg)_(\d.*)")
NUMBER = re.compile(r"_?\d+")
RATE, SECONDS = 40_000.0, 15


@dataclass
class Frame:
    samples: int = 0
    below: dict[str, Frame] = field(default_factory=dict)


def stacks(lines: Iterable[str]) -> Iterable[list[str]]:
    """Function names of each sample, outermost first."""
    names: list[str] = []
    for line in [*lines, ""]:
        words = line.split(maxsplit=1)
        if len(words) == 2:
            names.append(_readable(words[1].strip()))
        elif names:
            found = names[::-1]
            if not any("Import" in name or "Pegen" in name for name in found):
                yield [name for at, name in enumerate(found) if not at or found[at - 1] != name]
            names = []


def _readable(name: str) -> str:
    name = name.removesuffix(" (inlined)")
    compiled = COMPILED.fullmatch(name)
    if compiled is not None:  # Cython gives lengths or numbers before parts of a name
        return "flowjoin: " + NUMBER.sub(".", compiled[1]).strip(".")
    if name.startswith(KERNEL_OR_C) and name not in INTERPRETER:
        return name
    return PYTHON


def tree(samples: Iterable[list[str]]) -> Frame:
    """All samples in one tree."""
    top = Frame()
    for names in samples:
        at = top
        at.samples += 1
        for name in names:
            at = at.below.setdefault(name, Frame())
            at.samples += 1
    return top


def depth(frame: Frame) -> int:
    return 1 + max((depth(each) for each in frame.below.values()), default=0)


def drawn(frame: Frame, name: str, x: float, level: int, height: int, scale: float) -> Iterable[str]:
    width = frame.samples * scale
    if width < LEAST:
        return
    y = height - (level + 1) * ROW
    colour = f"hsl({20 + sum(name.encode()) % 35},80%,{62 + sum(name.encode()) % 12}%)" if level else "#ddd"
    label = html.escape(name)
    share = 100 * width / WIDTH
    yield (
        f'<g><title>{label}: {share:.1f} %</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" '
        f'fill="{colour}"/>'
    )
    if width > 40:
        yield f'<text x="{x + 3:.1f}" y="{y + 11}">{html.escape(name[: int(width / 6.5)])}</text>'
    yield "</g>"
    for below, each in sorted(frame.below.items()):
        yield from drawn(each, below, x, level + 1, height, scale)
        x += each.samples * scale


def graph(top: Frame, title: str) -> str:
    height = depth(top) * ROW + 30
    parts = drawn(top, f"all: {top.samples} samples", 0.0, 0, height - 5, WIDTH / max(top.samples, 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="monospace" '
        f'font-size="11"><text x="5" y="14">{html.escape(title)}</text>{"".join(parts)}</svg>\n'
    )


def record(data: str) -> None:
    """Profile the receiving half of flowjoin."""
    import receive_table

    traffic = receive_table.Traffic(is_ipv6=False, per_message=1)
    messages = [receive_table.message(receive_table.template_set(traffic.names))]
    end = 10
    while len(messages) < RATE * SECONDS:
        messages += traffic.messages(0, receive_table.FLOWS, end, (0, 1))
        end += 10
    command = ["perf", "record", "-o", data, "-F", "997", "--call-graph", "dwarf,16384", "--", sys.executable]
    with subprocess.Popen(
        [*command, receive_table.__file__, "--receive", "udp", "compiled"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        receive_table.send(int(process.stdout.readline()), messages, RATE)
        process.stdin.close()
        process.stdout.read()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        data = str(Path(directory) / "perf.data")
        record(data)
        script = ["perf", "script", "-i", data, "-F", "ip,sym"]
        with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            top = tree(stacks(process.stdout))
    title = f"flowjoin receiving {RATE:,.0f} Messages a second over UDP, one record each, of 4,800 flows"
    sys.stdout.write(graph(top, title))


if __name__ == "__main__":
    main()
