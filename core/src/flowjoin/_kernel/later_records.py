"""What a later record changes in a state by the general rules: latest, maximum, and what fills a gap.

Counters and times are each kind's own matter. Invariant: an element that the record's Template lacks
changes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from flowjoin._kernel.rows import Row, packed_default
from flowjoin._kernel.strings import EMPTY, Strings
from flowjoin._model.information_element import MergeRule, Value
from flowjoin._model.state_layout import Slot, Storage

__all__ = ["LaterRecords", "Place", "replace_text"]

_NUMBER_OF_TEXT: Final = struct.Struct("<I")


class Place:
    """One slot, where a row has its value, and the ways to read and write it."""

    __slots__ = ("_struct", "at", "offset", "slot", "zero")

    def __init__(self, at: int, slot: Slot) -> None:
        self.at = at
        self.slot = slot
        self.offset = slot.offset
        self.zero: Value = packed_default(slot.element)
        self._struct = struct.Struct("<" + slot.format)

    @property
    def is_text(self) -> bool:
        return self.slot.storage is Storage.INTERNED

    def get(self, state: bytearray) -> Value:
        """The stored value; of text its number."""
        value: Value = self._struct.unpack_from(state, self.offset)[0]
        return value

    def put(self, state: bytearray, value: Value) -> None:
        """Store a value; of text its number."""
        self._struct.pack_into(state, self.offset, value)

    def write(self, state: bytearray, value: Value, strings: Strings) -> None:
        """Store a row's value in place of the stored one."""
        if self.is_text:
            replace_text(state, self.offset, value, strings)
        else:
            self._struct.pack_into(state, self.offset, value)

    def is_empty(self, state: bytearray) -> bool:
        """Whether the state has the element's default."""
        return self.get(state) == (EMPTY if self.is_text else self.zero)


def replace_text(state: bytearray, offset: int, value: Value, strings: Strings) -> None:
    """Hold another string in a slot."""
    (before,) = _NUMBER_OF_TEXT.unpack_from(state, offset)
    if strings[before] == value:
        return
    _NUMBER_OF_TEXT.pack_into(state, offset, strings.acquire(value))
    strings.release(before)


class LaterRecords:
    """The general rules for the records of one Template."""

    __slots__ = ("_latest", "_maxima")

    def __init__(self, slots: Sequence[Slot], positions: Mapping[str, int]) -> None:
        """Take the slots that follow the general rules, and where rows have what the Template brings."""
        places = [Place(positions[slot.element.name], slot) for slot in slots if slot.element.name in positions]
        self._latest = [place for place in places if place.slot.rule is MergeRule.LATEST]
        self._maxima = [place for place in places if place.slot.rule is MergeRule.MAX]

    def apply(self, state: bytearray, row: Row, strings: Strings, *, is_latest: bool) -> None:
        """Merge a row that ends no earlier than the flow (``is_latest``), or earlier."""
        if is_latest:
            for place in self._latest:
                place.write(state, row[place.at], strings)
        for place in self._maxima:
            if row[place.at] > place.get(state):
                place.put(state, row[place.at])
