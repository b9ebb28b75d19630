# The kernel itself: Messages in, batches out. See python_kernel.py, which does the same.
#
# A Message that holds nothing but Data Sets of known Templates, whole to its end, is read here. Any other
# goes the plain-Python decoder's way, which owns the sessions, and its records come back as tuples.

cdef enum:
    MAXIMUM_SETS = 128  # of a Message read here
    MAXIMUM_SESSIONS = 65_536
    HEADER_OCTETS = 16
    SET_HEADER_OCTETS = 4
    FIRST_DATA_SET = 256
    IPFIX_VERSION = 10

cdef struct DataSet:
    PyObject* template
    uint32_t start
    uint32_t end
    uint32_t count

cdef tuple FAMILIES = (AddressFamily.IPV4, AddressFamily.IPV6)
cdef dict ADDRESSES = {
    AddressFamily.IPV4: ("sourceIPv4Address", "destinationIPv4Address"),
    AddressFamily.IPV6: ("sourceIPv6Address", "destinationIPv6Address"),
}
cdef object NOTHING_MET = IngestResult()


@cython.final
cdef class Compiled:
    """What was compiled for one Template.

    ``rows`` are by family, where the record decides; ``only`` of the one family, if the Template does.
    """
    cdef tuple rows
    cdef Rows only
    cdef bint is_plain
    cdef object ipv4_at, ipv6_at
    cdef tuple dropped
    cdef object rejected
    cdef uint64_t dropped_count
    cdef bint dropped_told, is_listed


@cython.final
cdef class Session:
    """What is remembered of one Transport Session.

    While nothing is missing, its sequence and the time of its last Message are followed here alone: ``settle`` tells
    them to the decoder, and must be called before the decoder looks at them.
    """
    cdef object state
    cdef object tracker  # the decoder's, of the domain that spoke last; None: not followed here
    cdef uint32_t domain
    cdef uint32_t expected
    cdef bint had_records
    cdef double last_message
    cdef bint is_listed
    cdef dict templates  # by domain and Template id: Compiled or None, and when it ends
    cdef uint64_t last_key
    cdef Compiled last
    cdef double last_end
    cdef object peer
    cdef Header header
    cdef bint has_init_time  # the header's, for its domain

    def __cinit__(self, state):
        self.state = state
        self.templates = {}

    cdef void forget(self):
        """The decoder may have changed what the session has."""
        self.templates.clear()
        self.last = None
        self.has_init_time = False
        self.tracker = None

    cdef int settle(self) except -1:
        self.state.last_message = self.last_message
        if self.tracker is not None:  # as SequenceTracker does when what it expected came
            self.tracker._stray_next = -1
            self.tracker._expected = self.expected
            self.tracker._is_exact = True
            if self.had_records:
                self.tracker._has_records = True
        return 0


