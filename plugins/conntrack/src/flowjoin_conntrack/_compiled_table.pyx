# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""``_table.ConnectionTable``, compiled: the same answers, faster and smaller.

Strategy: connections lie in pages of structures that never move; 256 small indexes by open addressing find them, so
that no step grows more than one 256th of the whole.
Invariant: nothing is read outside what was given; the tests compare every answer with the plain form's.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memset

import os

from flowjoin_conntrack._table import Seen

include "_row.pxi"

__all__ = ["ConnectionTable"]

cdef enum:
    # flags and states, as in _table
    LEFT_OUT = 1
    QUEUED = 2
    ACTIVE = 4
    LOOKED = 8
    EXPORTED = 16
    GONE = 64
    FREE = 128
    TIME_WAIT = 7
    CLOSE = 8
    NO_STATE_BEFORE = 254
    PAGE_SLOTS = 4096
    INDEXES = 256
    FIRST_CELLS = 16
    TOLD_OCTETS = 94  # as _told.TOLD packs it


cdef inline void put_big64(uint8_t *at, uint64_t value) noexcept nogil:
    cdef int number
    for number in range(8):
        at[7 - number] = value & 0xFF
        value >>= 8


cdef struct Flow:
    double changed_at
    uint64_t first_seen
    uint64_t last_seen
    uint64_t before[4]
    uint32_t seen_in
    uint32_t hash
    uint8_t state_before
    uint8_t flags
    uint8_t row[ROW_OCTETS]


cdef struct Index:
    uint32_t *cells  # slot + 1; 0 is empty
    uint32_t size  # a power of two
    uint32_t used


cdef inline bint is_over(uint8_t state) noexcept nogil:
    return state == TIME_WAIT or state == CLOSE


cdef bint is_younger(const uint8_t *row, const uint8_t *known) noexcept nogil:
    cdef int number
    if is_over(known[STATE_AT]) and not is_over(row[STATE_AT]):
        return True
    for number in range(4):
        if big64(row + PACKETS_AT + 8 * number) < big64(known + PACKETS_AT + 8 * number):
            return True
    return False


