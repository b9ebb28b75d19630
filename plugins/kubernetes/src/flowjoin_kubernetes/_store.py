"""Records by what they are found by, and by time. Pure: the time comes in.

Invariant: a record is in the index under each of its keys exactly while it is held, and it is held while it lives and
for ``kept_seconds`` after, but for the oldest of more than ``most_deleted``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeVar

from flowjoin_kubernetes._records import Record

__all__ = ["MOST_DELETED", "TimedStore"]

RecordT = TypeVar("RecordT", bound=Record)

MOST_DELETED: Final = 100_000  # held beside the living: five minutes at 330 deletions a second


class TimedStore(Generic[RecordT]):
    """Records that live, and those that were deleted a while ago."""

    def __init__(self, *, kept_seconds: float, most_deleted: int = MOST_DELETED) -> None:
        """Empty."""
        self._kept_seconds = kept_seconds
        self._most_deleted = most_deleted
        self._records: dict[bytes | str, RecordT] = {}
        self._index: dict[Hashable, RecordT | list[RecordT]] = {}
        self._deleted: deque[RecordT] = deque()  # in the order of their deletion
        self._generation = 0
        self.forgotten_early = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def deleted_held(self) -> int:
        """How many of the held are deleted."""
        return len(self._deleted)

    def put(self, record: RecordT) -> None:
        """Hold a record, in place of an older one of its UID, whose time of creation stays."""
        record.generation = self._generation
        old = self._records.get(record.uid)
        if old is not None:
            record.created = old.created
            if not old.is_living:
                self._deleted.remove(old)  # a deletion that was guessed from a list, and was none
            self._unindex(old)
        self._records[record.uid] = record
        for key in record.found_by():
            found = self._index.get(key)
            if found is None:
                self._index[key] = record
            elif isinstance(found, list):
                found.append(record)
            else:
                self._index[key] = [found, record]

    def delete(self, uid: bytes | str, now: float) -> None:
        """It is no more; it is found by flows of its time for a while."""
        record = self._records.get(uid)
        if record is not None and record.is_living:
            self._end(record, now)

    def begin_list(self) -> None:
        """A list of all that live begins: each is put, then ``end_list`` is called."""
        self._generation += 1

    def end_list(self, now: float) -> int:
        """What lived and was not in the list was deleted unseen; gives how many."""
        missed = [each for each in self._records.values() if each.generation != self._generation and each.is_living]
        for record in missed:
            self._end(record, now)
        return len(missed)

    def purge(self, now: float, limit: int) -> bool:
        """Let go of what was deleted long enough ago, at most ``limit``; whether more is due."""
        deadline = now - self._kept_seconds
        while limit and self._deleted and self._deleted[0].deleted <= deadline:
            self._forget_oldest()
            limit -= 1
        return not limit

    def candidates(self, key: Hashable) -> Sequence[RecordT]:
        """Every record held that had this key; of none or one, its time does not matter."""
        found = self._index.get(key)
        if found is None:
            return ()
        return found if isinstance(found, list) else (found,)

    def find(self, key: Hashable, at: float | None) -> RecordT | None:
        """What the key meant then.

        The only record of a key is what is meant, whatever the time: clocks of Nodes and of the API server differ.
        Of several it is one that was created before and deleted after; should there be more than one, the youngest.
        Without a time: what lives.
        """
        found = self._index.get(key)
        if found is None:
            return None
        if at is None:
            living = [record for record in self.candidates(key) if record.is_living]
            return max(living, key=_created, default=None)
        if not isinstance(found, list):
            return found
        then = [record for record in found if record.created < at < record.deleted]
        return max(then, key=_created, default=None)

    def _end(self, record: RecordT, now: float) -> None:
        record.deleted = now
        self._deleted.append(record)
        if len(self._deleted) > self._most_deleted:
            self._forget_oldest()
            self.forgotten_early += 1

    def _forget_oldest(self) -> None:
        record = self._deleted.popleft()
        del self._records[record.uid]
        self._unindex(record)

    def _unindex(self, record: RecordT) -> None:
        for key in record.found_by():
            found = self._index[key]
            if not isinstance(found, list):
                del self._index[key]
                continue
            found.remove(record)
            if len(found) == 1:
                self._index[key] = found[0]


def _created(record: Record) -> float:
    return record.created
