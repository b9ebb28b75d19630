# The kernel itself: Messages in, batches out. See python_kernel.py, which does the same.

cdef object NOTHING_MET = IngestResult()

cdef enum:
    # About half a microsecond each; more would not be faster, and enrichers and lanes take whole batches.
    ROWS_PER_SLICE = 1024


@cython.final
cdef class CompiledKernel:
    """Joins and merges flows; see ``interface.Kernel``."""
    cdef object tally
    cdef dict state_layouts
    cdef Strings strings
    cdef Table table
    cdef Aggregated aggregated
    cdef Plain plain
    cdef Keeper keeper
    cdef Receiver receiver
    cdef list layouts
    cdef bint is_enriched
    cdef uint32_t due_rows
    cdef double now
    cdef uint64_t rows_given

    def __init__(self, *, decoder, compile_plan, schemas, limits, cluster_id="", is_enriched=False):
        """Begin empty; the arguments are ``PythonKernel``'s."""
        seeds = [hash(b"flowjoin strings %d" % at) & 0xFFFFFFFFFFFFFFFF for at in range(4)]
        key_seeds = [hash(b"flowjoin keys %d" % at) & 0xFFFFFFFFFFFFFFFF for at in range(4)]
        self.tally = Tally()
        self.is_enriched = is_enriched
        self.due_rows = python_kernel.DUE_ROWS
        self.strings = Strings(limits.string_octets, seeds)
        self.layouts = []
        rules = []
        plain_flows = []
        self.state_layouts = {}
        for origin in (FlowOrigin.AGGREGATED, FlowOrigin.PLAIN):
            for family in FAMILIES:
                schema = schemas[origin, family]
                is_plain = origin is FlowOrigin.PLAIN
                if is_plain:
                    flows = PlainFlows(schema, None, None, None)
                    leading = {of_family(name, family) for name in PLAIN_LEADING}
                    plain_flows.append(flows)
                else:
                    flows = AggregatedFlows(schema, None, None, None, cluster_id=cluster_id)
                    leading = set(AGGREGATED_LEADING)
                layout = flows.layout
                self.state_layouts[origin, family] = (len(self.layouts), layout)
                self.layouts.append(Layout(len(self.layouts), layout, leading))
                rules.append({
                    name: slot.rule for name, slot in layout.slots.items()
                    if (name not in leading and slot.element in schema.elements) or (is_plain and name == "flowDirection")
                })
                if is_plain:  # the last, as in the plain-Python kernel
                    ordered = rules.pop()
                    ordered["flowDirection"] = ordered.pop("flowDirection")
                    rules.append(ordered)
        self.table = Table(self.strings, self.layouts, limits, flow_table.MAXIMUM_DEPARTED, key_seeds)
        self.aggregated = Aggregated(self.table, cluster_id.encode())
        self.plain = Plain(self.table)
        self.keeper = Keeper(self.table, self.aggregated, self.plain)
        self.receiver = Receiver(
            decoder, compile_plan, self.tally, self.layouts, rules, plain_flows, self.aggregated, self.plain, None
        )
        self.now = float("-inf")

    @property
    def flows_per_slice(self):
        return ROWS_PER_SLICE

    # --- in

    def ingest(self, messages, sessions, double now):
        if now > self.now:
            self.now = now
        notices = self.receiver.receive_all(messages, sessions, self.now)
        if notices is None and self.table.departed_count < self.due_rows:
            return NOTHING_MET
        return IngestResult(
            faulty=notices.faulty if notices is not None else (),
            notices=notices.all if notices is not None else (),
            is_due=self.table.departed_count >= self.due_rows,
        )

    def close_session(self, session):
        self.receiver.close_session(session)

    def remembered_templates(self, now):
        return self.receiver.intake.remembered_templates(now)

    def remember_templates(self, templates, now):
        return self.receiver.remember_templates(templates, now)

    def tick(self, now):
        return self.receiver.tick(now)

    # --- out

    def expire(self, double now, limit):
        cdef Table table = self.table
        cdef Gathering rows = Gathering()
        cdef uint64_t looked_at = 0, most = max(limit, 0)
        cdef uint32_t handle
        cdef uint64_t given = 0
        cdef Departed* departed
        cdef Flow* flow
        cdef uint8_t* state
        cdef Layout layout
        cdef list gone = []
        cdef uint32_t* left = NULL  # blocks whose states' strings the rows still need
        cdef size_t left_count = 0, left_room = 0, at
        if now > self.now:
            self.now = now
        now = self.now
        try:
            while looked_at < most:
                if table.departed_count:
                    departed = table.departed + table.departed_first
                    layout = <Layout>table.layout_at[departed.layout]
                    if left_count == left_room:
                        left_room = 2 * left_room + 256
                        left = <uint32_t*>grown(left, left_room * sizeof(uint32_t))
                    rows.add(
                        layout, layout.state(departed.block), self.is_enriched and not departed.is_enriched, NOBODY, 0
                    )
                    left[left_count] = departed.block
                    gone.append(layout)
                    left_count += 1
                    table.departed_first = (table.departed_first + 1) % table.departed_room
                    table.departed_count -= 1
                    given += 1
                    looked_at += 1
                    continue
                if table.queue_size == 0 or table.queue[0].deadline > now:
                    break
                looked_at += 1
                handle = table.queue[0].handle
                flow = table.flow(handle)
                layout = table.layout_of(flow)
                if not flow.flags & READY:
                    if flow.flags >> RETRIES_SHIFT >= MAXIMUM_RETRIES:
                        table.given_up += 1
                        table.release(layout, table.remove(handle))
                    else:
                        flow.flags += 1 << RETRIES_SHIFT
                        flow.active = now + table.active_timeout
                        flow.seen = now
                        table.move(flow)
                    continue
                if left_count == left_room:
                    left_room = 2 * left_room + 256
                    left = <uint32_t*>grown(left, left_room * sizeof(uint32_t))
                if flow.flags & UPDATED:
                    state = layout.state(flow.block)
                    rows.add(layout, state, self.is_enriched and not flow.flags & ENRICHED, handle, table.serial(flow))
                    given += 1
                    flow.flags &= ~UPDATED
                    if layout.is_plain:
                        self.plain.reset(layout, state)
                    else:
                        self.aggregated.reset(layout, state)
                if flow.seen + table.idle_timeout <= now:
                    table.exported_last += 1
                    left[left_count] = table.remove(handle)
                    gone.append(layout)
                    left_count += 1
                    continue
                flow.active = now + table.active_timeout
                table.move(flow)
            self.rows_given += given
            return rows.batches(self.strings)
        finally:
            for at in range(left_count):
                table.release(<Layout>gone[at], left[at])
            free(left)

    def next_expiry(self):
        if self.table.departed_count:
            return self.now  # their time has come
        if self.table.queue_size == 0:
            return None
        return self.table.queue[0].deadline

    # --- questions

    def lookup(self, key):
        cdef bytes packed = key_of(key)
        cdef Gathering rows
        cdef Layout layout
        cdef uint32_t handle
        cdef const uint8_t* octets
        if packed is None:
            return None
        octets = <const uint8_t*>PyBytes_AS_STRING(packed)
        for layout in self.layouts:
            if layout.key_size == <uint32_t>len(packed):
                handle = self.table.find(octets, layout, self.table.hash_key(octets, layout.key_size))
                if handle != NOBODY:
                    rows = Gathering()
                    rows.add(layout, layout.state(self.table.flow(handle).block), False, NOBODY, 0)
                    return rows.batches(self.strings)[0]
        return None

    def scan(self, flow_filter, cursor, limit):
        cdef Gathering rows = Gathering()
        cdef uint32_t handle, first = min(max(cursor, 0), self.table.slots)
        cdef uint32_t end = max(min(max(cursor, 0) + limit, self.table.slots), 0)
        cdef Layout layout
        cdef Flow* flow
        cdef uint8_t* state
        wanted = KeyFilter(flow_filter)
        cdef bint takes_all = wanted.takes_all
        for handle in range(first, end):
            flow = self.table.flow(handle)
            if flow.block == NOWHERE:
                continue
            layout = self.table.layout_of(flow)
            state = layout.state(flow.block)
            if takes_all or wanted.matches((<const char*>state - layout.key_size)[:layout.key_size]):
                rows.add(layout, state, False, NOBODY, 0)
        return rows.batches(self.strings), end if end < self.table.slots else None

    def store_enriched(self, batch, columns):
        cdef Layout layout
        cdef Flow* flow
        cdef uint32_t place
        cdef Slot* slots
        cdef Py_ssize_t at, count
        found = self.state_layouts.get((batch.schema.origin, batch.schema.family))
        if found is None:
            return  # rows of a source: no flow is held for them
        number, state_layout = found
        layout = self.layouts[number]
        enriched = EnrichedColumns(state_layout, len(batch), columns).columns
        count = len(enriched)
        slots = <Slot*>zeroed(count + 1, sizeof(Slot))
        try:
            for at in range(count):
                slots[at] = layout.slot(enriched[at][0].slot.element.name)
            values = [column for _, column in enriched]
            for row, handle in enumerate(batch.handles):
                if not isinstance(handle, tuple):
                    continue  # the flow had left when its row was made
                place = handle[0]
                flow = self.table.flow(place)
                if flow.block != NOWHERE and self.table.serial(flow) == <uint64_t>handle[1]:  # else it has left since
                    for at in range(count):
                        self.enrich(layout, layout.state(flow.block), slots + at, (<list>(<list>values)[at])[row])
                    flow.flags |= ENRICHED
        finally:
            free(slots)

    cdef int enrich(self, Layout layout, uint8_t* state, const Slot* slot, value) except -1:
        """Store a value where the flow's own is empty."""
        cdef Found found
        cdef uint8_t* at = state + slot.offset
        if slot.offset == layout.direction:
            if at[0] == UNKNOWN_DIRECTION:
                at[0] = value
            return 0
        if not slot_is_empty(slot, state):
            return 0
        if slot.form == NUMBERED:
            octets = (<str>value).encode() if isinstance(value, str) else value
            found.octets, found.length = <const uint8_t*>PyBytes_AS_STRING(octets), <uint32_t>len(octets)
            self.strings.replace(at, &found, slot.kind)
        elif slot.form == PACKED:
            memcpy(at, PyBytes_AS_STRING(value), slot.size)
        elif slot.form == FLOATING:
            store_double(at, value)
        elif slot.form == SIGNED:
            store_number(at, <uint64_t><int64_t>value, slot.size)
        else:
            store_number(at, value, slot.size)
        return 0

    # --- what outlives the process: see checkpoint.pxi

    @property
    def kept_layout(self):
        return described([layout for _, layout in self.state_layouts.values()])

    def flush(self, cursor, limit):
        cdef Gathering rows = Gathering()
        cdef uint32_t end = min(cursor + limit, self.table.slots)
        self.rows_given += self.keeper.flush(rows, self.is_enriched, min(cursor, end), end)
        return rows.batches(self.strings), end if end < self.table.slots else None

    def dump(self, cursor, limit):
        cdef uint32_t end = min(cursor + limit, self.table.slots)
        return self.keeper.dump(min(cursor, end), end), end if end < self.table.slots else None

    def restore(self, block, offset, *, is_continued):
        cdef bytes octets = bytes(block)
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(octets)
        return self.keeper.restore(at, PyBytes_GET_SIZE(octets), offset, is_continued)

    def order_restored(self, limit):
        return self.keeper.order(limit)

    def statistics(self):
        tally, aggregated, plain, table = self.tally, self.aggregated, self.plain, self.table
        self.receiver.tell()
        if self.aggregated.table_full + self.plain.table_full:
            tally.reject("table_full", self.aggregated.table_full + self.plain.table_full)
            self.aggregated.table_full = self.plain.table_full = 0
        tally.records_created = self.aggregated.records_created + self.plain.records_created
        tally.records_merged = self.aggregated.records_merged + self.plain.records_merged
        tally.records_older = self.aggregated.records_older
        tally.flows_created = self.table.created
        tally.flows_exported_last = self.table.exported_last
        tally.flows_given_up = self.table.given_up
        tally.flows_evicted = self.table.evicted
        tally.flows_restored = self.keeper.restored
        tally.rows = self.rows_given
        tally.counters_clamped = self.aggregated.counters_clamped + self.plain.counters_clamped
        tally.times_clamped = self.plain.times_clamped
        tally.http_vals_replaced = self.aggregated.http_vals_replaced
        return self.receiver.intake.statistics(
            held=self.table.held, waiting=self.table.waiting_count, strings_dropped=self.strings.dropped
        )
