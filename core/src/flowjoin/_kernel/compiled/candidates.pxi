# Who would leave first, of flows whose last record came at one time: a heap by serial. See eviction.py.

cdef struct Candidate:
    uint64_t serial
    uint32_t handle


@cython.final
cdef class Candidates:
    """Flows by serial; those that were seen again, or have left, are still among them."""
    cdef Candidate* entries
    cdef uint32_t count
    cdef uint32_t room

    def __dealloc__(self):
        free(self.entries)

    cdef int add(self, uint32_t handle, uint64_t serial) except -1:
        cdef uint32_t place = self.count, parent
        if place == self.room:
            self.entries = <Candidate*>grown(self.entries, (<size_t>place + place // 2 + 64) * sizeof(Candidate))
            self.room += place // 2 + 64
        self.count += 1
        while place:
            parent = (place - 1) >> 1
            if self.entries[parent].serial <= serial:
                break
            self.entries[place] = self.entries[parent]
            place = parent
        self.entries[place].serial = serial
        self.entries[place].handle = handle
        return 0

    cdef void drop(self) noexcept:
        """Take the first one out."""
        cdef Candidate entry
        cdef uint64_t place = 0, child
        self.count -= 1
        entry = self.entries[self.count]
        while True:
            child = 2 * place + 1
            if child >= self.count:
                break
            if child + 1 < self.count and self.entries[child + 1].serial < self.entries[child].serial:
                child += 1
            if entry.serial <= self.entries[child].serial:
                break
            self.entries[place] = self.entries[child]
            place = child
        self.entries[place] = entry
