"""Tables that are read as text: a file of the kernel, and the output of Open vSwitch's tool."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import trio

from flowjoin_conntrack._dumper import Portion, read_number
from flowjoin_conntrack._text_rows import ParseLine, parse_ovs_line, parse_proc_line, rows_of

__all__ = ["OvsDumper", "ProcDumper", "open_ovs"]

_PIECE: Final = 32 * 1024  # some hundred lines: a few milliseconds
_LONGEST_LINE: Final = 1024 * 1024
_LONGEST_COMPLAINT: Final = 300
_KILL_SECONDS: Final = 5.0
_NO_COUNTERS: Final = b"netdev@"  # data paths in user space


class ProcDumper:
    """``/proc/net/nf_conntrack``; needs root."""

    has_counters = True

    def __init__(self, zones: tuple[int, ...], path: Path = Path("/proc/net/nf_conntrack")) -> None:
        self._zones = frozenset(zones)
        self._path = path

    async def dump(self) -> AsyncGenerator[Portion, None]:
        async with aclosing(_portions(_file(self._path), parse_proc_line, self._zones)) as portions:
            async for portion in portions:
                yield portion

    async def max_connections(self) -> int:
        await trio.lowlevel.checkpoint()
        return read_number("nf_conntrack_max")

    async def count(self) -> int:
        await trio.lowlevel.checkpoint()
        return read_number("nf_conntrack_count")


class OvsDumper:
    """The table of Open vSwitch's data path, by ``ovs-appctl``.

    Attributes:
        has_counters: false for a data path in user space, which counts nothing.
    """

    def __init__(self, zones: tuple[int, ...], command: tuple[str, ...], *, has_counters: bool) -> None:
        self._zones = frozenset(zones)
        self._command = command
        self.has_counters = has_counters

    async def dump(self) -> AsyncGenerator[Portion, None]:
        pieces = _program((*self._command, "dpctl/dump-conntrack", "-m", "-s"))
        async with aclosing(_portions(pieces, parse_ovs_line, self._zones)) as portions:
            async for portion in portions:
                yield portion

    async def max_connections(self) -> int:
        try:
            return int(b"".join([piece async for piece in _program((*self._command, "dpctl/ct-get-maxconns"))]))
        except (OSError, ValueError):  # not told by every data path
            return 0

    async def count(self) -> int:
        await trio.lowlevel.checkpoint()
        return 0  # the dump itself gives them all


async def open_ovs(zones: tuple[int, ...], command: tuple[str, ...]) -> OvsDumper:
    """Ask which data path there is.

    Raises:
        OSError: no such program, or Open vSwitch does not run.
    """
    paths = b"".join([piece async for piece in _program((*command, "dpctl/dump-dps"))])
    return OvsDumper(zones, command, has_counters=_NO_COUNTERS not in paths)


async def _portions(
    pieces: AsyncGenerator[bytes, None], parse: ParseLine, zones: frozenset[int]
) -> AsyncGenerator[Portion, None]:
    rest = b""
    async with aclosing(pieces):
        async for piece in pieces:
            whole, is_line, rest = (rest + piece).rpartition(b"\n")
            if not is_line and len(rest) > _LONGEST_LINE:
                raise OSError(f"a line of more than {_LONGEST_LINE} octets")
            if is_line:
                yield Portion(*rows_of(whole, parse, zones))
                await trio.lowlevel.checkpoint()
    if rest:
        yield Portion(*rows_of(rest, parse, zones))


async def _file(path: Path) -> AsyncGenerator[bytes, None]:
    async with await trio.open_file(path, "rb") as file:
        while piece := await file.read(_PIECE):
            yield piece


async def _program(command: tuple[str, ...]) -> AsyncGenerator[bytes, None]:
    """What a program prints.

    Raises:
        OSError: it cannot be started, or ends with an error; what it complained of is in the sentence.
    """
    with tempfile.TemporaryFile() as complaints:
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints
        )
        assert process.stdout is not None
        try:
            async with process.stdout:
                while piece := await process.stdout.receive_some(_PIECE):
                    yield bytes(piece)
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                with trio.move_on_after(_KILL_SECONDS, shield=True):
                    await process.wait()
        if process.returncode:
            complaints.seek(0)
            complaint = complaints.read(_LONGEST_COMPLAINT).decode("utf-8", "replace").strip()
            raise OSError(f"{command[0]} ended with {process.returncode}: {complaint or 'it says nothing'}")
