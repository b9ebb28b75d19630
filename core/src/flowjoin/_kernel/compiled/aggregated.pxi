# Antrea's flows: see aggregated.py, which does the same and says why.

cdef enum:
    COMMON_AT = 0
    SOURCE_AT = 64
    DESTINATION_AT = 128
    THROUGHPUT_AT = 192
    START_AT = 240
    END_AT = 244
    SOURCE_END_AT = 248
    DESTINATION_END_AT = 252
    REASON_AT = 256
    SIDE_AT = 257
    DELTA_OCTETS = 32
    THROUGHPUT_OCTETS = 48

cdef enum:
    NEITHER = 0
    OF_SOURCE = 1
    OF_DESTINATION = 2
    INTER_NODE = 2
    FROM_EXTERNAL = 4
    DROP = 2
    REJECT = 3
    END_OF_FLOW = 3

cdef uint64_t NEGATIVE = <uint64_t>1 << 63
cdef bytes EMPTY_OBJECT = b"{}"


@cython.final
cdef class Aggregated:
    cdef Table table
    cdef Strings strings
    cdef uint64_t records_created, records_merged, records_older, table_full, counters_clamped, http_vals_replaced

    cdef bytes cluster
    cdef Found cluster_id  # of flows whose records bring none

    def __cinit__(self, Table table, bytes cluster):
        self.table = table
        self.strings = table.strings
        self.cluster = cluster
        self.cluster_id.octets = <const uint8_t*>PyBytes_AS_STRING(cluster)
        self.cluster_id.length = <uint32_t>len(cluster)

    cdef int merge(self, Rows rows, double now) except -1:
        """Merge a row: create its flow, or change it."""
        cdef Layout layout = rows.layout
        cdef Table table = self.table
        cdef uint8_t* row = rows.row
        cdef uint8_t* state
        cdef uint8_t key[MAXIMUM_KEY]
        cdef uint32_t size = layout.address_size, hash, handle, block
        cdef Flow* flow
        cdef uint8_t flow_type = row[layout.flow_type]
        cdef uint8_t ingress_action = row[layout.ingress_action], egress_action = row[layout.egress_action]
        cdef bint has_source_pod = rows.texts[layout.source_pod].length != 0
        cdef bint has_destination_pod = rows.texts[layout.destination_pod].length != 0
        cdef bint is_external_half = (
            flow_type == FROM_EXTERNAL and not has_destination_pod and not is_zero(row + layout.snat, size)
        )
        cdef bint needs_join = (
            (flow_type == INTER_NODE or is_external_half)
            and egress_action != DROP and egress_action != REJECT and ingress_action != REJECT
        )
        cdef uint8_t side
        cdef bint joins = False, is_changed
        if is_external_half or (has_source_pod and not has_destination_pod):
            side = OF_SOURCE
        else:
            side = OF_DESTINATION if has_destination_pod and not has_source_pod else NEITHER
        memcpy(key, row + (layout.snat if is_external_half else layout.source), size)
        memcpy(key + size, row + layout.destination, size)
        store16(key + 2 * size, wire16(row + (layout.snat_port if is_external_half else layout.ports)))
        store16(key + 2 * size + 2, wire16(row + layout.ports + 2))
        key[2 * size + 4] = row[layout.protocol]

        hash = table.hash_key(key, layout.key_size)
        handle = table.find(key, layout, hash)
        if handle == NOBODY:
            if not table.has_room():
                self.table_full += 1
                return 0
            block = layout.new_block()
            state = layout.state(block)
            memcpy(state - layout.key_size, key, layout.key_size)
            self.begin(state, rows, side, needs_join)
            table.store(layout, block, hash, not needs_join, now)
            self.records_created += 1
            return 0
        flow = table.flow(handle)
        state = layout.state(flow.block)
        if needs_join and not flow.flags & READY:
            joins = side == NEITHER or side != state[SIDE_AT]
            if joins:
                self.join(state, rows, is_external_half)
        is_changed = self.aggregate(state, rows, side, needs_join)
        table.touch(handle, flow, now, joins)
        if joins or is_changed:
            self.records_merged += 1
        else:
            self.records_older += 1
        return 0

    cdef int begin(self, uint8_t* state, Rows rows, uint8_t side, bint needs_join) except -1:
        """Make the state of a new flow."""
        cdef Layout layout = rows.layout
        cdef uint32_t at, start, end, number
        cdef uint64_t throughput = 0, reverse_throughput = 0, value
        cdef const Found* found
        cdef bint of_source = not needs_join or side == OF_SOURCE
        cdef bint of_destination = not needs_join or side != OF_SOURCE
        memcpy(state, rows.row, layout.texts_at)
        for at in range(0, DELTA_OCTETS, 8):
            store64(state + COMMON_AT + at, self.clamped(load64(state + COMMON_AT + at)))
        start, end = load32(state + START_AT), load32(state + END_AT)
        if end > start:
            throughput = load64(state + 32) * 8 // (end - start)
            reverse_throughput = load64(state + 48) * 8 // (end - start)
        store64(state + THROUGHPUT_AT, throughput)
        store64(state + THROUGHPUT_AT + 8, reverse_throughput)
        memset(state + SOURCE_AT, 0, 128)
        memset(state + THROUGHPUT_AT + 16, 0, 32)
        if of_source:
            memcpy(state + SOURCE_AT, state + COMMON_AT, 64)
            memcpy(state + THROUGHPUT_AT + 16, state + THROUGHPUT_AT, 16)
        if of_destination:
            memcpy(state + DESTINATION_AT, state + COMMON_AT, 64)
            memcpy(state + THROUGHPUT_AT + 32, state + THROUGHPUT_AT, 16)
        store32(state + SOURCE_END_AT, end if of_source else 0)
        store32(state + DESTINATION_END_AT, end if of_destination else 0)
        state[SIDE_AT] = side
        for at in range(layout.sum_count):
            value = load_number(state + layout.sums[at].slot.offset, layout.sums[at].slot.size)
            store64(state + layout.sums[at].source_at, value if of_source else 0)
            store64(state + layout.sums[at].destination_at, value if of_destination else 0)
        for at in range(layout.text_count):
            found = rows.texts + at
            if at == layout.cluster and found.length == 0:
                found = &self.cluster_id
            number = 0
            if found.length:
                number = self.strings.hold(found.octets, found.length, layout.kinds[at])
            store32(state + layout.texts_at + 4 * at, number)
        return 0

    cdef int join(self, uint8_t* state, Rows rows, bint is_external_half) except -1:
        """The other half came: what it knows fills, or replaces, what the stored half said."""
        cdef Layout layout = rows.layout
        cdef uint32_t at
        for at in range(layout.fill_count):
            fill(layout.fills + at, state, rows, self.strings)
        if is_external_half:  # the stored half took the SNAT address for the source
            for at in range(5):
                memcpy(state + layout.copied[at].offset, rows.row + layout.copied[at].offset, layout.copied[at].size)
        return 0

    cdef bint aggregate(self, uint8_t* state, Rows rows, uint8_t side, bint is_one_sided) except -1:
        """Merge counters, times and what changes with them; False if the side knew as much already."""
        cdef uint8_t* row = rows.row
        cdef Layout layout = rows.layout
        cdef uint32_t start = load32(row + START_AT), end = load32(row + END_AT)
        cdef uint32_t flow_end = load32(state + END_AT), known, previous = 0, at
        cdef bint is_latest = end >= flow_end
        cdef bint of_source = not is_one_sided or side == OF_SOURCE
        cdef bint of_destination = not is_one_sided or side != OF_SOURCE
        if is_latest:
            store32(state + END_AT, end)
        if of_source:
            known = load32(state + SOURCE_END_AT)
            previous = known if known else start
            store32(state + SOURCE_END_AT, end)
        if of_destination:  # of a record that speaks for both, the destination's end counts
            known = load32(state + DESTINATION_END_AT)
            previous = known if known else start
            store32(state + DESTINATION_END_AT, end)
        if end <= previous:
            return False
        if state[REASON_AT] != END_OF_FLOW:
            state[REASON_AT] = row[REASON_AT]
        if rows.has_http_vals:
            self.merge_http_vals(state, rows)
        take_later(rows, state, self.strings, is_latest)
        self.count(state, row, end - previous, of_source, of_destination, is_latest)
        for at in range(layout.sum_count):
            add_up(layout.sums + at, state, row, of_source, of_destination, is_latest)
        return True

    cdef int count(
        self, uint8_t* state, const uint8_t* row, uint32_t seconds, bint of_source, bint of_destination, bint is_latest
    ) except -1:
        cdef uint64_t deltas[4]
        cdef uint64_t octets = 0, reverse_octets = 0, rate, reverse_rate
        cdef bint is_back = False, is_reverse_back = False  # an agent began to count anew
        cdef uint8_t* counters = NULL
        cdef int at, side
        for at in range(4):
            deltas[at] = self.clamped(load64(row + 8 * at))
        for side in range(2):
            if not (of_source if side == 0 else of_destination):
                continue
            counters = state + (SOURCE_AT if side == 0 else DESTINATION_AT)
            octets = load64(row + 32) - load64(counters + 32)
            reverse_octets = load64(row + 48) - load64(counters + 48)
            is_back = load64(row + 32) < load64(counters + 32)
            is_reverse_back = load64(row + 48) < load64(counters + 48)
            for at in range(4):
                store64(counters + 8 * at, load64(counters + 8 * at) + deltas[at])
            memcpy(counters + DELTA_OCTETS, row + DELTA_OCTETS, 32)
        self.counters_clamped += is_back + is_reverse_back
        rate = 0 if is_back else octets * 8 // seconds
        reverse_rate = 0 if is_reverse_back else reverse_octets * 8 // seconds
        for side in range(2):
            if of_source if side == 0 else of_destination:
                store64(state + THROUGHPUT_AT + 16 + 16 * side, rate)
                store64(state + THROUGHPUT_AT + 24 + 16 * side, reverse_rate)
        if is_latest:  # the common counters are those of the side that reported last
            memcpy(state + COMMON_AT, counters, DELTA_OCTETS)
            for at in range(DELTA_OCTETS, 64, 8):
                if load64(row + at) > load64(state + COMMON_AT + at):
                    store64(state + COMMON_AT + at, load64(row + at))
            store64(state + THROUGHPUT_AT, rate)
            store64(state + THROUGHPUT_AT + 8, reverse_rate)
        return 0

    cdef int merge_http_vals(self, uint8_t* state, Rows rows) except -1:
        cdef uint32_t slot = rows.layout.http_vals
        cdef uint8_t* at = state + rows.layout.texts_at + 4 * slot
        cdef uint32_t stored = load32(at)
        cdef Found* incoming = rows.texts + slot
        cdef Found merged
        if incoming.length == 0:
            if stored == 0:  # two empty objects are one
                merged.octets = <const uint8_t*>PyBytes_AS_STRING(EMPTY_OBJECT)
                merged.length = 2
                self.strings.replace(at, &merged, TEXT)
                if load32(at):
                    self.strings.at(load32(at)).is_united = True
                return 0
            if self.strings.at(stored).is_united:  # nothing comes to what a merge gave
                return 0
        given = PyUnicode_DecodeUTF8(<const char*>incoming.octets, incoming.length, "replace") if incoming.length else ""
        text, is_united = merge_http_vals(given, self.strings.show(stored, TEXT))
        self.http_vals_replaced += not is_united
        octets = (<str>text).encode()
        merged.octets = <const uint8_t*>PyBytes_AS_STRING(octets)
        merged.length = <uint32_t>len(octets)
        self.strings.replace(at, &merged, TEXT)
        if is_united and load32(at):
            self.strings.at(load32(at)).is_united = True
        return 0

    cdef inline uint64_t clamped(self, uint64_t delta) noexcept:
        if delta >= NEGATIVE:
            self.counters_clamped += 1
            return 0
        return delta

    cdef void reset(self, Layout layout, uint8_t* state) noexcept:
        """After an export: deltas and throughputs begin anew, all else goes on."""
        cdef uint32_t at
        memset(state + COMMON_AT, 0, DELTA_OCTETS)
        memset(state + SOURCE_AT, 0, DELTA_OCTETS)
        memset(state + DESTINATION_AT, 0, DELTA_OCTETS)
        memset(state + THROUGHPUT_AT, 0, THROUGHPUT_OCTETS)
        for at in range(layout.sum_count):
            store64(state + layout.sums[at].source_at, 0)
            store64(state + layout.sums[at].destination_at, 0)
            store_number(state + layout.sums[at].slot.offset, 0, layout.sums[at].slot.size)


