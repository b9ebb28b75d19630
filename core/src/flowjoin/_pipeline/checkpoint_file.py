"""The checkpoint's file: a line that names the format, then frames, each compressed and with a checksum.

The first frame says what flows consist of, the last what was so when all was written; between them are the kernel's
blocks. It is written beside, synced and renamed, so that there is a whole one or none. Blocking; run in a thread.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from flowjoin._pipeline.spool.disk import Disk

__all__ = ["CheckpointError", "CheckpointReader", "CheckpointWriter", "Closing", "Opening", "open_checkpoint"]

_FORMAT: Final = b"flowjoin checkpoint 1\n"
_ANY_FORMAT: Final = b"flowjoin checkpoint "
_FRAME: Final = struct.Struct("<cII")  # kind, octets, CRC-32 of kind and octets
_OPENING, _BLOCK, _CLOSING = b"O", b"B", b"C"
_LEVEL: Final = 1  # states are mostly zero: a seventh is left, for little time
_LARGEST_BLOCK: Final = 256 * 1024 * 1024  # of octets when they are not compressed


class CheckpointError(Exception):
    """The file cannot be used; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What flows consist of.

    Attributes:
        version: of flowjoin.
        block_version: of the kernel's blocks.
        layout: of the flows in them.
    """

    version: str
    block_version: int
    layout: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What was so when all was written.

    Attributes:
        flows: how many.
        clock: the writer's monotonic time; all times in blocks are of this clock.
        wall: seconds since the Unix epoch.
        epoch: the last that the instance had used.
        is_last: the writer had exported all that was ready, and did nothing after it.
        lanes: by exporter's name, the id of the last batch that was closed.
    """

    flows: int
    clock: float
    wall: float
    epoch: int
    is_last: bool
    lanes: Mapping[str, str]


class CheckpointWriter:
    """Writes one file; what is not finished leaves the one before as it was."""

    def __init__(self, path: Path, opening: Opening, disk: Disk) -> None:
        """Begin.

        Raises:
            OSError: here and in every other method but ``abandon``.
        """
        self._path = path
        self._new = path.with_name(f".{path.name}-new")
        self._disk = disk
        self._descriptor: int | None = disk.create(self._new)
        self.octets = 0
        try:
            self._write(_FORMAT)
            self._frame(_OPENING, json.dumps(asdict(opening)).encode())
        except BaseException:
            self.abandon()
            raise

    def append(self, block: bytes) -> None:
        """Write a block."""
        self._frame(_BLOCK, block)

    def finish(self, closing: Closing) -> None:
        """All is written: from now on it is the checkpoint."""
        self._frame(_CLOSING, json.dumps(asdict(closing)).encode())
        assert self._descriptor is not None, "it is open"
        self._disk.sync(self._descriptor)
        descriptor, self._descriptor = self._descriptor, None  # whatever closing it says, it is closed
        self._disk.close(descriptor)
        self._disk.rename(self._new, self._path)
        self._disk.sync_directory(self._path.parent)

    def abandon(self) -> None:
        """Leave nothing, if it was not finished.

        A disk that refuses even that has said what is wrong before, and the next one to begin takes the file's place.
        """
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):
                self._disk.close(descriptor)
        with suppress(OSError):
            self._disk.remove(self._new)

    def _frame(self, kind: bytes, octets: bytes) -> None:
        packed = zlib.compress(octets, _LEVEL)
        self._write(_FRAME.pack(kind, len(packed), zlib.crc32(packed, zlib.crc32(kind))) + packed)

    def _write(self, octets: bytes) -> None:
        assert self._descriptor is not None, "it is open"
        self._disk.write(self._descriptor, octets)
        self.octets += len(octets)


@dataclass(frozen=True, slots=True)
class CheckpointReader:
    """A file that was checked from beginning to end."""

    path: Path
    opening: Opening
    closing: Closing
    places: tuple[tuple[int, int], ...]  # of the blocks
    disk: Disk

    def block(self, place: tuple[int, int]) -> bytes:
        """A block's octets.

        Raises:
            OSError, CheckpointError: it cannot be read any more.
        """
        return _unpacked(self.disk.read(self.path, *place))


def open_checkpoint(path: Path, disk: Disk) -> CheckpointReader:
    """Check a whole file, a frame at a time.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read.
        CheckpointError: it is of another version, or damaged.
    """
    size = disk.size(path)
    head = disk.read(path, 0, len(_FORMAT))
    if head != _FORMAT:
        if head.startswith(_ANY_FORMAT):
            told = head.removeprefix(_ANY_FORMAT).decode("ascii", errors="replace").strip()
            raise CheckpointError(f"it has format {told}, and this flowjoin reads format 1")
        raise CheckpointError("it is no checkpoint")
    at = len(_FORMAT)
    found: list[tuple[bytes, int, int]] = []
    while at < size:
        header = disk.read(path, at, _FRAME.size)
        at += _FRAME.size
        if len(header) < _FRAME.size:
            raise CheckpointError("it is cut short")
        kind, length, checksum = _FRAME.unpack(header)
        if length > size - at:
            raise CheckpointError("it is cut short")
        if zlib.crc32(disk.read(path, at, length), zlib.crc32(kind)) != checksum:
            raise CheckpointError(f"it is damaged at octet {at}")
        found.append((kind, at, length))
        at += length
    kinds = [kind for kind, _, _ in found]
    if len(found) < 2 or kinds[0] != _OPENING or kinds[-1] != _CLOSING or set(kinds[1:-1]) - {_BLOCK}:
        raise CheckpointError("it is not whole")
    opening, closing = (_facts(disk.read(path, place, length)) for _, place, length in (found[0], found[-1]))
    try:
        return CheckpointReader(
            path=path,
            opening=Opening(
                version=str(opening["version"]),
                block_version=int(opening["block_version"]),
                layout=tuple(tuple(map(str, group)) for group in opening["layout"]),
            ),
            closing=Closing(
                flows=int(closing["flows"]),
                clock=float(closing["clock"]),
                wall=float(closing["wall"]),
                epoch=int(closing["epoch"]),
                is_last=bool(closing["is_last"]),
                lanes={str(name): str(batch) for name, batch in closing["lanes"].items()},
            ),
            places=tuple((place, length) for _, place, length in found[1:-1]),
            disk=disk,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise CheckpointError(f"it lacks what every checkpoint has: {exc}") from exc


def _facts(octets: bytes) -> dict[str, Any]:  # what JSON gives
    try:
        facts = json.loads(_unpacked(octets))
    except ValueError as exc:
        raise CheckpointError(f"a frame is no JSON: {exc}") from exc
    if not isinstance(facts, dict):
        raise CheckpointError("a frame is no JSON object")
    return facts


def _unpacked(octets: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(octets, _LARGEST_BLOCK)
    except zlib.error as exc:
        raise CheckpointError(f"a frame cannot be unpacked: {exc}") from exc
    if not unpacking.eof:
        raise CheckpointError("a frame is cut short, or larger than any")
    return plain
