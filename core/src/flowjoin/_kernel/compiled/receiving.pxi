# Messages to rows, and rows to flows. See python_kernel.py and intake.py, which do the same.
#
# A Message that holds nothing but Data Sets of known Templates, whole to its end, is read here. Any other
# goes the plain-Python decoder's way, which owns the sessions, and its records come back as tuples.


@cython.final
cdef class Receiver:
    """Reads Messages and merges their records."""
    cdef object decoder, intake, tally, exporters
    cdef Aggregated aggregated
    cdef Plain plain
    cdef Passing passing  # in Proxy mode; else None
    cdef list layouts
    cdef list rules  # of each layout, by name
    cdef list plain_flows
    cdef dict sessions  # by identity: (session, Session)
    cdef object last_session
    cdef Session last
    cdef list listed  # Templates with counts not told yet
    cdef list unsettled  # sessions heard since the decoder was told last
    cdef uint64_t messages, octets, records_received
    cdef int64_t sequence_lost

    def __cinit__(
        self, decoder, compile_plan, tally, list layouts, list rules, list plain_flows, Aggregated aggregated,
        Plain plain, Passing passing,
    ):
        self.decoder, self.tally = decoder, tally
        self.layouts, self.rules, self.plain_flows = layouts, rules, plain_flows
        self.aggregated, self.plain, self.passing = aggregated, plain, passing
        self.intake = Intake(decoder, compile_plan, self._compile, tally)
        self.exporters = OriginalExporters()
        self.sessions = {}
        self.listed = []
        self.unsettled = []

    cdef object receive_all(self, messages, sessions, double now):
        """Read Messages, each with its session; gives what was worth a note, None with nothing."""
        cdef object notices = None
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
        return notices

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
        if self.passing is not None:
            for number in range(data_set.count):
                at = rows.read(at, known.header.export_time)
                self.passing.take(rows, &known.header)
            return 0
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
        if self.passing is not None:
            self.passing.take_decoded(template, records, &header)
            return 0
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
        cdef Compiled made
        if self.passing is not None:
            return self.passing.compiled(template, plan)
        made = Compiled()
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

    cdef int forget_sessions(self) except -1:
        self.settle()
        for _, known in self.sessions.values():
            (<Session>known).forget()
        self.sessions.clear()
        self.last_session = self.last = None
        return 0

    cdef object close_session(self, session):
        self.forget_sessions()
        self.intake.close_session(session)

    cdef object remember_templates(self, templates, now):
        self.forget_sessions()
        return self.intake.remember_templates(templates, now)

    cdef object tick(self, now):
        self.settle()
        before = self.decoder.templates_expired
        idle = self.intake.tick(now)
        if idle or self.decoder.templates_expired != before:
            self.forget_sessions()
        return idle

    cdef int tell(self) except -1:
        """Tell the tally and the intake what was counted here."""
        cdef Compiled template
        cdef Rows rows
        for template in self.listed:
            template.is_listed = False
            if template.dropped_count:
                add_bounded(self.tally.elements_dropped, template.dropped, template.dropped_count)
                template.dropped_count = 0
            for rows in template.rows:
                if rows is not None:
                    self.tell_absent(template, rows, True)
        self.listed.clear()
        self.intake.count(self.messages, self.octets, self.sequence_lost)
        self.messages = self.octets = self.sequence_lost = 0
        self.tally.records_received += self.records_received
        self.records_received = 0
        return 0
