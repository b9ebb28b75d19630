"""Flows as octets, to outlive the process: blocks of up to a slice of flows, which either form writes and reads alike.

A block is whole in itself: it begins with the strings that its flows have, each once, and a flow names them by their
place in that list. Numbers are little-endian.

========  ==================================================================================
octets    what
========  ==================================================================================
12        how many flows, how many strings, how many octets the strings take
5 + n     each string: kind (0 text, 1 octets, 2 octets of a fixed number), length, octets
28        each flow: layout, flags, retries, 0, serial number, next export, last record; then
..        its key, its values of fixed size in the layout's order, the numbers of its strings
========  ==================================================================================

Times are those of the writer's clock. Invariant: whatever octets are read, either each flow of the block is one that
could have been written, or ``ValueError`` is raised, and no flow of the block after the fault was stored.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from flowjoin._kernel.flow_table import MAXIMUM_RETRIES, FlowTable
from flowjoin._kernel.strings import EMPTY, Strings
from flowjoin._model.information_element import DataType, Value
from flowjoin._model.state_layout import Slot, StateLayout, Storage

__all__ = ["BLOCK_VERSION", "FlowKeeper", "described"]

BLOCK_VERSION: Final = 1  # of what a block looks like: raised with each change

_BLOCK: Final = struct.Struct("<III")
_STRING: Final = struct.Struct("<BI")
_FLOW: Final = struct.Struct("<BBBxQdd")
_TEXT, _OCTETS, _FIXED = 0, 1, 2
_READY, _UPDATED, _ANEW = 1, 2, 8
_FLAGS: Final = 15


def described(layouts: Sequence[StateLayout]) -> tuple[tuple[str, ...], ...]:
    """What the flows of a block consist of: blocks can be read where this is the same."""
    return tuple(
        (
            f"{layout.schema.origin.value} IPv{layout.schema.family.value}",
            *(
                f"{slot.element.name} {slot.element.enterprise_number}/{slot.element.element_id}"
                f" {slot.format} {slot.rule.value}"
                for slot in layout.slots.values()
            ),
        )
        for layout in layouts
    )


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A value that a flow has by number."""

    slot: Slot
    kind: int


class _Split:
    """A layout's states, with what is by number apart."""

    def __init__(self, layout: StateLayout) -> None:
        self.layout = layout
        family = layout.schema.family
        self.key_octets = 2 * (4 if family == 4 else 16) + 5 + (26 if layout.schema.origin.value == "plain" else 0)
        self.numbered: list[_Numbered] = []
        self.spans: list[tuple[int, int]] = []  # of the octets that are written as they are
        for slot in layout.slots.values():
            if slot.storage is Storage.INTERNED:
                self.numbered.append(_Numbered(slot, _TEXT if slot.element.data_type is DataType.STRING else _OCTETS))
            elif slot.storage is Storage.OCTETS:
                self.numbered.append(_Numbered(slot, _FIXED))
            else:
                self._extend(slot.offset, slot.offset + struct.calcsize("<" + slot.format))
        self.numbers = struct.Struct(f"<{len(self.numbered)}I")
        self.fixed_octets = sum(end - start for start, end in self.spans)
        self.octets = _FLOW.size + self.key_octets + self.fixed_octets + self.numbers.size

    def _extend(self, start: int, end: int) -> None:
        if self.spans and self.spans[-1][1] == start:
            start = self.spans.pop()[0]
        self.spans.append((start, end))


