"""Keeps what was told of connections in the state directory, from one run of the program to the next."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import trio

from flowjoin.api import PluginContext
from flowjoin_conntrack._told import ToldTotals, packed, unpacked

__all__ = ["Memory"]

_NAME: Final = "told-totals"
_MOST_OCTETS: Final = 100 * 1024 * 1024  # a million connections
_SECONDS: Final = 2.5  # for writing it: the program gives three to what closes
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")


class Memory:
    """One file, which is there only while nobody reads the table: what is in it is true until the next row."""

    def __init__(self, context: PluginContext, dumper: str) -> None:
        """Nothing is read yet.

        Args:
            dumper: how the table is read: each has ids and times of its own.
        """
        self._context = context
        self._dumper = dumper
        self._path = None if context.state_directory is None else context.state_directory / _NAME

    async def recall(self) -> ToldTotals:
        """What the run before told; nothing where that is not known."""
        if self._path is None:
            return ToldTotals()
        try:
            return await trio.to_thread.run_sync(_recalled, self._path, self._dumper)
        except FileNotFoundError:
            return ToldTotals()
        except (OSError, ValueError) as exc:
            self._unknown(exc)
            return ToldTotals()

    async def forget(self) -> None:
        """Rows are about to be told: what is in the file is not true any more."""
        if self._path is None:
            return
        try:
            await trio.to_thread.run_sync(lambda path: path.unlink(missing_ok=True), self._path)
        except OSError as exc:
            self._unknown(exc)

    async def keep(self, records: Iterator[bytes]) -> None:
        """Nothing more will be told; also while cancelled, and in bounded time.

        Args:
            records: in slices.
        """
        if self._path is None:
            return
        with trio.move_on_after(_SECONDS, shield=True) as scope:
            kept: list[bytes] = []
            octets = 0
            for slice_ in records:
                if octets + len(slice_) > _MOST_OCTETS:
                    self._context.log.warning("told_totals_not_all_kept", effect="what a few count is told again")
                    break
                kept.append(slice_)
                octets += len(slice_)
                await trio.lowlevel.checkpoint()
            try:
                await trio.to_thread.run_sync(_write, self._path, kept, self._dumper, abandon_on_cancel=True)
            except OSError as exc:
                self._unknown(exc)
        if scope.cancelled_caught:
            self._unknown(TimeoutError(f"it took longer than {_SECONDS:g} s"))

    def _unknown(self, exc: Exception) -> None:
        effect = "after a restart, deltas begin with whole totals"
        self._context.log.warning("told_totals_unknown", path=str(self._path), cause=str(exc), effect=effect)


def _place(dumper: str) -> str:
    """This boot, this network namespace: ids and times of connections mean nothing in another."""
    network = _NETWORK.stat()
    return f"{_BOOT.read_text(encoding='ascii').strip()} {network.st_dev}:{network.st_ino} {dumper}"


def _recalled(path: Path, dumper: str) -> ToldTotals:
    return ToldTotals(unpacked(path.read_bytes(), _place(dumper)))


def _write(path: Path, records: list[bytes], dumper: str) -> None:
    """Whole or not at all; without it, as after a loss of power that takes its name, all is told as new."""
    octets = packed(records, _place(dumper))
    temporary = path.with_name(f".{path.name}-new")
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong before is to be told
            temporary.unlink()
        raise
