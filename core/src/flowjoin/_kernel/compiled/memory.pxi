# What every other part stands on: C types, loads and stores, and a hash index that grows in small steps.

cdef extern from "compiled/octets.h" nogil:
    uint64_t load64(const void* at) noexcept
    uint32_t load32(const void* at) noexcept
    uint16_t load16(const void* at) noexcept
    double load_double(const void* at) noexcept
    void store64(void* at, uint64_t value) noexcept
    void store32(void* at, uint32_t value) noexcept
    void store16(void* at, uint16_t value) noexcept
    void store_double(void* at, double value) noexcept
    uint64_t wire64(const void* at) noexcept
    uint32_t wire32(const void* at) noexcept
    uint16_t wire16(const void* at) noexcept
    float wire_float(const void* at) noexcept
    double wire_double(const void* at) noexcept
    uint64_t wire_number(const uint8_t* at, unsigned size) noexcept
    void store_number(uint8_t* at, uint64_t value, unsigned size) noexcept
    uint64_t load_number(const uint8_t* at, unsigned size) noexcept
    bint is_zero(const uint8_t* at, size_t size) noexcept
    bint are_equal(const uint8_t* one, const uint8_t* other, size_t size) noexcept
    uint32_t hash_octets(const uint8_t* at, size_t size, const uint64_t* seeds) noexcept


cdef extern from "compiled/pages.h" nogil:
    void want_pages(void* block, size_t octets) noexcept


cdef void* grown(void* block, size_t octets) except NULL:
    cdef void* larger = realloc(block, octets)
    if larger == NULL:
        raise MemoryError
    return larger


cdef void* zeroed(size_t count, size_t size) except NULL:
    cdef void* block = calloc(count, size)
    if block == NULL:
        raise MemoryError
    return block


# An open-addressing index from hash to number, with linear probing. While it grows, the smaller table is
# emptied a few places with each insertion: no call ever pays for a whole table.
cdef struct Place:
    uint32_t hash
    uint32_t number  # plus one; 0: nothing is here

cdef struct Index:
    Place* places
    uint32_t capacity
    uint32_t used  # of both tables
    Place* old
    uint32_t old_capacity
    uint32_t moved  # places of the old table that are empty now

cdef enum:
    GONE = 0xFFFFFFFF  # in the old table: was taken out
    LEAST_CAPACITY = 1024
    PLACES_PER_STEP = 8


cdef inline uint32_t home(uint32_t hash, uint32_t capacity) noexcept:
    return <uint32_t>((<uint64_t>hash * capacity) >> 32)


cdef int index_open(Index* index) except -1:
    index.places = <Place*>zeroed(LEAST_CAPACITY, sizeof(Place))
    index.capacity = LEAST_CAPACITY
    index.used = 0
    index.old = NULL
    index.old_capacity = 0
    index.moved = 0
    return 0


cdef void index_close(Index* index) noexcept:
    free(index.places)
    free(index.old)
    index.places = index.old = NULL


cdef inline uint32_t following(uint32_t at, uint32_t capacity) noexcept:
    return 0 if at + 1 == capacity else at + 1


cdef inline void index_put(Index* index, uint32_t hash, uint32_t number) noexcept:
    cdef uint32_t at = home(hash, index.capacity)
    while index.places[at].number:
        at = following(at, index.capacity)
    index.places[at].hash = hash
    index.places[at].number = number


cdef void index_step(Index* index, uint32_t count) noexcept:
    """Move some places of the old table."""
    cdef Place* place
    while count and index.old != NULL:
        place = index.old + index.moved
        if place.number and place.number != GONE:
            index_put(index, place.hash, place.number)
            place.number = GONE  # a probe in the old table goes on behind it
        index.moved += 1
        count -= 1
        if index.moved == index.old_capacity:
            free(index.old)
            index.old = NULL


cdef int index_reserve(Index* index) except -1:
    """Make sure that one more finds room."""
    cdef uint32_t capacity
    cdef Place* places
    index_step(index, PLACES_PER_STEP)
    if <uint64_t>(index.used + 1) * 5 <= <uint64_t>index.capacity * 4:
        return 0
    index_step(index, GONE)
    if index.capacity > 0x80000000:
        raise MemoryError
    capacity = index.capacity + index.capacity // 2
    places = <Place*>zeroed(capacity, sizeof(Place))
    index.old, index.old_capacity, index.moved = index.places, index.capacity, 0
    index.places, index.capacity = places, capacity
    return 0


cdef inline void index_add(Index* index, uint32_t hash, uint32_t number) noexcept:
    """Add a number that is not there, after ``index_reserve``."""
    index_put(index, hash, number + 1)
    index.used += 1


# A walk over the numbers of one hash: begin with 0 and ask until it gives -1.
cdef inline int64_t index_next(const Index* index, uint32_t hash, uint64_t* walk) noexcept:
    cdef uint32_t at, capacity
    cdef const Place* places
    cdef bint is_old = walk[0] >> 63
    if walk[0] == 0:
        at = home(hash, index.capacity)
    else:
        at = <uint32_t>walk[0]
    while True:
        places = index.old if is_old else index.places
        capacity = index.old_capacity if is_old else index.capacity
        while places[at].number:
            if places[at].hash == hash and places[at].number != GONE:
                walk[0] = (<uint64_t>is_old << 63) | (<uint64_t>1 << 62) | following(at, capacity)
                return <int64_t>places[at].number - 1
            at = following(at, capacity)
        if is_old or index.old == NULL:
            return -1
        is_old = True
        at = home(hash, index.old_capacity)


cdef void index_remove(Index* index, uint32_t hash, uint32_t number) noexcept:
    cdef uint32_t capacity = index.capacity
    cdef uint32_t at = home(hash, capacity), empty, start
    cdef Place* places = index.places
    number += 1
    index.used -= 1
    while places[at].number and places[at].number != number:
        at = following(at, capacity)
    if not places[at].number:  # it has not been moved yet
        at = home(hash, index.old_capacity)
        while index.old[at].number != number:
            at = following(at, index.old_capacity)
        index.old[at].number = GONE
        return
    # Close the gap, so that no probe ends before its time.
    empty = at
    while True:
        at = following(at, capacity)
        if not places[at].number:
            break
        start = home(places[at].hash, capacity)
        # what lies behind the gap moves into it, unless its own place is between the two
        if (empty < start <= at) if empty <= at else (start > empty or start <= at):
            continue
        places[empty] = places[at]
        empty = at
    places[empty].number = 0