class FlowKeeper:
    """Writes a table's flows, and stores those that an earlier process wrote."""

    def __init__(
        self,
        table: FlowTable,
        strings: Strings,
        layouts: Sequence[StateLayout],
        reset: Mapping[StateLayout, Callable[[bytearray], None]],
    ) -> None:
        self._table = table
        self._strings = strings
        self._layouts = [_Split(layout) for layout in layouts]
        self._numbers = {layout: number for number, layout in enumerate(layouts)}
        self._reset = reset
        # What was stored and has no place in the order of eviction yet: time of the last record, serial, handle.
        self._unordered: list[tuple[float, int, int]] = []

    def dump(self, cursor: int, limit: int) -> tuple[bytes, int | None]:
        """A block of the flows among the next ``limit`` places from ``cursor``; the next cursor."""
        table = self._table
        end = min(cursor + limit, table.slots)
        strings = _BlockStrings(self._strings)
        flows: list[bytes] = []
        count = 0
        for handle in range(cursor, end):
            key = table.key(handle)
            if key is None:
                continue
            number = self._numbers[table.layout(handle)]
            split, state = self._layouts[number], table.state(handle)
            count += 1
            flows += (
                _FLOW.pack(number, *table.kept(handle)),
                key,
                *(bytes(state[start:stop]) for start, stop in split.spans),
                split.numbers.pack(*(strings.number(state, numbered) for numbered in split.numbered)),
            )
        octets = b"".join(strings.octets)
        block = b"".join((_BLOCK.pack(count, len(strings), len(octets)), octets, *flows))
        return block, end if end < table.slots else None

    def restore(self, block: bytes, offset: float, *, is_continued: bool) -> tuple[int, int]:
        """Store a block's flows; see ``interface.KeepsFlows``."""
        try:
            return self._restore(memoryview(block), offset, is_continued)
        except (struct.error, UnicodeDecodeError) as exc:
            raise ValueError(f"no block of flows: {exc}") from exc

    def order(self, limit: int) -> bool:
        """Put so many of the flows that were restored into the order of eviction; False when all are in it."""
        for _ in range(min(limit, len(self._unordered))):
            seen, serial, handle = heapq.heappop(self._unordered)
            self._table.order_restored(handle, serial, seen)
        return bool(self._unordered)

    def _restore(self, block: memoryview, offset: float, is_continued: bool) -> tuple[int, int]:
        count, string_count, string_octets = _BLOCK.unpack_from(block)
        strings, at = _read_strings(block, string_count, string_octets)
        restored = refused = 0
        for _ in range(count):
            number, flags, retries, serial, active, seen = _FLOW.unpack_from(block, at)
            is_sound = flags <= _FLAGS and retries <= MAXIMUM_RETRIES and active == active and seen == seen
            if number >= len(self._layouts) or not is_sound:
                raise ValueError(f"no flow at octet {at} of a block")
            split = self._layouts[number]
            end = at + split.octets
            if end > len(block):
                raise ValueError("a block is cut short")
            key_at = at + _FLOW.size
            key = bytes(block[key_at : key_at + split.key_octets])
            values = split.numbers.unpack_from(block, end - split.numbers.size)
            _check(split, values, strings)
            if not self._table.has_place_for(key):
                refused += 1
                at = end
                continue
            state = self._state(split, block[key_at + split.key_octets : end], values, strings)
            if not is_continued:
                self._reset[split.layout](state)
                flags = flags & ~_UPDATED | _ANEW
            active, seen = active + offset, seen + offset
            handle = self._table.put_back(
                key, split.layout, state, flags=flags, retries=retries, serial=serial, active=active, seen=seen
            )
            # Halves lie in the order of their storing, before everything that was told a time.
            heapq.heappush(self._unordered, (seen if flags & _READY else float("-inf"), serial, handle))
            restored += 1
            at = end
        if at != len(block):
            raise ValueError("a block has octets after its end")
        return restored, refused

    def _state(
        self, split: _Split, fixed: memoryview, values: Sequence[int], strings: Sequence[tuple[int, Value]]
    ) -> bytearray:
        state = bytearray(split.layout.struct.size)
        at = 0
        for start, stop in split.spans:
            state[start:stop] = fixed[at : at + stop - start]
            at += stop - start
        for numbered, value in zip(split.numbered, values, strict=True):
            if not value:
                continue
            _, content = strings[value]
            offset = numbered.slot.offset
            if numbered.kind == _FIXED:
                assert isinstance(content, bytes), "it was checked"
                state[offset : offset + len(content)] = content
            else:
                struct.pack_into("<I", state, offset, self._strings.acquire(content))
        return state


class _BlockStrings:
    """The strings of one block, numbered from 1 in the order in which flows name them."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._numbers: dict[int | bytes, int] = {}
        self.octets: list[bytes] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, state: bytearray, numbered: _Numbered) -> int:
        """Of a flow's value; 0 of an empty one."""
        offset = numbered.slot.offset
        known: int | bytes
        if numbered.kind == _FIXED:
            known = bytes(state[offset : offset + numbered.slot.element.length])
            if not any(known):
                return EMPTY
        else:
            (known,) = struct.unpack_from("<I", state, offset)
            if known == EMPTY:
                return EMPTY
        found = self._numbers.get(known)
        if found is None:
            found = self._numbers[known] = len(self._numbers) + 1
            content = known if isinstance(known, bytes) else self._strings[known]
            octets = content.encode() if isinstance(content, str) else content
            self.octets.append(_STRING.pack(numbered.kind, len(octets)) + octets)
        return found


def _read_strings(block: memoryview, count: int, octets: int) -> tuple[list[tuple[int, Value]], int]:
    """Kind and content of each, the first that of number 0; and where they end."""
    strings: list[tuple[int, Value]] = [(_TEXT, "")]
    at, end = _BLOCK.size, _BLOCK.size + octets
    if end > len(block):
        raise ValueError("a block is cut short")
    for _ in range(count):
        kind, length = _STRING.unpack_from(block, at)
        at += _STRING.size
        if kind > _FIXED or length > end - at:
            raise ValueError(f"no string at octet {at} of a block")
        content = bytes(block[at : at + length])
        strings.append((kind, content.decode() if kind == _TEXT else content))
        at += length
    if at != end:
        raise ValueError("the strings of a block do not end where they should")
    return strings, at


def _check(split: _Split, values: Sequence[int], strings: Sequence[tuple[int, Value]]) -> None:
    for numbered, value in zip(split.numbered, values, strict=True):
        if not value:
            continue
        if value >= len(strings) or strings[value][0] != numbered.kind:
            raise ValueError(f"{numbered.slot.element.name}: a flow names a string that is none of its own")
        content = strings[value][1]
        if numbered.kind == _FIXED and isinstance(content, bytes) and len(content) != numbered.slot.element.length:
            raise ValueError(f"{numbered.slot.element.name}: {len(content)} octets")
