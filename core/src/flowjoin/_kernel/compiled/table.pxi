# All stored flows: see flow_table.py, expiry.py and eviction.py, which do the same.

cdef enum:
    READY = 1
    UPDATED = 2
    ENRICHED = 4
    RETRIES_SHIFT = 4  # the flags' upper half is a half's retries
    MAXIMUM_RETRIES = 2
    FLOW_BITS = 12
    FLOWS = 1 << FLOW_BITS  # of a segment
    NOBODY = 0xFFFFFFFF

# Packed, and the state by number: there may be millions.
cdef packed struct Flow:
    double active  # deadline of the next export
    double seen  # when the last record came; the idle deadline is one idle timeout later
    uint32_t block  # of key and state; NOWHERE: no flow has this handle
    uint32_t place  # in the queue
    uint32_t before  # in the order of eviction; of a free handle, in ``after``, the next one
    uint32_t after
    uint8_t layout
    uint8_t flags

cdef packed struct Due:
    double deadline
    uint64_t serial
    uint32_t handle

cdef struct Departed:
    uint32_t block
    uint8_t layout
    bint is_enriched

cdef struct Chain:
    uint32_t first
    uint32_t last


cdef inline bint is_before(const Due* one, const Due* other) noexcept:
    return one.deadline < other.deadline or (one.deadline == other.deadline and one.serial < other.serial)


