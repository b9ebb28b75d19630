# Flows as octets, to outlive the process: see checkpoint.py, which does the same and says what a block looks like.

cdef enum:
    ANEW = 8
    ALL_FLAGS = 15
    BLOCK_HEADER = 12
    STRING_HEADER = 5
    FLOW_HEADER = 28


@cython.final
cdef class Octets:
    """Octets that grow at their end."""
    cdef uint8_t* octets
    cdef size_t size
    cdef size_t room

    def __dealloc__(self):
        free(self.octets)

    cdef uint8_t* extend(self, size_t count) except NULL:
        """Room for so many more, to be written."""
        if self.octets == NULL or self.size + count > self.room:
            self.octets = <uint8_t*>grown(self.octets, 2 * self.room + count + 4096)
            self.room = 2 * self.room + count + 4096
        self.size += count
        return self.octets + self.size - count


cdef struct Told:  # a string of a block that is read
    const uint8_t* octets
    uint32_t length
    uint8_t kind


@cython.final
cdef class Keeper:
    """Writes a table's flows, and stores those that an earlier process wrote."""
    cdef Table table
    cdef Strings strings
    cdef Aggregated aggregated
    cdef Plain plain
    cdef uint64_t restored
    # What was stored and has no place in the order of eviction yet: a heap, by the time of the last record and serial.
    cdef Due* unordered
    cdef uint32_t unordered_count
    cdef uint32_t unordered_room
    cdef uint32_t* lengths[4]  # of each layout's octets of a fixed number, by their place among its numbers

    def __cinit__(self, Table table, Aggregated aggregated, Plain plain):
        cdef Layout layout
        self.table, self.strings = table, table.strings
        self.aggregated, self.plain = aggregated, plain
        for layout in table.layouts:
            self.lengths[layout.number] = <uint32_t*>zeroed(layout.text_count + 1, sizeof(uint32_t))
            for _, size, form, kind, text in layout.slots.values():
                if form == NUMBERED and kind == FIXED:
                    self.lengths[layout.number][<uint32_t>text] = size

    def __dealloc__(self):
        cdef int at
        for at in range(4):
            free(self.lengths[at])
        free(self.unordered)

    cdef void reset(self, Layout layout, uint8_t* state) noexcept:
        if layout.is_plain:
            self.plain.reset(layout, state)
        else:
            self.aggregated.reset(layout, state)

    cdef int flush(self, Gathering rows, bint is_enriched, uint32_t first, uint32_t end) except -1:
        """Rows of ready flows with something new; gives how many."""
        cdef Table table = self.table
        cdef uint32_t handle
        cdef int given = 0
        cdef Flow* flow
        cdef uint8_t* state
        cdef Layout layout
        for handle in range(first, end):
            flow = table.flow(handle)
            if flow.block == NOWHERE or flow.flags & (READY | UPDATED) != (READY | UPDATED):
                continue
            layout = table.layout_of(flow)
            state = layout.state(flow.block)
            rows.add(layout, state, is_enriched and not flow.flags & ENRICHED, handle, table.serial(flow))
            flow.flags &= ~UPDATED
            self.reset(layout, state)
            given += 1
        return given

    # --- out

    cdef bytes dump(self, uint32_t first, uint32_t end):
        cdef Table table = self.table
        cdef Octets strings = Octets(), flows = Octets()
        cdef uint32_t handle, count = 0, number
        cdef uint32_t at
        cdef Flow* flow
        cdef Layout layout
        cdef uint8_t* to
        cdef uint8_t header[BLOCK_HEADER]
        cdef uint32_t string_count = 0
        self.strings.next_column()
        for handle in range(first, end):
            flow = table.flow(handle)
            if flow.block == NOWHERE:
                continue
            layout = table.layout_of(flow)
            to = flows.extend(FLOW_HEADER + layout.key_size + layout.state_size)
            to[0], to[1], to[2], to[3] = flow.layout, flow.flags & ALL_FLAGS, flow.flags >> RETRIES_SHIFT, 0
            store64(to + 4, table.serial(flow))
            store_double(to + 12, flow.active)
            store_double(to + 20, flow.seen)
            memcpy(to + FLOW_HEADER, layout.state(flow.block) - layout.key_size, layout.key_size + layout.state_size)
            to += FLOW_HEADER + layout.key_size + layout.texts_at
            for at in range(layout.text_count):
                number = load32(to + 4 * at)
                if number:
                    store32(to + 4 * at, self.code(number, strings, &string_count))
            count += 1
        store32(header, count)
        store32(header + 4, string_count)
        store32(header + 8, <uint32_t>strings.size)
        return header[:BLOCK_HEADER] + strings.octets[:strings.size] + flows.octets[:flows.size]

    cdef uint32_t code(self, uint32_t number, Octets strings, uint32_t* count) except 0:
        """A string's number in the block."""
        cdef uint64_t column = <uint64_t>self.strings.column << 32
        cdef const String* string
        cdef uint8_t* to
        if self.strings.codes[number] >> 32 != self.strings.column:
            count[0] += 1
            self.strings.codes[number] = column | count[0]
            string = self.strings.at(number)
            to = strings.extend(STRING_HEADER + string.length)
            to[0] = string.kind
            store32(to + 1, string.length)
            memcpy(to + STRING_HEADER, string.octets, string.length)
        return <uint32_t>self.strings.codes[number]

    # --- in

    cdef tuple restore(self, const uint8_t* block, size_t size, double offset, bint is_continued):
        cdef Told* strings
        cdef size_t at = BLOCK_HEADER, end
        cdef uint32_t count, string_count, number
        cdef uint32_t restored = 0, refused = 0
        if size < BLOCK_HEADER:
            raise ValueError("no block of flows")
        count, string_count = load32(block), load32(block + 4)
        end = BLOCK_HEADER + <size_t>load32(block + 8)
        if end > size or <size_t>string_count * STRING_HEADER > size:
            raise ValueError("a block is cut short")
        strings = <Told*>zeroed(<size_t>string_count + 1, sizeof(Told))
        try:
            for number in range(1, string_count + 1):
                if end - at < STRING_HEADER:
                    raise ValueError("a block is cut short")
                strings[number].kind = block[at]
                strings[number].length = load32(block + at + 1)
                strings[number].octets = block + at + STRING_HEADER
                at += STRING_HEADER
                if strings[number].kind > FIXED or strings[number].length > end - at:
                    raise ValueError(f"no string at octet {at} of a block")
                if strings[number].kind == TEXT:  # raises what is a ValueError
                    PyUnicode_DecodeUTF8(<const char*>strings[number].octets, strings[number].length, NULL)
                at += strings[number].length
            if at != end:
                raise ValueError("the strings of a block do not end where they should")
            for number in range(count):
                if self.take(block, size, &at, strings, string_count, offset, is_continued):
                    restored += 1
                else:
                    refused += 1
            if at != size:
                raise ValueError("a block has octets after its end")
        finally:
            free(strings)
            self.restored += restored
        return restored, refused

    cdef bint take(
        self, const uint8_t* block, size_t size, size_t* at, const Told* strings, uint32_t string_count, double offset,
        bint is_continued,
    ) except -1:
        """Store the flow at an octet; False if there is no place for it."""
        cdef Table table = self.table
        cdef const uint8_t* header = block + at[0]
        cdef const uint8_t* numbers
        cdef const Told* told
        cdef double active, seen
        cdef uint64_t serial, next_serial = table.next_serial
        cdef uint8_t flags
        cdef uint32_t hash, handle, text, number, flow_block
        cdef Layout layout
        cdef uint8_t* state
        cdef Flow* flow
        cdef Due entry
        if size - at[0] < FLOW_HEADER:
            raise ValueError("a block is cut short")
        flags, serial = header[1], load64(header + 4)
        active, seen = load_double(header + 12), load_double(header + 20)
        if header[0] >= 4 or flags > ALL_FLAGS or header[2] > MAXIMUM_RETRIES or active != active or seen != seen:
            raise ValueError(f"no flow at octet {at[0]} of a block")
        layout = <Layout>table.layout_at[header[0]]
        if size - at[0] < <size_t>FLOW_HEADER + layout.key_size + layout.state_size:
            raise ValueError("a block is cut short")
        numbers = header + FLOW_HEADER + layout.key_size + layout.texts_at
        for text in range(layout.text_count):
            number = load32(numbers + 4 * text)
            if number > string_count or (number and strings[number].kind != layout.kinds[text]):
                raise ValueError("a flow names a string that is none of its own")
            if number and strings[number].kind == FIXED and strings[number].length != self.lengths[header[0]][text]:
                raise ValueError(f"{strings[number].length} octets")
        at[0] += FLOW_HEADER + layout.key_size + layout.state_size
        hash = table.hash_key(header + FLOW_HEADER, layout.key_size)
        if table.held >= table.limit or table.find(header + FLOW_HEADER, layout, hash) != NOBODY:
            return False
        table.reserve()
        self.reserve()
        flow_block = layout.new_block()
        state = layout.state(flow_block)
        memcpy(state - layout.key_size, header + FLOW_HEADER, layout.key_size + layout.texts_at)
        for text in range(layout.text_count):
            told = strings + load32(numbers + 4 * text)
            store32(
                state + layout.texts_at + 4 * text, self.strings.hold(told.octets, told.length, layout.kinds[text])
            )
        if not is_continued:
            self.reset(layout, state)
            flags = flags & ~UPDATED | ANEW
        handle = table.slots
        table.slots += 1
        flow = table.flow(handle)
        flow.block = flow_block
        flow.layout = layout.number
        flow.flags = flags | header[2] << RETRIES_SHIFT
        flow.active = active + offset
        flow.seen = seen + offset
        flow.before = flow.after = NOBODY
        table.next_serial = serial  # which ``push`` gives
        table.push(handle, flow)
        table.next_serial = max(next_serial, serial + 1)
        index_add(&table.index, hash, handle)
        table.held += 1
        # Halves lie in the order of their storing, before everything that was told a time.
        entry.deadline = flow.seen if flags & READY else float("-inf")
        entry.serial, entry.handle = serial, handle
        self.push(entry)
        return True

    # --- their order

    cdef bint order(self, uint64_t limit):
        """Give so many flows their places in the order of eviction; False when all have theirs."""
        cdef Table table = self.table
        cdef uint32_t handle
        cdef Flow* flow
        while limit and self.unordered_count:
            limit -= 1
            handle = self.pop()
            flow = table.flow(handle)
            if flow.flags & READY:
                table.add_ready(handle, flow)
            else:
                table.append(&table.waiting, handle, flow)
                table.waiting_count += 1
        return self.unordered_count != 0

    cdef int reserve(self) except -1:
        if self.unordered_count == self.unordered_room:
            self.unordered = <Due*>grown(self.unordered, (2 * <size_t>self.unordered_room + 1024) * sizeof(Due))
            self.unordered_room += self.unordered_room + 1024
        return 0

    cdef void push(self, Due entry) noexcept:
        cdef uint32_t place = self.unordered_count, parent
        self.unordered_count += 1
        while place:
            parent = (place - 1) >> 1
            if is_before(self.unordered + parent, &entry):
                break
            self.unordered[place] = self.unordered[parent]
            place = parent
        self.unordered[place] = entry

    cdef uint32_t pop(self) noexcept:
        cdef uint32_t first = self.unordered[0].handle
        cdef uint64_t place = 0, child
        cdef Due entry
        self.unordered_count -= 1
        entry = self.unordered[self.unordered_count]
        while True:
            child = 2 * place + 1
            if child >= self.unordered_count:
                break
            if child + 1 < self.unordered_count and is_before(self.unordered + child + 1, self.unordered + child):
                child += 1
            if is_before(&entry, self.unordered + child):
                break
            self.unordered[place] = self.unordered[child]
            place = child
        self.unordered[place] = entry
        return first


cdef void know_totals(uint8_t* state, Rows rows) noexcept:
    """After a kill: what totals have grown by since the flow was kept may have been exported, and is no delta."""
    cdef uint64_t total
    cdef int at
    for at in range(4):
        total = load64(rows.row + 32 + 8 * at)
        if rows.has_total[at] and not rows.has_delta[at] and total > load64(state + 32 + 8 * at):
            store64(state + 32 + 8 * at, total)
