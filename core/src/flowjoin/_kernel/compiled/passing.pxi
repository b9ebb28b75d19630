# Proxy mode: records become rows as they come, and wait for the next ``expire``. See proxy.py, which does the same.
#
# A row is a state of which no flow is made. Its strings are held like those of flows, but without bound: what waits
# is bounded in rows.

cdef enum:
    INGRESS = 0  # flowDirection
    EGRESS = 1
    TO_EXTERNAL = 3  # flowType
    UNKNOWN = 255

cdef struct Waiting:
    PyObject* layout  # held once for each row
    uint8_t* row


cdef class PassedSlots:
    """Of the plain-Python kernel's ``StateLayout`` what a row has: no rule applies to it."""
    cdef readonly object schema
    cdef readonly dict slots
    cdef readonly dict derived

    def __cinit__(self, schema):
        self.schema = schema
        self.derived = {}
        self.slots = {}
        for element in schema.elements:
            storage, letter = storage_of(element)
            self.slots[element.name] = StateSlot(
                element=element, rule=MergeRule.LATEST, storage=storage, format=letter, offset=0
            )


@cython.final
cdef class Passing:
    """Rows that wait, a ring."""
    cdef Strings strings
    cdef dict schemas
    cdef dict layouts  # by family, of rows without a column of their own
    cdef str cluster_id
    cdef bytes cluster
    cdef Found cluster_found
    cdef Waiting* waiting
    cdef uint32_t first
    cdef uint32_t count
    cdef uint32_t room
    cdef uint32_t limit
    cdef uint64_t passed
    cdef uint64_t address_mixed, address_absent, time_absent, table_full

    def __cinit__(self, schemas, Strings strings, str cluster_id, limit):
        self.strings = strings
        self.schemas = {family: schemas[FlowOrigin.PROXY, family] for family in FAMILIES}
        self.layouts = {family: self.layout(schema) for family, schema in self.schemas.items()}
        self.cluster_id = cluster_id
        self.cluster = cluster_id.encode()
        self.cluster_found.octets = <const uint8_t*>PyBytes_AS_STRING(self.cluster)
        self.cluster_found.length = <uint32_t>len(self.cluster)
        self.limit = limit

    def __dealloc__(self):
        cdef uint32_t at
        for at in range(self.count):
            free(self.waiting[(self.first + at) % self.room].row)
            Py_XDECREF(self.waiting[(self.first + at) % self.room].layout)
        free(self.waiting)

    cdef Layout layout(self, schema):
        return Layout(0, PassedSlots(schema), ())

    # --- Templates

    def compiled(self, template, plan):
        """What a Template's records become; as ``ProxyKernel`` has it."""
        cdef Compiled made = Compiled()
        positions = positions_of(plan)
        extra = []
        for index in plan.extra:
            element = as_column(template.fields[index])
            extra.append(element)
            positions[element.name] = index
        made.is_plain = True  # its headers tell what rows lack
        made.dropped = plan.dropped
        found = [
            tuple([positions[name] for name in ADDRESSES[family] if name in positions]) for family in FAMILIES
        ]
        made.ipv4_at, made.ipv6_at = found
        made.rows = tuple([
            self.compiled_rows(template, family, extra, positions) if len(at) == 2 else None
            for family, at in zip(FAMILIES, found)
        ])
        if not found[1]:
            made.only = made.rows[0]
        elif not found[0]:
            made.only = made.rows[1]
        return made

    cdef Rows compiled_rows(self, template, family, list extra, dict positions):
        cdef Layout layout = self.layouts[family]
        if extra:
            schema = self.schemas[family]
            layout = self.layout(replace(schema, elements=(*schema.elements, *extra)))
        return Rows(layout, template, positions, {}, {"clusterId": self.cluster_id})

    # --- in

    cdef int take_decoded(self, Compiled template, list records, const Header* header) except -1:
        """Records that the plain-Python decoder has read; of which family they are, each of them says."""
        cdef Rows rows
        cdef bint has_ipv4, has_ipv6
        for record in records:
            has_ipv4 = any([any((<tuple>record)[at]) for at in template.ipv4_at])
            has_ipv6 = any([any((<tuple>record)[at]) for at in template.ipv6_at])
            if has_ipv4 and has_ipv6:
                self.address_mixed += 1
                continue
            if has_ipv4 or has_ipv6:
                rows = template.rows[has_ipv6]
            else:  # addresses that are all zero are addresses, if there are no others
                rows = template.rows[0] if template.rows[0] is not None else template.rows[1]
            if rows is None:
                self.address_absent += 1
                continue
            rows.load(<tuple>record)
            self.take(rows, header)
        return 0

    cdef int take(self, Rows rows, const Header* header) except -1:
        """Let a row wait, if it can."""
        cdef Layout layout = rows.layout
        cdef uint64_t start = 0, end = 0
        cdef const Found* found
        cdef uint8_t* row
        cdef uint32_t at
        if not rows.has_start and not time_of(rows, START_NANOSECONDS, START_UPTIME, START_BEFORE_EXPORT, header, &start):
            self.time_absent += 1
            return 0
        if self.count >= self.limit:
            self.table_full += 1
            return 0
        if self.count == self.room:
            self.grow()
        row = <uint8_t*>grown(NULL, layout.state_size)
        memcpy(row, rows.row, layout.texts_at)
        if not rows.has_start:
            store32(row + layout.start, seconds_of(start))
        if not rows.has_end:
            time_of(rows, END_NANOSECONDS, END_UPTIME, END_BEFORE_EXPORT, header, &end)
            store32(row + layout.end, seconds_of(end))
        if not rows.has_domain:
            store32(row + layout.domain, header.domain)
        if is_zero(row + layout.exporter_ipv4, 4) and is_zero(row + layout.exporter_ipv6, 16):
            memcpy(row + layout.exporter_ipv4, header.peer_ipv4, 4)
            memcpy(row + layout.exporter_ipv6, header.peer_ipv6, 16)
        if not rows.has_direction:
            row[layout.direction] = direction(
                row[layout.flow_type], rows.texts[layout.source_pod].length != 0,
                rows.texts[layout.destination_pod].length != 0,
            )
        for at in range(layout.text_count):
            found = rows.texts + at
            if at == layout.cluster and found.length == 0:
                found = &self.cluster_found
            store32(
                row + layout.texts_at + 4 * at, self.strings.hold(found.octets, found.length, layout.kinds[at])
            )
        at = (self.first + self.count) % self.room
        self.waiting[at].row = row
        self.waiting[at].layout = <PyObject*>layout
        Py_INCREF(layout)
        self.count += 1
        self.passed += 1
        return 0

    cdef int grow(self) except -1:
        cdef uint32_t room = 2 * self.room + 1024, at
        cdef Waiting* larger = <Waiting*>zeroed(room, sizeof(Waiting))
        for at in range(self.count):
            larger[at] = self.waiting[(self.first + at) % self.room]
        free(self.waiting)
        self.waiting, self.room, self.first = larger, room, 0
        return 0

    # --- out

    cdef list batches(self, uint64_t limit, bint is_enriched):
        """The rows that have waited longest, each schema's in a batch."""
        cdef list groups = []
        cdef dict known = {}  # by layout
        cdef Group group = None
        cdef Layout layout, last = None
        cdef Waiting* waiting
        cdef uint32_t number, at, most = <uint32_t>min(limit, self.count)
        for number in range(most):
            waiting = self.waiting + (self.first + number) % self.room
            layout = <Layout>waiting.layout
            if layout is not last:
                last = layout
                group = known.get(layout)
                if group is None:
                    group = known[layout] = Group(layout, is_enriched, False)
                    groups.append(group)
            group.add(waiting.row, NOBODY, 0)
        made = [(<Group>each).batch(self.strings) for each in groups]
        for number in range(most):
            waiting = self.waiting + (self.first + number) % self.room
            layout = <Layout>waiting.layout
            for at in range(layout.text_count):
                self.strings.let_go(load32(waiting.row + layout.texts_at + 4 * at))
            free(waiting.row)
            Py_XDECREF(waiting.layout)
        if most:
            self.first = (self.first + most) % self.room
            self.count -= most
        return made


cdef inline uint32_t seconds_of(uint64_t milliseconds) noexcept:
    """As many as a column can hold."""
    cdef uint64_t seconds = milliseconds // 1000
    return <uint32_t>seconds if seconds <= 0xFFFFFFFF else 0xFFFFFFFF


cdef inline uint8_t direction(uint8_t flow_type, bint has_source_pod, bint has_destination_pod) noexcept:
    """flowDirection as the Node that sent an Antrea record saw it."""
    if flow_type == INTER_NODE and has_source_pod != has_destination_pod:
        return EGRESS if has_source_pod else INGRESS
    if flow_type == TO_EXTERNAL and has_source_pod:
        return EGRESS
    if flow_type == FROM_EXTERNAL and has_destination_pod:
        return INGRESS
    return UNKNOWN
