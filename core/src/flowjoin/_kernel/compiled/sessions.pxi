# What is remembered of Templates and of Transport Sessions between one Message and the next.

cdef tuple FAMILIES = (AddressFamily.IPV4, AddressFamily.IPV6)
cdef dict ADDRESSES = {
    AddressFamily.IPV4: ("sourceIPv4Address", "destinationIPv4Address"),
    AddressFamily.IPV6: ("sourceIPv6Address", "destinationIPv6Address"),
}

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


@cython.final
cdef class Compiled:
    """What was compiled for one Template.

    ``rows`` are by family, where the record decides; ``only`` of the one family, if the Template does. ``ipv4_at`` and
    ``ipv6_at`` say where the records have addresses of both, or None; in Proxy mode, where they have which.
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


cdef Rows rows_of_record(Compiled template, tuple record):
    """A Template with addresses of both families: the side that is all zero is absent; IPv4 if neither is."""
    if template.ipv4_at is None:
        return template.rows[0] if template.rows[0] is not None else template.rows[1]
    has_ipv4 = any([any(record[at]) for at in template.ipv4_at])
    has_ipv6 = any([any(record[at]) for at in template.ipv6_at])
    return template.rows[1 if has_ipv6 and not has_ipv4 else 0]
