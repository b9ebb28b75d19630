# Plain flows: see plain.py and plain_times.py, which do the same and say why.

cdef enum:
    PLAIN_START_AT = 64
    PLAIN_END_AT = 72
    PLAIN_BITS_AT = 80
    ICMP = 1
    ICMP_IPV6 = 58

cdef uint64_t LATEST = 0xFFFFFFFFFFFFFFFF

cdef struct Header:  # of the Message, and who sent it
    uint64_t init_time  # when the original exporter started, as an options record said; 0 without one
    uint32_t export_time
    uint32_t domain
    uint8_t peer_ipv4[4]
    uint8_t peer_ipv6[16]


cdef inline bint time_of(
    Rows rows, int first, int uptime, int before_export, const Header* header, uint64_t* told
) noexcept:
    """The start or the end of a row in milliseconds; False if the record does not tell it."""
    cdef uint64_t value, init
    cdef int64_t exported
    cdef int at
    for at in range(4):
        value = rows.registers[first + at] if rows.has_time[first + at] else 0
        if value:
            told[0] = value // TIME_SCALES[at] if TIME_SCALES[at] else value * 1000
            return True
    init = rows.registers[INIT_TIME] if rows.registers[INIT_TIME] else header.init_time  # what the record says wins
    if init and rows.has_time[uptime]:
        value = init + rows.registers[uptime]
        told[0] = value if value >= init else LATEST
        return True
    if rows.has_time[before_export]:  # an offset of 0 is one
        exported = <int64_t>header.export_time * 1_000_000 - <int64_t>rows.registers[before_export]
        told[0] = <uint64_t>exported // 1000 if exported > 0 else 0
        return True
    return False