@cython.final
cdef class Table:
    cdef Strings strings
    cdef list layouts
    cdef PyObject* layout_at[4]
    cdef uint64_t limit
    cdef double active_timeout
    cdef double idle_timeout
    cdef uint64_t seeds[4]
    cdef Index index
    cdef Flow** segments
    cdef uint32_t segment_count
    cdef uint32_t slots  # all handles ever given are below
    cdef uint32_t free  # the handle freed last
    cdef uint32_t held
    cdef uint64_t next_serial
    # the queue: a binary heap in which every flow has one place, and knows it
    cdef Due* queue
    cdef uint32_t queue_size
    cdef uint32_t queue_room
    # the order of eviction
    cdef Chain ready  # by the time of their last record
    cdef Chain waiting  # as they were stored
    cdef uint32_t waiting_count
    cdef Candidates candidates  # of the ready flows longest without a record
    cdef double candidates_seen
    cdef bint has_candidates
    # rows of evicted flows, a ring
    cdef Departed* departed
    cdef uint32_t departed_first
    cdef uint32_t departed_count
    cdef uint32_t departed_room
    cdef uint32_t departed_limit
    # counters
    cdef uint64_t created
    cdef uint64_t exported_last
    cdef uint64_t given_up
    cdef uint64_t evicted

    def __cinit__(self, Strings strings, list layouts, limits, departed_limit, seeds):
        cdef int at
        index_open(&self.index)
        self.candidates = Candidates()
        self.strings = strings
        self.layouts = layouts
        for at in range(4):
            self.layout_at[at] = <PyObject*>layouts[at]
            self.seeds[at] = seeds[at]
        self.limit = min(limits.flows, 0xFFFFFFF0)
        self.active_timeout = limits.active_timeout
        self.idle_timeout = limits.idle_timeout
        self.departed_limit = departed_limit
        self.free = NOBODY
        self.ready.first = self.ready.last = self.waiting.first = self.waiting.last = NOBODY

    def __dealloc__(self):
        cdef uint32_t at
        for at in range(self.segment_count):
            free(self.segments[at])
        free(self.segments)
        free(self.queue)
        free(self.departed)
        index_close(&self.index)

    cdef inline Flow* flow(self, uint32_t handle) noexcept:
        return self.segments[handle >> FLOW_BITS] + (handle & (FLOWS - 1))

    cdef inline Layout layout_of(self, const Flow* flow):
        return <Layout>self.layout_at[flow.layout]

    cdef inline uint64_t serial(self, const Flow* flow) noexcept:
        return self.queue[flow.place].serial

    cdef inline uint32_t hash_key(self, const uint8_t* key, uint32_t size) noexcept:
        return hash_octets(key, size, self.seeds)

    cdef inline uint32_t find(self, const uint8_t* key, Layout layout, uint32_t hash) noexcept:
        """The handle of a key's flow, or NOBODY."""
        cdef uint64_t walk = 0
        cdef int64_t number
        cdef Flow* flow
        while True:
            number = index_next(&self.index, hash, &walk)
            if number < 0:
                return NOBODY
            flow = self.flow(<uint32_t>number)
            if flow.layout == layout.number and are_equal(
                layout.state(flow.block) - layout.key_size, key, layout.key_size
            ):
                return <uint32_t>number

    cdef inline bint has_room(self) noexcept:
        return self.held < self.limit or self.departed_count < self.departed_limit

    cdef int reserve(self) except -1:
        """Make sure that one more flow can be stored and no memory fails meanwhile."""
        index_reserve(&self.index)
        if self.free == NOBODY and self.slots >> FLOW_BITS == self.segment_count:
            self.segments = <Flow**>grown(self.segments, (self.segment_count + 1) * sizeof(Flow*))
            self.segments[self.segment_count] = <Flow*>zeroed(FLOWS, sizeof(Flow))
            want_pages(self.segments[self.segment_count], FLOWS * sizeof(Flow))
            self.segment_count += 1
        if self.queue_size == self.queue_room:
            self.queue = <Due*>grown(self.queue, (<size_t>self.queue_room + self.queue_room // 2 + 1024) * sizeof(Due))
            self.queue_room += self.queue_room // 2 + 1024
        return 0

    cdef int store(self, Layout layout, uint32_t block, uint32_t hash, bint is_ready, double now) except -1:
        """Store a new flow whose key and state are in a block; at the limit another leaves first."""
        cdef uint32_t handle
        cdef Flow* flow
        while self.held >= self.limit:
            self.evict()
        self.reserve()
        handle = self.free
        if handle == NOBODY:
            handle = self.slots
            self.slots += 1
            flow = self.flow(handle)
        else:
            flow = self.flow(handle)
            self.free = flow.after
        flow.block = block
        flow.layout = layout.number
        flow.flags = UPDATED | (READY if is_ready else 0)
        flow.active = now if is_ready else now + self.active_timeout
        flow.seen = now
        self.push(handle, flow)
        if is_ready:
            self.add_ready(handle, flow)
        else:
            self.append(&self.waiting, handle, flow)
            self.waiting_count += 1
        index_add(&self.index, hash, handle)
        self.held += 1
        self.created += 1
        return 0

    cdef int touch(self, uint32_t handle, Flow* flow, double now, bint joins) except -1:
        """A record came for the flow; with ``joins`` it was the other half, and the flow is ready now."""
        if joins:
            flow.active = now
            self.unlink(&self.waiting, flow)
            self.waiting_count -= 1
            flow.seen = now
            flow.flags |= READY
            self.add_ready(handle, flow)
        elif flow.flags & READY and flow.seen != now:
            self.unlink(&self.ready, flow)
            flow.seen = now
            self.add_ready(handle, flow)
        else:
            flow.seen = now
        flow.flags |= UPDATED
        self.move(flow)
        return 0

    # --- the queue

    cdef inline double deadline(self, const Flow* flow) noexcept:
        cdef double idle = flow.seen + self.idle_timeout
        return flow.active if flow.active <= idle else idle

    cdef void push(self, uint32_t handle, Flow* flow) noexcept:
        cdef uint32_t place = self.queue_size
        self.queue_size += 1
        self.queue[place].deadline = self.deadline(flow)
        self.queue[place].serial = self.next_serial
        self.queue[place].handle = handle
        self.next_serial += 1
        self.rise(place)

    cdef inline void move(self, Flow* flow) noexcept:
        """Give a flow its deadline anew."""
        cdef double deadline = self.deadline(flow), before = self.queue[flow.place].deadline
        if deadline == before:
            return
        self.queue[flow.place].deadline = deadline
        if deadline < before:
            self.rise(flow.place)
        else:
            self.sink(flow.place)

    cdef void take_out(self, uint32_t place) noexcept:
        cdef Due last
        cdef bint rises
        self.queue_size -= 1
        if place == self.queue_size:
            return
        last = self.queue[self.queue_size]
        rises = is_before(&last, self.queue + place)
        self.queue[place] = last
        if rises:
            self.rise(place)
        else:
            self.sink(place)

    cdef void rise(self, uint32_t place) noexcept:
        cdef Due entry = self.queue[place]
        cdef uint32_t parent
        while place:
            parent = (place - 1) >> 1
            if is_before(self.queue + parent, &entry):
                break
            self.queue[place] = self.queue[parent]
            self.flow(self.queue[place].handle).place = place
            place = parent
        self.queue[place] = entry
        self.flow(entry.handle).place = place

    cdef void sink(self, uint32_t place) noexcept:
        cdef Due entry = self.queue[place]
        cdef uint64_t child
        while True:
            child = 2 * <uint64_t>place + 1
            if child >= self.queue_size:
                break
            if child + 1 < self.queue_size and is_before(self.queue + child + 1, self.queue + child):
                child += 1
            if is_before(&entry, self.queue + child):
                break
            self.queue[place] = self.queue[child]
            self.flow(self.queue[place].handle).place = place
            place = <uint32_t>child
        self.queue[place] = entry
        self.flow(entry.handle).place = place

    # --- the order of eviction

    cdef inline void append(self, Chain* chain, uint32_t handle, Flow* flow) noexcept:
        flow.before = chain.last
        flow.after = NOBODY
        if chain.last == NOBODY:
            chain.first = handle
        else:
            self.flow(chain.last).after = handle
        chain.last = handle

    cdef inline void unlink(self, Chain* chain, Flow* flow) noexcept:
        if flow.before == NOBODY:
            chain.first = flow.after
        else:
            self.flow(flow.before).after = flow.after
        if flow.after == NOBODY:
            chain.last = flow.before
        else:
            self.flow(flow.after).before = flow.before

    cdef int add_ready(self, uint32_t handle, Flow* flow) except -1:
        """Add a flow whose last record came at ``seen``, which is now."""
        self.append(&self.ready, handle, flow)
        if self.has_candidates and self.candidates_seen == flow.seen:
            self.candidates.add(handle, self.serial(flow))
        return 0

    cdef uint32_t first_to_leave(self) except? 0xFFFFFFFE:
        cdef uint32_t handle = self.ready.first
        cdef double seen
        cdef Flow* flow
        if handle == NOBODY:
            return self.waiting.first
        seen = self.flow(handle).seen
        if not self.has_candidates or self.candidates_seen != seen:
            self.candidates.count = 0
            self.has_candidates = True
            self.candidates_seen = seen
            while handle != NOBODY:
                flow = self.flow(handle)
                if flow.seen != seen:
                    break
                self.candidates.add(handle, self.serial(flow))
                handle = flow.after
        while True:  # flows that were seen again, or have left, are still among them
            handle = self.candidates.entries[0].handle
            flow = self.flow(handle)
            if flow.block != NOWHERE and flow.flags & READY and flow.seen == seen \
                    and self.serial(flow) == self.candidates.entries[0].serial:
                return handle
            self.candidates.drop()

    cdef int evict(self) except -1:
        cdef uint32_t handle = self.first_to_leave(), room, at
        cdef Flow* flow = self.flow(handle)
        cdef uint8_t flags = flow.flags
        cdef Layout layout = self.layout_of(flow)
        cdef Departed* larger
        if flags & UPDATED and self.departed_count == self.departed_room:
            room = 2 * self.departed_room + 64
            larger = <Departed*>zeroed(room, sizeof(Departed))
            for at in range(self.departed_count):
                larger[at] = self.departed[(self.departed_first + at) % self.departed_room]
            free(self.departed)
            self.departed, self.departed_room, self.departed_first = larger, room, 0
        self.evicted += 1
        cdef uint32_t block = self.remove(handle)
        if flags & UPDATED:  # without a record since its last export there is nothing new to say
            at = (self.departed_first + self.departed_count) % self.departed_room
            self.departed[at].block = block
            self.departed[at].layout = layout.number
            self.departed[at].is_enriched = flags & ENRICHED
            self.departed_count += 1
        else:
            self.release(layout, block)
        return 0

    cdef uint32_t remove(self, uint32_t handle) noexcept:
        """Take a flow out; gives its block, whose state still holds its strings."""
        cdef Flow* flow = self.flow(handle)
        cdef Layout layout = self.layout_of(flow)
        cdef uint32_t block = flow.block
        if flow.flags & READY:
            self.unlink(&self.ready, flow)
        else:
            self.unlink(&self.waiting, flow)
            self.waiting_count -= 1
        self.take_out(flow.place)
        index_remove(&self.index, self.hash_key(layout.state(block) - layout.key_size, layout.key_size), handle)
        flow.block = NOWHERE
        flow.after = self.free
        self.free = handle
        self.held -= 1
        return block

    cdef void release(self, Layout layout, uint32_t block) noexcept:
        """Let go of a block and of its state's strings."""
        cdef uint8_t* state = layout.state(block)
        cdef uint32_t at
        for at in range(layout.text_count):
            self.strings.let_go(load32(state + layout.texts_at + 4 * at))
        layout.free_block(block)
