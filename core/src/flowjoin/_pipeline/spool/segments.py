"""Segments as files: a pair of ``N.ipfix`` and ``N.index``, appended to by one writer and then only read.

Strategy: octets go to the segment first, then the line that names them to the index; what no line names is not there.
A new segment appears with everything that must be in it at once: its index gets its name last. A writer that met a
fault never writes to the same files again, so that a torn tail stays a tail.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import zlib
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from flowjoin._model.element_registry import ElementRegistry
from flowjoin._model.flow_batch import FlowBatch, join_slowly
from flowjoin._model.flow_schema import FlowSchema
from flowjoin._model.steps import at_once
from flowjoin._pipeline.spool.cursor import Cursor
from flowjoin._pipeline.spool.disk import Disk
from flowjoin._pipeline.spool.index import FORMAT, MAX_LINE_OCTETS, Index, Piece, format_of, read_index
from flowjoin._pipeline.spool.row_layout import DamagedError, RowLayout
from flowjoin._pipeline.spool.segment_format import decode_piece, stretches

__all__ = [
    "Decoding",
    "SegmentFiles",
    "SegmentWriter",
    "check_format",
    "decode_slowly",
    "list_segments",
    "list_without_index",
    "load_index",
    "next_number",
    "read_batch",
    "read_octets",
    "remove_segment",
    "remove_unfinished",
    "set_aside",
    "size_or_none",
]

# To be iterated to its end, with others working between two steps; it returns the batch.
Decoding: TypeAlias = Generator[None, None, FlowBatch]

_DATA: Final = ".ipfix"
_INDEX: Final = ".index"
_NEW: Final = ".new"
_GONE: Final = ".gone"
_DAMAGED: Final = ".damaged"


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Where a segment lies."""

    directory: Path
    number: int

    @property
    def data(self) -> Path:
        return self.directory / f"{self.number:010d}{_DATA}"

    @property
    def index(self) -> Path:
        return self.directory / f"{self.number:010d}{_INDEX}"


class SegmentWriter:
    """Appends to one segment; every method blocks, and may be called from any thread, one at a time but ``sync``."""

    def __init__(self, disk: Disk, files: SegmentFiles, data: bytes | bytearray, lines: bytes, is_synced: bool) -> None:
        """Make the segment, with its first octets, all at once.

        Raises:
            OSError: there is no such segment then.
        """
        self._disk = disk
        self._closing = threading.Lock()
        self._descriptors: tuple[int, ...] = ()
        new_data, new_index = (path.with_name(path.name + _NEW) for path in (files.data, files.index))
        try:
            files.directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have removed it
            for path, octets in ((new_data, data), (new_index, lines)):
                descriptor = disk.create(path)
                self._descriptors += (descriptor,)
                disk.write(descriptor, octets)
                if is_synced:
                    disk.sync(descriptor)
            disk.rename(new_data, files.data)
            disk.rename(new_index, files.index)
            if is_synced:
                for folder in (files.directory, files.directory.parent):  # it may have just been made
                    disk.sync_directory(folder)
        except BaseException:
            self.close()
            for path in (new_data, new_index):
                path.unlink(missing_ok=True)
            if not files.index.exists():
                files.data.unlink(missing_ok=True)
            raise

    def append(self, data: bytes | bytearray, lines: bytes, is_synced: bool) -> None:
        """Write octets, then the lines that name them.

        Raises:
            OSError: the segment must not be written to any more.
        """
        data_file, index_file = self._descriptors
        for descriptor in self._descriptors:
            if self._disk.is_removed(descriptor):
                raise OSError(errno.ENOENT, "somebody removed the segment that is written to")
        if data:
            self._disk.write(data_file, data)
            if is_synced:
                self._disk.sync(data_file)
        self._disk.write(index_file, lines)
        if is_synced:
            self._disk.sync(index_file)

    def sync(self) -> None:
        """Wait until all is on the disk; nothing happens when it is closed."""
        with self._closing:
            for descriptor in self._descriptors:
                self._disk.sync(descriptor)

    def close(self) -> None:
        with self._closing:
            descriptors, self._descriptors = self._descriptors, ()
            for descriptor in descriptors:
                self._disk.close(descriptor)


def list_segments(disk: Disk, directory: Path) -> list[SegmentFiles]:
    """The segments in a directory, oldest first; those without an index are not among them."""
    return [SegmentFiles(directory, number) for number in sorted(_numbers(disk.names(directory), _INDEX))]


def check_format(disk: Disk, files: SegmentFiles) -> None:
    """See that we know what a segment is; after a return to an older flowjoin the newest may be another's.

    Raises:
        OSError: it is of a later format. What cannot be read is told when it is restored.
    """
    found = None
    with contextlib.suppress(OSError):
        found = next((format_of(line) for line in disk.lines(files.index, MAX_LINE_OCTETS)), None)
    if found is not None and found > FORMAT:
        raise OSError(f"a newer flowjoin wrote {files.index} (format {found}, and this one knows {FORMAT})")


def set_aside(disk: Disk, files: SegmentFiles) -> None:
    """Keep what cannot be used for people to look at, where it is no segment any more.

    Raises:
        OSError: it cannot be renamed.
    """
    for path in (files.index, files.data):
        with contextlib.suppress(FileNotFoundError):
            disk.rename(path, path.with_name(path.name + _DAMAGED))