@cython.final
cdef class CompiledKernel:
    """Joins and merges flows; see ``interface.Kernel``."""
    cdef object decoder, intake, tally, exporters, cluster
    cdef dict state_layouts
    cdef list plain_flows
    cdef list rules
    cdef Strings strings
    cdef Table table
    cdef Aggregated aggregated
    cdef Plain plain
    cdef Keeper keeper
    cdef list layouts
    cdef bint is_enriched
    cdef uint32_t due_rows
    cdef double now
    cdef dict sessions  # by identity: (session, Session)
    cdef object last_session
    cdef Session last
    cdef list listed  # Templates with counts not told yet
    cdef list unsettled  # sessions heard since the decoder was told last
    cdef uint64_t messages, octets, records_received, rows_given
    cdef int64_t sequence_lost

    def __init__(self, *, decoder, compile_plan, schemas, limits, cluster_id="", is_enriched=False):
        """Begin empty; the arguments are ``PythonKernel``'s."""
        seeds = [hash(b"flowjoin strings %d" % at) & 0xFFFFFFFFFFFFFFFF for at in range(4)]
        key_seeds = [hash(b"flowjoin keys %d" % at) & 0xFFFFFFFFFFFFFFFF for at in range(4)]
        self.decoder = decoder
        self.tally = Tally()
        self.is_enriched = is_enriched
        self.due_rows = python_kernel.DUE_ROWS
        self.strings = Strings(limits.string_octets, seeds)
        self.layouts = []
        self.rules = []
        self.plain_flows = []
        self.state_layouts = {}
        for origin in (FlowOrigin.AGGREGATED, FlowOrigin.PLAIN):
            for family in FAMILIES:
                schema = schemas[origin, family]
                is_plain = origin is FlowOrigin.PLAIN
                if is_plain:
                    flows = PlainFlows(schema, None, None, None)
                    leading = {of_family(name, family) for name in PLAIN_LEADING}
                    self.plain_flows.append(flows)
                else:
                    flows = AggregatedFlows(schema, None, None, None, cluster_id=cluster_id)
                    leading = set(AGGREGATED_LEADING)
                layout = flows.layout
                self.state_layouts[origin, family] = (len(self.layouts), layout)
                self.layouts.append(Layout(len(self.layouts), layout, leading, is_plain, None))
                self.rules.append({
                    name: slot.rule for name, slot in layout.slots.items()
                    if (name not in leading and slot.element in schema.elements) or (is_plain and name == "flowDirection")
                })
                if is_plain:  # the last, as in the plain-Python kernel
                    ordered = self.rules.pop()
                    ordered["flowDirection"] = ordered.pop("flowDirection")
                    self.rules.append(ordered)
        self.table = Table(self.strings, self.layouts, limits, flow_table.MAXIMUM_DEPARTED, key_seeds)
        self.aggregated = Aggregated(self.table, cluster_id.encode())
        self.plain = Plain(self.table)
        self.keeper = Keeper(self.table, self.aggregated, self.plain)
        self.intake = Intake(decoder, compile_plan, self._compile, self.tally)
        self.exporters = OriginalExporters()
        self.now = float("-inf")
        self.sessions = {}
        self.listed = []
        self.unsettled = []

    @property
    def flows_per_slice(self):
        # About half a microsecond a flow; more would not be faster, and enrichers and lanes take whole batches.
        return 1024

    # --- in

    def ingest(self, messages, sessions, double now):
        cdef object notices = None
        if now > self.now:
            self.now = now
        now = self.now
        for message, session in zip(messages, sessions, strict=True):
            if self.receive(message, session, now):
                continue
            if notices is None:
                notices = Notices()
            self.settle()
            data_sets = self.intake.receive(message, session, now, notices)
            state = self.decoder.state_of(session)
            if state is not None and state.compiled is not None:
                (<Session>state.compiled).forget()
            for data_set in data_sets:
                self.merge_decoded(data_set, session, now)
        if notices is None and self.table.departed_count < self.due_rows:
            return NOTHING_MET
        return IngestResult(
            faulty=notices.faulty if notices is not None else (),
            notices=notices.all if notices is not None else (),
            is_due=self.table.departed_count >= self.due_rows,
        )

    cdef bint receive(self, object message, object session, double now) except -1:
        """Read a Message of plain Data Sets; False, and nothing done, for any other."""
        cdef Py_buffer view
        cdef bint done
        if PyBytes_CheckExact(message):
            return self.receive_octets(
                <const uint8_t*>PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message), session, now
            )
        try:
            PyObject_GetBuffer(message, &view, PyBUF_SIMPLE)
        except BufferError:  # octets that do not lie side by side
            return False
        try:
            done = self.receive_octets(<const uint8_t*>view.buf, view.len, session, now)
        finally:
            PyBuffer_Release(&view)
        return done

    cdef bint receive_octets(self, const uint8_t* data, Py_ssize_t size, object session, double now) except -1:
        cdef DataSet sets[MAXIMUM_SETS]
        cdef uint32_t set_count = 0, at = HEADER_OCTETS, length, domain, set_length, number
        cdef uint16_t set_id
        cdef uint64_t records = 0
        cdef int64_t count
        cdef Session known
        cdef Compiled template
        if size < HEADER_OCTETS or wire16(data) != IPFIX_VERSION:
            return False
        length = wire16(data + 2)
        if length < HEADER_OCTETS or length > size:
            return False
        known = self.session_of(session)
        if known is None:
            return False
        domain = wire32(data + 12)
        while at < length:
            if length - at < SET_HEADER_OCTETS:
                return False
            set_id, set_length = wire16(data + at), wire16(data + at + 2)
            if set_length < SET_HEADER_OCTETS or set_length > length - at or set_id < FIRST_DATA_SET:
                return False
            template = self.template_of(known, domain, set_id, now)
            if template is None or set_count == MAXIMUM_SETS:
                return False
            count = template.only.measure(data, at + SET_HEADER_OCTETS, at + set_length)
            if count < 0:
                return False
            sets[set_count].template = <PyObject*>template
            sets[set_count].start = at + SET_HEADER_OCTETS
            sets[set_count].end = at + set_length
            sets[set_count].count = <uint32_t>count
            set_count += 1
            records += count
            at += set_length
        # From here on the Message counts.
        self.messages += 1
        self.octets += size
        self.follow(known, domain, wire32(data + 8), <uint32_t>records, now)
        known.header.export_time = wire32(data + 4)
        if known.header.domain != domain:
            known.header.domain = domain
            known.has_init_time = False
        for number in range(set_count):
            if sets[number].count:
                self.merge_octets(<Compiled>sets[number].template, data, &sets[number], known, session, now)
        return True

    cdef Session session_of(self, object session):
        if session is self.last_session:
            return self.last
        cdef object key = <size_t><PyObject*>session
        entry = self.sessions.get(key)
        if entry is None:
            state = self.decoder.state_of(session)
            if state is None:
                return None
            if state.compiled is None:
                state.compiled = Session(state)
            if len(self.sessions) >= MAXIMUM_SESSIONS:
                self.sessions.clear()
            entry = self.sessions[key] = (session, state.compiled)
        self.last_session = session
        self.last = <Session>(<tuple>entry)[1]
        return self.last

    cdef Compiled template_of(self, Session known, uint32_t domain, uint16_t set_id, double now):
        """The Template in force, if its Data Sets can be read here."""
        cdef uint64_t key = <uint64_t>domain << 16 | set_id
        if known.last is not None and known.last_key == key and now < known.last_end:
            return known.last
        entry = known.templates.get(key)
        if entry is None:
            defined = known.state.templates.entry((IPFIX_VERSION, domain, set_id))
            if defined is None:
                return None
            compiled = self.intake.rows_of(defined[0].template)
            if compiled is not None and (<Compiled>compiled).only is None:
                compiled = None
            entry = known.templates[key] = (compiled, defined[1])
        compiled, end = entry
        if compiled is None or not now < end:
            return None
        known.last_key, known.last, known.last_end = key, <Compiled>compiled, end
        return known.last

    cdef int follow(self, Session known, uint32_t domain, uint32_t sequence, uint32_t records, double now) except -1:
        """Note when the Message came, and what its sequence number says."""
        known.last_message = now
        if not known.is_listed:
            known.is_listed = True
            self.unsettled.append(known)
        if known.tracker is not None and known.domain == domain and known.expected == sequence:
            known.expected = sequence + records
            known.had_records |= records != 0
            return 0
        known.settle()
        known.tracker = None
        self.sequence_lost += self.decoder.follow_sequence(known.state, domain, sequence, records)
        tracker = known.state.sequences.get(domain)
        if tracker is not None and tracker._expected is not None and tracker._stray_next == -1 and tracker._is_exact:
            known.tracker = tracker
            known.domain, known.expected, known.had_records = domain, tracker._expected, False
        return 0

    cdef int settle(self) except -1:
        """Tell the decoder what was followed here."""
        cdef Session known
        for known in self.unsettled:
            known.settle()
            known.is_listed = False
        self.unsettled.clear()
        return 0

    cdef int merge_octets(
        self, Compiled template, const uint8_t* data, const DataSet* data_set, Session known, object session, double now
    ) except -1:
        cdef const uint8_t* at = data + data_set.start
        cdef uint32_t number
        cdef Rows rows = template.only
        self.records_received += data_set.count
        if template.dropped:
            self.drop(template, data_set.count)
        if not template.is_plain:
            for number in range(data_set.count):
                at = rows.read(at, known.header.export_time)
                self.aggregated.merge(rows, now)
            return 0
        if known.peer is None:
            known.peer = self.peer_of(session, &known.header)
        if not known.has_init_time:
            known.header.init_time = self.intake.init_time_of(session, known.header.domain)
            known.has_init_time = True
        for number in range(data_set.count):
            at = rows.read(at, known.header.export_time)
            self.plain.merge(rows, &known.header, now)
        self.tell_absent(template, rows, False)
        return 0

    cdef object peer_of(self, object session, Header* header):
        ipv4, ipv6 = self.exporters.of_session(session)
        memcpy(header.peer_ipv4, PyBytes_AS_STRING(ipv4), 4)
        memcpy(header.peer_ipv6, PyBytes_AS_STRING(ipv6), 16)
        return ipv4, ipv6

    cdef int merge_decoded(self, object data_set, object session, double now) except -1:
        """Merge records that the plain-Python decoder has read."""
        cdef Compiled template = data_set.rows
        cdef object received = data_set.received
        cdef list records = received.records
        cdef Header header
        cdef Rows rows
        if template.dropped:
            self.drop(template, len(records))
        if template.rejected is not None:
            self.tally.reject(template.rejected, len(records))
            return 0
        if not template.is_plain:
            for record in records:
                rows = rows_of_record(template, <tuple>record)
                rows.load(<tuple>record)
                self.aggregated.merge(rows, now)
            return 0
        header.export_time = received.header.export_time
        header.domain = received.header.observation_domain_id
        header.init_time = data_set.init_time
        self.peer_of(session, &header)
        for record in records:
            rows = rows_of_record(template, <tuple>record)
            rows.load(<tuple>record)
            self.plain.merge(rows, &header, now)
            self.tell_absent(template, rows, True)
        return 0

    # What is counted by name is told at once the first time, so that names come in the plain-Python kernel's
    # order, and at the next ``statistics`` after that.

    cdef int drop(self, Compiled template, uint64_t count) except -1:
        if not template.dropped_told:
            template.dropped_told = True
            add_bounded(self.tally.elements_dropped, template.dropped, count)
            return 0
        template.dropped_count += count
        self.enlist(template)
        return 0

    cdef int tell_absent(self, Compiled template, Rows rows, bint at_once) except -1:
        cdef int has_init_time
        for has_init_time in range(2):
            if rows.absent_count[has_init_time] and (at_once or not rows.absent_told[has_init_time]):
                rows.absent_told[has_init_time] = True
                names = (<tuple>rows.absent)[has_init_time]
                add_bounded(self.tally.elements_absent, names, rows.absent_count[has_init_time])
                rows.absent_count[has_init_time] = 0
        if not rows.lacking_ports:
            rows.lacking_ports_count = 0
        elif rows.lacking_ports_count and (at_once or not rows.ports_told):
            rows.ports_told = True
            add_bounded(self.tally.elements_absent, rows.lacking_ports, rows.lacking_ports_count)
            rows.lacking_ports_count = 0
        if rows.absent_count[0] or rows.absent_count[1] or rows.lacking_ports_count:
            self.enlist(template)
        return 0

    cdef int enlist(self, Compiled template) except -1:
        if not template.is_listed:
            template.is_listed = True
            self.listed.append(template)
        return 0

    def _compile(self, template, plan):
        cdef Compiled made = Compiled()
        moved = positions_of(plan)
        made.is_plain = plan.origin is not FlowOrigin.AGGREGATED
        # A plain flow may lack an address, or both: then what it has tells its family.
        has_some_ipv4 = any(name in moved for name in ADDRESSES[AddressFamily.IPV4])
        has_some_ipv6 = any(name in moved for name in ADDRESSES[AddressFamily.IPV6])
        is_ipv6 = not plan.has_ipv4 and (plan.has_ipv6 or (has_some_ipv6 and not has_some_ipv4))
        families = [0, 1] if plan.has_ipv4 and plan.has_ipv6 else [1 if is_ipv6 else 0]
        made.dropped = plan.dropped
        if not made.is_plain:
            if not plan.has_ipv4 and not plan.has_ipv6:
                made.rejected = "address_absent"
            elif not moved.keys() >= {"flowStartSeconds", "flowEndSeconds"}:
                made.rejected = "time_absent"
        made.rows = (
            self.compile_rows(template, plan, moved, made.is_plain, 0) if 0 in families else None,
            self.compile_rows(template, plan, moved, made.is_plain, 1) if 1 in families else None,
        )
        if len(families) > 1:
            made.ipv4_at = tuple(moved[name] for name in ADDRESSES[AddressFamily.IPV4])
            made.ipv6_at = tuple(moved[name] for name in ADDRESSES[AddressFamily.IPV6])
        elif made.rejected is None:
            made.only = made.rows[families[0]]
        return made

    cdef Rows compile_rows(self, template, plan, moved, bint is_plain, int family):
        cdef int number = family + (2 if is_plain else 0)
        cdef Rows rows = Rows(
            self.layouts[number], template, moved, self.rules[number],
            {"flowDirection": UNKNOWN_DIRECTION} if is_plain else {},
        )
        if is_plain:
            told = self.plain_flows[family].compile(plan)
            times = told.times
            rows.absent = ((*told.absent, *times.absent), (*told.absent, *times.absent_with_init_time))
            rows.lacking_ports = told.lacking_ports
        return rows

    def close_session(self, session):
        self.forget_sessions()
        self.intake.close_session(session)

    def remembered_templates(self, now):
        return self.intake.remembered_templates(now)

    def remember_templates(self, templates, now):
        self.forget_sessions()
        return self.intake.remember_templates(templates, now)

    def tick(self, now):
        self.settle()
        before = self.decoder.templates_expired
        idle = self.intake.tick(now)
        if idle or self.decoder.templates_expired != before:
            self.forget_sessions()
        return idle

    cdef int forget_sessions(self) except -1:
        self.settle()
        for _, known in self.sessions.values():
            (<Session>known).forget()
        self.sessions.clear()
        self.last_session = self.last = None
        return 0

    # --- out

    def expire(self, double now, limit):
        cdef Table table = self.table
        cdef Gathering rows = Gathering()
        cdef uint64_t looked_at = 0, most = max(limit, 0)
        cdef uint32_t handle
        cdef uint64_t given = 0
        cdef Departed* departed
        cdef Flow* flow
        cdef Layout layout
        cdef list gone = []
        cdef uint8_t** left = NULL  # states whose strings the rows still need
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
                        left = <uint8_t**>grown(left, left_room * sizeof(uint8_t*))
                    rows.add(layout, departed.state, self.is_enriched and not departed.is_enriched, NOBODY, 0)
                    left[left_count] = departed.state
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
                    if flow.retries >= MAXIMUM_RETRIES:
                        table.given_up += 1
                        table.release(layout, table.remove(handle))
                    else:
                        flow.retries += 1
                        flow.active = now + table.active_timeout
                        flow.seen = now
                        table.move(flow)
                    continue
                if left_count == left_room:
                    left_room = 2 * left_room + 256
                    left = <uint8_t**>grown(left, left_room * sizeof(uint8_t*))
                if flow.flags & UPDATED:
                    rows.add(
                        layout, flow.state, self.is_enriched and not flow.flags & ENRICHED, handle, table.serial(flow)
                    )
                    given += 1
                    flow.flags &= ~UPDATED
                    if layout.is_plain:
                        self.plain.reset(layout, flow.state)
                    else:
                        self.aggregated.reset(layout, flow.state)
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
                    rows.add(layout, self.table.flow(handle).state, False, NOBODY, 0)
                    return rows.batches(self.strings)[0]
        return None

    def scan(self, flow_filter, cursor, limit):
        cdef Gathering rows = Gathering()
        cdef uint32_t handle, first = min(max(cursor, 0), self.table.slots)
        cdef uint32_t end = max(min(max(cursor, 0) + limit, self.table.slots), 0)
        cdef Layout layout
        cdef Flow* flow
        cdef bint takes_all = flow_filter == FlowFilter()
        for handle in range(first, end):
            flow = self.table.flow(handle)
            if flow.state == NULL:
                continue
            layout = self.table.layout_of(flow)
            if takes_all or matches(flow_filter, (<const char*>flow.state - layout.key_size)[:layout.key_size]):
                rows.add(layout, flow.state, False, NOBODY, 0)
        return rows.batches(self.strings), end if end < self.table.slots else None

    def store_enriched(self, batch, columns):
        cdef Layout layout
        cdef Flow* flow
        cdef uint32_t place
        found = self.state_layouts.get((batch.schema.origin, batch.schema.family))
        if found is None:
            return  # rows of a source: no flow is held for them
        number, state_layout = found
        layout = self.layouts[number]
        enriched = EnrichedColumns(state_layout, len(batch), columns).columns
        for row, handle in enumerate(batch.handles):
            if not isinstance(handle, tuple):
                continue  # the flow had left when its row was made
            place = handle[0]
            flow = self.table.flow(place)
            if flow.state != NULL and self.table.serial(flow) == <uint64_t>handle[1]:  # else it has left since
                for where, values in enriched:
                    self.enrich(layout, flow.state, where, values[row])
                flow.flags |= ENRICHED

    cdef int enrich(self, Layout layout, uint8_t* state, where, value) except -1:
        """Store a value where the flow's own is empty."""
        cdef Slot slot = layout.slot(where.slot.element.name)
        cdef Found found
        cdef uint8_t* at = state + slot.offset
        if where.slot.element.name == "flowDirection":
            if at[0] == UNKNOWN_DIRECTION:
                at[0] = value
            return 0
        if not slot_is_empty(&slot, state):
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
        cdef Compiled template
        cdef Rows rows
        tally, aggregated, plain, table = self.tally, self.aggregated, self.plain, self.table
        for template in self.listed:
            template.is_listed = False
            if template.dropped_count:
                add_bounded(tally.elements_dropped, template.dropped, template.dropped_count)
                template.dropped_count = 0
            for rows in template.rows:
                if rows is not None:
                    self.tell_absent(template, rows, True)
        self.listed.clear()
        self.intake.count(self.messages, self.octets, self.sequence_lost)
        self.messages = self.octets = self.sequence_lost = 0
        tally.records_received += self.records_received
        self.records_received = 0
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
        return self.intake.statistics(
            held=self.table.held, waiting=self.table.waiting_count, strings_dropped=self.strings.dropped
        )


cdef Rows rows_of_record(Compiled template, tuple record):
    """A Template with addresses of both families: the side that is all zero is absent; IPv4 if neither is."""
    if template.ipv4_at is None:
        return template.rows[0] if template.rows[0] is not None else template.rows[1]
    has_ipv4 = any([any(record[at]) for at in template.ipv4_at])
    has_ipv6 = any([any(record[at]) for at in template.ipv6_at])
    return template.rows[1 if has_ipv6 and not has_ipv4 else 0]