cdef inline uint64_t largest(uint32_t size) noexcept:
    return 0xFFFFFFFFFFFFFFFF >> (64 - 8 * size)


cdef void add_up(
    const Sum* added, uint8_t* state, const uint8_t* row, bint of_source, bint of_destination, bint is_latest
) noexcept:
    """An extra element that adds up: per side, so that a flow's two halves are not counted twice."""
    cdef uint64_t value = load_number(row + added.slot.offset, added.slot.size), total = 0
    if of_source:
        total = load64(state + added.source_at) + value
        store64(state + added.source_at, total)
    if of_destination:
        total = load64(state + added.destination_at) + value
        store64(state + added.destination_at, total)
    if is_latest:
        store_number(state + added.slot.offset, min(total, largest(added.slot.size)), added.slot.size)


cdef inline int put(const Slot* slot, uint8_t* state, Rows rows, Strings strings) except -1:
    """A row's value in place of the stored one."""
    if slot.form != NUMBERED:
        memcpy(state + slot.offset, rows.row + slot.offset, slot.size)
        return 0
    return strings.replace(state + slot.offset, rows.texts + slot.text, slot.kind)


cdef inline int fill(const Slot* slot, uint8_t* state, Rows rows, Strings strings) except -1:
    """A row's value in place of the stored one, if it says something."""
    cdef Found* found
    if slot.form == NUMBERED:
        found = rows.texts + slot.text
        if found.length == 0 or (slot.kind == FIXED and is_zero(found.octets, found.length)):
            return 0
        return strings.replace(state + slot.offset, found, slot.kind)
    if not slot_is_empty(slot, rows.row):
        memcpy(state + slot.offset, rows.row + slot.offset, slot.size)
    return 0


cdef inline bint exceeds(const Slot* slot, const uint8_t* row, const uint8_t* state) noexcept:
    """Whether a row's number is larger than the stored one."""
    cdef unsigned shift = 64 - 8 * slot.size
    cdef uint64_t one, other
    if slot.form == FLOATING:
        return load_double(row + slot.offset) > load_double(state + slot.offset)
    one, other = load_number(row + slot.offset, slot.size), load_number(state + slot.offset, slot.size)
    if slot.form == SIGNED:
        return <int64_t>(one << shift) > <int64_t>(other << shift)
    return one > other


cdef inline int take_later(Rows rows, uint8_t* state, Strings strings, bint is_latest) except -1:
    """The general rules: see later_records.py."""
    cdef uint32_t at
    if is_latest:
        for at in range(rows.latest_count):
            put(rows.latest + at, state, rows, strings)
    for at in range(rows.maximum_count):
        if exceeds(rows.maxima + at, rows.row, state):
            put(rows.maxima + at, state, rows, strings)
    return 0
