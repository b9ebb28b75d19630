# Proxy mode's kernel: see proxy.py, which does the same.


@cython.final
cdef class CompiledProxyKernel:
    """Passes records on; the flow table's calls find nothing. See ``interface.Kernel``."""
    cdef object tally
    cdef Passing passing
    cdef Receiver receiver
    cdef bint is_enriched
    cdef uint32_t due_rows
    cdef double now
    cdef uint64_t rows_given

    def __init__(self, *, decoder, compile_plan, schemas, limits, cluster_id="", is_enriched=False):
        """Begin empty; the arguments are ``ProxyKernel``'s."""
        seeds = [hash(b"flowjoin strings %d" % at) & 0xFFFFFFFFFFFFFFFF for at in range(4)]
        self.tally = Tally()
        self.is_enriched = is_enriched
        self.due_rows = proxy.DUE_ROWS
        self.passing = Passing(schemas, Strings(0xFFFFFFFFFFFFFFFF, seeds), cluster_id, proxy.MAXIMUM_DEPARTED)
        self.receiver = Receiver(decoder, compile_plan, self.tally, [], [], [], None, None, self.passing)
        self.now = float("-inf")

    @property
    def flows_per_slice(self):
        return ROWS_PER_SLICE

    def ingest(self, messages, sessions, double now):
        if now > self.now:
            self.now = now
        notices = self.receiver.receive_all(messages, sessions, self.now)
        if notices is None and self.passing.count < self.due_rows:
            return NOTHING_MET
        return IngestResult(
            faulty=notices.faulty if notices is not None else (),
            notices=notices.all if notices is not None else (),
            is_due=self.passing.count >= self.due_rows,
        )

    def expire(self, double now, limit):
        if now > self.now:
            self.now = now
        before = self.passing.count
        batches = self.passing.batches(max(limit, 0), self.is_enriched)
        self.rows_given += before - self.passing.count
        return batches

    def next_expiry(self):
        return self.now if self.passing.count else None

    def lookup(self, key):
        return None

    def scan(self, flow_filter, cursor, limit):
        return [], None

    def store_enriched(self, batch, columns):
        """Nothing is held that could keep them."""

    def close_session(self, session):
        self.receiver.close_session(session)

    def tick(self, now):
        return self.receiver.tick(now)

    def remembered_templates(self, now):
        return self.receiver.intake.remembered_templates(now)

    def remember_templates(self, templates, now):
        return self.receiver.remember_templates(templates, now)

    def statistics(self):
        cdef Passing passing = self.passing
        tally = self.tally
        self.receiver.tell()
        for cause, count in (
            ("address_mixed", passing.address_mixed), ("address_absent", passing.address_absent),
            ("time_absent", passing.time_absent), ("table_full", passing.table_full),
        ):
            if count:
                tally.reject(cause, count)
        passing.address_mixed = passing.address_absent = passing.time_absent = passing.table_full = 0
        tally.records_created = tally.flows_created = passing.passed
        tally.flows_exported_last = tally.rows = self.rows_given
        return self.receiver.intake.statistics(held=passing.count, waiting=0, strings_dropped=0)