def size_or_none(disk: Disk, path: Path) -> int:
    """Octets of a file, none where there is no file."""
    try:
        return disk.size(path)
    except FileNotFoundError:
        return 0


def list_without_index(disk: Disk, directory: Path) -> list[SegmentFiles]:
    """The segments of which only the octets are there, oldest first: nobody can tell which of their rows are settled.

    One whose making or removing a sudden end has cut short is not among them.
    """
    names = disk.names(directory)
    numbers = _numbers(names, _DATA) - _numbers(names, _INDEX) - _unfinished(names)
    return [SegmentFiles(directory, number) for number in sorted(numbers)]


def remove_unfinished(disk: Disk, directory: Path) -> list[SegmentFiles]:
    """Remove what a sudden end has left of making or removing a segment; nobody may be at either.

    Gives the segments of which a file cannot be removed.

    Raises:
        OSError: the directory cannot be read.
    """
    names = disk.names(directory)
    unremoved: list[SegmentFiles] = []
    for files in (SegmentFiles(directory, number) for number in sorted(_unfinished(names))):
        try:
            remove_segment(disk, files)
        except OSError:
            unremoved.append(files)
    marks = tuple(f"{files.number:010d}" for files in unremoved)  # that tell what their octets are stay with them
    for name in names:
        if name.endswith((_DATA + _NEW, _INDEX + _NEW, _INDEX + _GONE)) and not name.startswith(marks):
            with contextlib.suppress(OSError):  # no segment, and in the way only of the next of its number
                disk.remove(directory / name)
    return unremoved


def _unfinished(names: Sequence[str]) -> set[int]:
    """What is in their octets stands elsewhere too, or is settled."""
    return (_numbers(names, _INDEX + _NEW) | _numbers(names, _INDEX + _GONE)) - _numbers(names, _INDEX)


def next_number(disk: Disk, directory: Path, cursor: Cursor) -> int:
    """Of a new segment: above all that are there, whole or not or set aside, and all that were settled."""
    names = disk.names(directory)
    suffixes = (name + state for name in (_INDEX, _DATA) for state in ("", _NEW, _GONE, _DAMAGED))
    return max(cursor.segment, 0, *(number for suffix in suffixes for number in _numbers(names, suffix))) + 1


def _numbers(names: Iterable[str], suffix: str) -> set[int]:
    """Of the names that are ours: written as we write them, because two names of one number would be two segments."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    digits = (stem for stem in stems if stem.isascii() and stem.isdigit())
    return {int(stem) for stem in digits if f"{int(stem):010d}" == stem}


def remove_segment(disk: Disk, files: SegmentFiles) -> None:
    """All at once: whatever ends this in the middle, there is no such segment any more."""
    gone = files.index.with_name(files.index.name + _GONE)
    with contextlib.suppress(FileNotFoundError):  # somebody was quicker
        disk.rename(files.index, gone)
    disk.remove(files.data)
    disk.remove(gone)


def load_index(disk: Disk, files: SegmentFiles, registry: ElementRegistry) -> Index:
    """What a segment's index says.

    Raises:
        OSError: it cannot be read.
    """
    return read_index(disk.lines(files.index, MAX_LINE_OCTETS), registry)


def read_octets(disk: Disk, files: SegmentFiles, pieces: Sequence[Piece]) -> list[bytes]:
    """The pieces' octets, checked.

    Raises:
        DamagedError: a piece is cut, or its octets are not those that were written.
        OSError: the file cannot be read.
    """
    found: list[bytes] = []
    for piece in pieces:
        try:
            octets = disk.read(files.data, piece.offset, piece.length)
        except FileNotFoundError:
            raise DamagedError("the segment is not there") from None
        if len(octets) != piece.length:
            raise DamagedError("the segment is cut short")
        if zlib.crc32(octets) != piece.checksum:
            raise DamagedError("octets have changed")
        found.append(octets)
    return found


def decode_slowly(octets: Sequence[bytes], pieces: Sequence[Piece], schemas: dict[int, FlowSchema]) -> Decoding:
    """A batch of these pieces, without id, in steps of milliseconds.

    Raises:
        DamagedError: the octets are no rows, or the line with their schema is lost.
    """
    parts: list[FlowBatch] = []
    for data, piece in zip(octets, pieces, strict=True):
        schema = schemas.get(piece.template_id)
        if schema is None:
            raise DamagedError("the line with its schema is damaged")
        layout = RowLayout(schema)
        found = 0
        for stretch in stretches(data):
            decoding = decode_piece(stretch, layout, piece.template_id, is_first_export=piece.is_first_export)
            parts.append((yield from decoding))
            found += len(parts[-1])
            yield
        if found != piece.rows:
            raise DamagedError("another number of rows than was written")
    try:
        return parts[0] if len(parts) == 1 else (yield from join_slowly(parts))
    except ValueError:
        raise DamagedError("pieces of different schemas, or of none") from None


def read_batch(disk: Disk, files: SegmentFiles, pieces: Sequence[Piece], schemas: dict[int, FlowSchema]) -> FlowBatch:
    """The rows of these pieces, without id.

    Raises:
        DamagedError: a piece is cut, or its octets are not those that were written.
        OSError: the file cannot be read.
    """
    return at_once(decode_slowly(read_octets(disk, files, pieces), pieces, schemas))