@cython.final
cdef class ConnectionTable:
    """As ``_table.ConnectionTable``."""

    cdef Flow **_pages
    cdef Index _indexes[INDEXES]
    cdef Py_ssize_t _slots, _page_count
    cdef uint64_t _secret[2]
    cdef list _free

    def __cinit__(self):
        cdef int number
        cdef bytes secret = os.urandom(16)  # who connects chooses ports, and must not choose cells
        memcpy(self._secret, PyBytes_AS_STRING(secret), 16)
        self._secret[0] |= 1
        self._secret[1] |= 1
        self._free = []
        self._pages = NULL
        memset(self._indexes, 0, sizeof(self._indexes))
        for number in range(INDEXES):
            self._indexes[number].cells = <uint32_t *>calloc(FIRST_CELLS, sizeof(uint32_t))
            self._indexes[number].size = FIRST_CELLS
            if self._indexes[number].cells == NULL:
                raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t number
        for number in range(INDEXES):
            free(self._indexes[number].cells)
        for number in range(self._page_count):
            free(self._pages[number])
        free(self._pages)

    def __len__(self):
        return self._slots - len(self._free)

    @property
    def slots(self):
        return self._slots

    cdef inline Flow *_flow(self, Py_ssize_t slot) noexcept nogil:
        return &self._pages[slot // PAGE_SLOTS][slot % PAGE_SLOTS]

    cdef Flow *_used(self, Py_ssize_t slot) except NULL:
        if not 0 <= slot < self._slots or self._flow(slot).flags & FREE:
            raise IndexError(f"slot {slot} is not in use")
        return self._flow(slot)

    cdef inline uint32_t _hash(self, const uint8_t *row) noexcept nogil:
        """Of the identity; multiplied with a secret, step by step, so that nobody outside can make collisions."""
        cdef uint64_t value = self._secret[0]
        cdef uint64_t part
        cdef int at
        for at in range(0, 40, 8):
            memcpy(&part, row + at, 8)
            value = (value ^ part) * self._secret[1]
            value ^= value >> 29
        value = (value ^ native32(row + 40)) * self._secret[1]
        value ^= value >> 32
        value *= self._secret[0]
        return <uint32_t>(value >> 32)

    cdef Py_ssize_t _find(self, const uint8_t *row, uint32_t hash) noexcept nogil:
        cdef Index *index = &self._indexes[hash >> 24]
        cdef uint32_t mask = index.size - 1
        cdef uint32_t at = hash & mask
        cdef Flow *flow
        while index.cells[at]:
            flow = self._flow(index.cells[at] - 1)
            if flow.hash == hash and memcmp(flow.row, row, IDENTITY_OCTETS) == 0:
                return index.cells[at] - 1
            at = (at + 1) & mask
        return -1

    cdef int _enter(self, Py_ssize_t slot) except -1:
        cdef uint32_t hash = self._flow(slot).hash
        cdef Index *index = &self._indexes[hash >> 24]
        cdef uint32_t *cells
        cdef uint32_t old, number
        if (index.used + 1) * 4 > index.size * 3:
            cells = <uint32_t *>calloc(index.size * 2, sizeof(uint32_t))
            if cells == NULL:
                raise MemoryError
            for number in range(index.size):
                old = index.cells[number]
                if old:
                    self._put(cells, index.size * 2 - 1, old)
            free(index.cells)
            index.cells = cells
            index.size *= 2
        self._put(index.cells, index.size - 1, <uint32_t>slot + 1)
        index.used += 1
        return 0

    cdef void _put(self, uint32_t *cells, uint32_t mask, uint32_t cell) noexcept nogil:
        cdef uint32_t at = self._flow(cell - 1).hash & mask
        while cells[at]:
            at = (at + 1) & mask
        cells[at] = cell

    cdef void _leave(self, Py_ssize_t slot) noexcept nogil:
        """Take it out of its index, and move up those that stood behind it."""
        cdef uint32_t hash = self._flow(slot).hash
        cdef Index *index = &self._indexes[hash >> 24]
        cdef uint32_t mask = index.size - 1
        cdef uint32_t at = hash & mask
        cdef uint32_t behind, home
        while index.cells[at] != <uint32_t>slot + 1:
            if index.cells[at] == 0:
                return  # its identity is another's
            at = (at + 1) & mask
        behind = at
        while True:
            behind = (behind + 1) & mask
            if index.cells[behind] == 0:
                break
            home = self._flow(index.cells[behind] - 1).hash & mask
            if ((behind - home) & mask) >= ((behind - at) & mask):
                index.cells[at] = index.cells[behind]
                at = behind
        index.cells[at] = 0
        index.used -= 1

    cdef inline void _compare(self, Flow *flow) noexcept nogil:
        if (
            big64(flow.row + PACKETS_AT) > flow.before[0]
            or big64(flow.row + REVERSE_PACKETS_AT) > flow.before[2]
            or flow.row[STATE_AT] != flow.state_before
        ):
            flow.flags |= ACTIVE
        else:
            flow.flags &= ~ACTIVE

    def see(self, const uint8_t[::1] rows not None, uint32_t poll, double now, uint64_t wall):
        cdef list unknown = []
        cdef list renewed = []
        cdef list woken = []
        cdef Py_ssize_t at, slot
        cdef const uint8_t *row
        cdef Flow *flow
        cdef bint is_dated
        for at in range(0, rows.shape[0] - ROW_OCTETS + 1, ROW_OCTETS):
            row = &rows[at]
            slot = self._find(row, self._hash(row))
            if slot < 0:
                unknown.append(at)
                continue
            flow = self._flow(slot)
            is_dated = big64(row + START_AT) != 0 and big64(flow.row + START_AT) != 0
            if is_dated and memcmp(flow.row + START_AT, row + START_AT, 8):
                renewed.append(at)
                continue
            if flow.flags & GONE:
                continue
            if not is_dated and is_younger(row, flow.row):
                renewed.append(at)
                continue
            flow.seen_in = poll
            flow.flags |= LOOKED
            if is_over(flow.row[STATE_AT]):
                continue
            flow.last_seen = wall
            if memcmp(flow.row, row, ROW_OCTETS):
                memcpy(flow.row, row, ROW_OCTETS)
                self._compare(flow)
            if flow.flags & (ACTIVE | LEFT_OUT) == ACTIVE:
                flow.changed_at = now
                if not flow.flags & QUEUED:
                    woken.append(slot)
        return Seen(unknown, renewed, woken)

    def find(self, const uint8_t[::1] row not None):
        assert row.shape[0] == ROW_OCTETS
        return self._find(&row[0], self._hash(&row[0]))

    def add(self, const uint8_t[::1] row not None, uint32_t poll, double now, uint64_t wall):
        cdef Py_ssize_t slot
        cdef Flow *flow
        assert row.shape[0] == ROW_OCTETS
        assert self._find(&row[0], self._hash(&row[0])) < 0
        slot = self._free.pop() if self._free else self._new_slot()
        flow = self._flow(slot)
        memset(flow, 0, sizeof(Flow))
        memcpy(flow.row, &row[0], ROW_OCTETS)
        flow.hash = self._hash(&row[0])
        flow.state_before = NO_STATE_BEFORE
        flow.flags = ACTIVE | LOOKED
        flow.seen_in = poll
        flow.first_seen = wall
        flow.last_seen = wall
        flow.changed_at = now
        self._enter(slot)
        return slot

    cdef Py_ssize_t _new_slot(self) except -1:
        cdef Flow **pages
        cdef Flow *page
        if self._slots == self._page_count * PAGE_SLOTS:
            page = <Flow *>malloc(PAGE_SLOTS * sizeof(Flow))
            pages = <Flow **>realloc(self._pages, (self._page_count + 1) * sizeof(Flow *))
            if pages != NULL:
                self._pages = pages
            if page == NULL or pages == NULL:
                free(page)
                raise MemoryError
            self._pages[self._page_count] = page
            self._page_count += 1
        self._slots += 1
        return self._slots - 1

    def replace(self, Py_ssize_t slot, const uint8_t[::1] row not None, uint32_t poll, double now, uint64_t wall):
        cdef Flow *flow = self._used(slot)
        assert row.shape[0] == ROW_OCTETS
        assert memcmp(flow.row, &row[0], IDENTITY_OCTETS) == 0
        memcpy(flow.row, &row[0], ROW_OCTETS)
        flow.seen_in = poll
        flow.last_seen = wall
        flow.flags |= LOOKED
        self._compare(flow)
        if not flow.flags & ACTIVE:
            return False
        flow.changed_at = now
        return True

    def row(self, Py_ssize_t slot):
        return PyBytes_FromStringAndSize(<char *>self._used(slot).row, ROW_OCTETS)

    def flags(self, Py_ssize_t slot):
        if not 0 <= slot < self._slots:
            raise IndexError(f"slot {slot} was never in use")
        return self._flow(slot).flags

    def set_flags(self, Py_ssize_t slot, int on, int off=0):
        cdef Flow *flow = self._used(slot)
        flow.flags = <uint8_t>(flow.flags & ~off | on)

    def seen_in(self, Py_ssize_t slot):
        return self._used(slot).seen_in

    def seen(self, Py_ssize_t slot):
        cdef Flow *flow = self._used(slot)
        return flow.first_seen, flow.last_seen

    def changed_at(self, Py_ssize_t slot):
        return self._used(slot).changed_at

    def before(self, Py_ssize_t slot):
        cdef Flow *flow = self._used(slot)
        return flow.before[0], flow.before[1], flow.before[2], flow.before[3]

    def exported(self, Py_ssize_t slot):
        cdef Flow *flow = self._used(slot)
        cdef int number
        for number in range(4):
            flow.before[number] = big64(flow.row + PACKETS_AT + 8 * number)
        flow.state_before = flow.row[STATE_AT]
        flow.flags = flow.flags & ~(ACTIVE | LOOKED) | EXPORTED

    def restore(self, Py_ssize_t slot, uint64_t first_seen, before, uint8_t state_before, int flags):
        cdef Flow *flow = self._used(slot)
        cdef int number
        for number in range(4):
            flow.before[number] = before[number]
        flow.first_seen = first_seen
        flow.state_before = state_before
        flow.flags = <uint8_t>(flow.flags & ~EXPORTED | flags)
        self._compare(flow)
        return flow.flags & ACTIVE != 0

    def told(self, Py_ssize_t start, Py_ssize_t stop):
        cdef list found = []
        cdef Py_ssize_t slot
        cdef Flow *flow
        cdef uint8_t *at
        cdef int number
        for slot in range(max(start, 0), min(stop, self._slots)):
            flow = self._flow(slot)
            if flow.flags & (EXPORTED | GONE | FREE) != EXPORTED:
                continue
            record = PyBytes_FromStringAndSize(NULL, TOLD_OCTETS)
            at = <uint8_t *>PyBytes_AS_STRING(record)
            memcpy(at, flow.row, IDENTITY_OCTETS)
            memcpy(at + IDENTITY_OCTETS, flow.row + START_AT, 8)
            at += IDENTITY_OCTETS + 8
            put_big64(at, flow.first_seen)
            for number in range(4):
                put_big64(at + 8 + 8 * number, flow.before[number])
            at[40] = flow.state_before
            at[41] = flow.flags
            found.append((slot, record))
        return found

    def detach(self, Py_ssize_t slot):
        self._used(slot).flags |= GONE
        self._leave(slot)

    def free(self, Py_ssize_t slot):
        self.detach(slot)
        self._flow(slot).flags = FREE
        self._free.append(slot)

    def absent(self, uint32_t poll, Py_ssize_t start, Py_ssize_t stop):
        cdef list found = []
        cdef Py_ssize_t slot
        cdef Flow *flow
        for slot in range(max(start, 0), min(stop, self._slots)):
            flow = self._flow(slot)
            if (flow.seen_in < poll or flow.flags & GONE) and not flow.flags & FREE:
                found.append(slot)
        return found