@cython.final
cdef class Plain:
    cdef Table table
    cdef Strings strings
    cdef uint64_t records_created, records_merged, table_full, counters_clamped, times_clamped

    def __cinit__(self, Table table):
        self.table = table
        self.strings = table.strings

    cdef bint times(self, Rows rows, const Header* header, uint64_t* start, uint64_t* end) noexcept:
        """Start and end; whether the record said that it ended before it began."""
        cdef bint has_start = time_of(rows, START_NANOSECONDS, START_UPTIME, START_BEFORE_EXPORT, header, start)
        cdef bint has_end = time_of(rows, END_NANOSECONDS, END_UPTIME, END_BEFORE_EXPORT, header, end)
        cdef uint64_t exported = <uint64_t>header.export_time * 1000
        if not has_start:
            if not has_end:
                end[0] = exported
            start[0] = min(end[0], exported)
            return False
        if not has_end:
            end[0] = max(start[0], exported)
            return False
        if start[0] > end[0]:
            start[0] = end[0]
            return True
        return False

    cdef int merge(self, Rows rows, Header* header, double now) except -1:
        """Merge a row: create its flow, or change it."""
        cdef Layout layout = rows.layout
        cdef Table table = self.table
        cdef uint8_t* row = rows.row
        cdef uint8_t* state
        cdef uint8_t key[MAXIMUM_KEY]
        cdef uint32_t size = layout.address_size, hash, handle, block, domain, at
        cdef uint8_t protocol = row[layout.protocol]
        cdef uint16_t icmp
        cdef const uint8_t* ipv4 = row + layout.exporter_ipv4
        cdef const uint8_t* ipv6 = row + layout.exporter_ipv6
        cdef uint64_t start = 0, end = 0
        cdef Flow* flow
        if protocol != ICMP and protocol != ICMP_IPV6:
            rows.lacking_ports_count += 1
        rows.absent_count[header.init_time != 0] += 1
        if rows.has_icmp:
            icmp = load16(row + layout.icmp)
        else:
            icmp = <uint16_t>(rows.registers[ICMP_TYPE] << 8 | rows.registers[ICMP_CODE])
        if is_zero(ipv4, 4) and is_zero(ipv6, 16):
            ipv4, ipv6 = header.peer_ipv4, header.peer_ipv6
        domain = load32(row + layout.domain) if rows.has_domain else header.domain
        memcpy(key, row + layout.source, size)
        memcpy(key + size, row + layout.destination, size)
        store16(key + 2 * size, wire16(row + layout.ports))
        store16(key + 2 * size + 2, wire16(row + layout.ports + 2))
        key[2 * size + 4] = protocol
        memset(key + 2 * size + 5, 0, 10)
        if is_zero(ipv4, 4):
            memcpy(key + 2 * size + 5, ipv6, 16)
        else:
            memset(key + 2 * size + 15, 0xFF, 2)
            memcpy(key + 2 * size + 17, ipv4, 4)
        store32(key + 2 * size + 21, wire32(&domain))
        store32(key + 2 * size + 25, wire32(row + layout.interface))
        store16(key + 2 * size + 29, wire16(&icmp))
        self.times_clamped += self.times(rows, header, &start, &end)

        hash = table.hash_key(key, layout.key_size)
        handle = table.find(key, layout, hash)
        if handle != NOBODY:
            flow = table.flow(handle)
            if flow.flags & ANEW:
                know_totals(layout.state(flow.block), rows)
                flow.flags &= ~ANEW
            self.later(layout.state(flow.block), rows, start, end)
            table.touch(handle, flow, now, False)
            self.records_merged += 1
            return 0
        if not table.has_room():
            self.table_full += 1
            return 0
        block = layout.new_block()
        state = layout.state(block)
        memcpy(state - layout.key_size, key, layout.key_size)
        memcpy(state, row, layout.texts_at)
        memset(state, 0, 64)
        self.count(state, rows, True)
        store64(state + PLAIN_START_AT, start)
        store64(state + PLAIN_END_AT, end)
        store16(state + layout.icmp, icmp)
        memcpy(state + layout.exporter_ipv4, ipv4, 4)
        memcpy(state + layout.exporter_ipv6, ipv6, 16)
        store32(state + layout.domain, domain)
        for at in range(layout.text_count):
            store32(
                state + layout.texts_at + 4 * at,
                self.strings.hold(rows.texts[at].octets, rows.texts[at].length, layout.kinds[at]),
            )
        table.store(layout, block, hash, True, now)
        self.records_created += 1
        return 0

    cdef int later(self, uint8_t* state, Rows rows, uint64_t start, uint64_t end) except -1:
        cdef Layout layout = rows.layout
        cdef uint32_t at
        cdef Sum* added
        cdef uint64_t value, total
        cdef bint is_latest = end >= load64(state + PLAIN_END_AT)
        self.count(state, rows, is_latest)
        if start < load64(state + PLAIN_START_AT):
            store64(state + PLAIN_START_AT, start)
        if is_latest:
            store64(state + PLAIN_END_AT, end)
        store16(state + PLAIN_BITS_AT, load16(state + PLAIN_BITS_AT) | load16(rows.row + PLAIN_BITS_AT))
        take_later(rows, state, self.strings, is_latest)
        for at in range(layout.fill_count):
            fill(layout.fills + at, state, rows, self.strings)
        for at in range(layout.sum_count):
            added = layout.sums + at
            value = load_number(rows.row + added.slot.offset, added.slot.size)
            total = load_number(state + added.slot.offset, added.slot.size) + value
            if total < value or total > largest(added.slot.size):
                total = largest(added.slot.size)
            store_number(state + added.slot.offset, total, added.slot.size)
        return 0

    cdef void count(self, uint8_t* state, Rows rows, bint is_latest) noexcept:
        """The eight counters after a row."""
        cdef uint64_t delta, total, known
        cdef int at
        for at in range(4):
            delta, total = load64(rows.row + 8 * at), load64(rows.row + 32 + 8 * at)
            known = load64(state + 32 + 8 * at)
            if rows.has_delta[at]:
                if delta >= NEGATIVE:
                    self.counters_clamped += 1
                    delta = 0
            elif rows.has_total[at]:
                if total < known:
                    self.counters_clamped += is_latest  # an earlier record's total is rightly lower
                    delta = 0
                else:
                    delta = total - known  # what the total grew by
            else:
                continue
            store64(state + 8 * at, load64(state + 8 * at) + delta)
            store64(state + 32 + 8 * at, max(known, total) if rows.has_total[at] else known + delta)

    cdef void reset(self, Layout layout, uint8_t* state) noexcept:
        """After an export: deltas begin anew, all else goes on."""
        cdef uint32_t at
        memset(state, 0, DELTA_OCTETS)
        for at in range(layout.sum_count):
            store_number(state + layout.sums[at].slot.offset, 0, layout.sums[at].slot.size)
