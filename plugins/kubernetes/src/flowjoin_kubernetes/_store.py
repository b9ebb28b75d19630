"""Records by what they are found by, and by time. Pure: the time comes in.

Records lie here as plain tuples of texts, octets and numbers, and keys lead to UIDs: Python's garbage collector stops
walking such tuples, and would hold the loop for 50 ms with each full collection over 160,000 objects of a class.

Invariant: a record is in the index under each of its keys exactly while it is held, and it is held while it lives and
for ``kept_seconds`` after, but for the oldest of more than ``most_deleted``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from math import inf
from typing import Any, Final, Generic, TypeAlias, TypeVar

from flowjoin_kubernetes._records import Record

__all__ = ["MOST_DELETED", "TimedStore"]

RecordT = TypeVar("RecordT", bound=Record)
Uid: TypeAlias = "bytes | str"
Row: TypeAlias = tuple[Any, ...]  # a record's columns

MOST_DELETED: Final = 100_000  # held beside the living: five minutes at 330 deletions a second
_CREATED, _DELETED = 1, 2


class TimedStore(Generic[RecordT]):
    """Records that live, and those that were deleted a while ago."""

    def __init__(self, record_type: type[RecordT], *, kept_seconds: float, most_deleted: int = MOST_DELETED) -> None:
        """Empty.

        Args:
            record_type: a named tuple.
            kept_seconds: how long a deleted record is held.
            most_deleted: how many of them.
        """
        # as the class does it, without a call of Python's
        self._make: Callable[[Row], RecordT] = partial(tuple.__new__, record_type)  # type: ignore[type-var]  # a tuple
        self._kept_seconds = kept_seconds
        self._most_deleted = most_deleted
        self._rows: dict[Uid, Row] = {}
        self._only: dict[Hashable, Uid] = {}  # of keys that one record has
        self._several: dict[Hashable, list[Uid]] = {}  # of all other keys
        self._deleted: deque[Uid] = deque()  # in the order of their deletion
        self._listed: set[Uid] | None = None  # those put since a list began; None between lists
        self.forgotten_early = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def deleted_held(self) -> int:
        """How many of the held are deleted."""
        return len(self._deleted)

    @property
    def has_shared_keys(self) -> bool:
        """Whether there is a key of which the time matters."""
        return bool(self._several)

    @property
    def keys(self) -> int:
        """How many keys lead to records."""
        return len(self._only) + len(self._several)

    def put(self, record: RecordT) -> None:
        """Hold a record, in place of an older one of its UID, whose time of creation stays."""
        row: Row = tuple(record)  # type: ignore[arg-type]  # records are named tuples
        uid = record.uid
        if self._listed is not None:
            self._listed.add(uid)
        old = self._rows.get(uid)
        if old is not None:
            row = (uid, old[_CREATED], *row[_DELETED:])
            if old[_DELETED] != inf:
                self._deleted.remove(uid)  # a deletion that was guessed from a list, and was none
            self._unindex(uid, old)
        self._rows[uid] = row
        for key in dict.fromkeys(record.found_by()):
            self._index(key, uid)

    def delete(self, uid: Uid, now: float) -> None:
        """It is no more; it is found by flows of its time for a while."""
        row = self._rows.get(uid)
        if row is None or row[_DELETED] != inf:
            return
        self._rows[uid] = (uid, row[_CREATED], now, *row[_DELETED + 1 :])
        self._deleted.append(uid)
        if len(self._deleted) > self._most_deleted:
            self._forget_oldest()
            self.forgotten_early += 1

    def begin_list(self) -> None:
        """A list of all that live begins: each is put, then ``end_list`` is called."""
        self._listed = set()

    def end_list(self, now: float) -> int:
        """What lived and was not in the list was deleted unseen; gives how many."""
        assert self._listed is not None, "a list began"
        listed, self._listed = self._listed, None
        missed = [uid for uid, row in self._rows.items() if row[_DELETED] == inf and uid not in listed]
        for uid in missed:
            self.delete(uid, now)
        return len(missed)

    def purge(self, now: float, limit: int) -> bool:
        """Let go of what was deleted long enough ago, at most ``limit``; whether more may be due."""
        deadline = now - self._kept_seconds
        while limit and self._deleted and self._rows[self._deleted[0]][_DELETED] <= deadline:
            self._forget_oldest()
            limit -= 1
        return not limit

    def count(self, key: Hashable) -> int:
        """How many of the records held had this key; of none or one, its time does not matter."""
        if key in self._only:
            return 1
        return len(self._several.get(key, ()))

    def find(self, key: Hashable, at: float | None) -> RecordT | None:
        """What the key meant then.

        The only record of a key is what is meant, whatever the time: clocks of Nodes and of the API server differ.
        Of several it is one that was created before and deleted after; should there be more than one, the youngest.
        Without a time: what lives.
        """
        only = self._only.get(key)
        if only is not None:
            row = self._rows[only]
            return self._make(row) if at is not None or row[_DELETED] == inf else None
        uids = self._several.get(key)
        if uids is None:
            return None
        rows = [self._rows[uid] for uid in uids]
        if at is None:
            rows = [row for row in rows if row[_DELETED] == inf]
        else:
            rows = [row for row in rows if row[_CREATED] < at < row[_DELETED]]
        return self._make(max(rows, key=_created)) if rows else None

    def _index(self, key: Hashable, uid: Uid) -> None:
        several = self._several.get(key)
        if several is not None:
            several.append(uid)
            return
        other = self._only.setdefault(key, uid)
        if other != uid:
            del self._only[key]
            self._several[key] = [other, uid]

    def _unindex(self, uid: Uid, row: Row) -> None:
        for key in dict.fromkeys(self._make(row).found_by()):
            several = self._several.get(key)
            if several is None:
                del self._only[key]
                continue
            several.remove(uid)
            if len(several) == 1:
                self._only[key] = several[0]
                del self._several[key]

    def _forget_oldest(self) -> None:
        uid = self._deleted.popleft()
        self._unindex(uid, self._rows.pop(uid))


def _created(row: Row) -> float:
    return float(row[_CREATED])
