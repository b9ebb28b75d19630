"""Names of rotated files, and which of them go: pure.

A file ``flows.log`` rotates to ``flows-2026-11-30T14-05-09.123.log`` beside it, UTC, and to the same name with
``.gz`` once compressed: the names of Antrea's flow log, so that what collects its files goes on collecting ours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["COMPRESSED", "PARTIAL", "Backup", "Tidying", "backup_name", "backups_among", "plan_tidying"]

COMPRESSED: Final = ".gz"
PARTIAL: Final = ".gz.partial"  # what a compression that was cut short leaves behind

_STAMP: Final = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A rotated file.

    Attributes:
        name: without the ``.gz``.
        is_plain: the file as it was rotated is there.
        is_compressed: its compressed form is there.
    """

    name: str
    rotated_at: datetime
    is_plain: bool
    is_compressed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidying:
    """What to do to a directory, by file name."""

    remove: tuple[str, ...]
    compress: tuple[str, ...]


def _split(file_name: str) -> tuple[str, str]:
    """``flows.log`` -> ``flows-``, ``.log``: the extension begins at the last dot, wherever that is."""
    dot = file_name.rfind(".")
    return (f"{file_name}-", "") if dot < 0 else (f"{file_name[:dot]}-", file_name[dot:])


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H-%M-%S}.{moment.microsecond // 1000:03d}"


def backup_name(file_name: str, rotated_at: datetime, taken: Collection[str]) -> str:
    """The name to rotate to; a millisecond later for each one that is taken, so that nothing is overwritten."""
    prefix, extension = _split(file_name)
    while True:
        name = f"{prefix}{_stamp(rotated_at)}{extension}"
        if name not in taken and name + COMPRESSED not in taken:
            return name
        rotated_at += timedelta(milliseconds=1)


def backups_among(file_name: str, names: Iterable[str]) -> list[Backup]:
    """The rotated files of ``file_name``, newest first; whatever else lies beside them is not ours."""
    found: dict[str, datetime] = {}
    present = set(names)
    prefix, extension = _split(file_name)
    pattern = re.compile(rf"({re.escape(prefix)}({_STAMP}){re.escape(extension)})(?:{re.escape(COMPRESSED)})?")
    for name in present:
        match = pattern.fullmatch(name)
        if match:
            with suppress(ValueError):  # the shape of a date that no calendar has
                found[match[1]] = datetime.strptime(match[2], "%Y-%m-%dT%H-%M-%S.%f").replace(tzinfo=UTC)
    return [
        Backup(name=name, rotated_at=at, is_plain=name in present, is_compressed=name + COMPRESSED in present)
        for name, at in sorted(found.items(), key=lambda item: (item[1], item[0]), reverse=True)
    ]


def plan_tidying(
    file_name: str, names: Collection[str], *, now: datetime, max_backups: int, max_age: int, compress: bool
) -> Tidying:
    """What the limits ask for.

    Args:
        names: of all files in the directory.
        max_backups: newest rotated files that stay; 0: all.
        max_age: days that a rotated file stays, by the time in its name; 0: for ever.
        compress: whether those that stay are to be compressed.
    """
    remove = [name for name in names if name.endswith(PARTIAL) and backups_among(file_name, [name[: -len(PARTIAL)]])]
    to_compress: list[str] = []
    for index, backup in enumerate(backups_among(file_name, names)):
        is_old = max_age > 0 and now - backup.rotated_at > timedelta(days=max_age)
        if is_old or (max_backups > 0 and index >= max_backups):
            remove += [backup.name] * backup.is_plain + [backup.name + COMPRESSED] * backup.is_compressed
        elif backup.is_plain and backup.is_compressed:
            remove.append(backup.name)  # stopped between the two last steps: the compressed form is whole
        elif backup.is_plain and compress:
            to_compress.append(backup.name)
    return Tidying(remove=tuple(remove), compress=tuple(to_compress))
