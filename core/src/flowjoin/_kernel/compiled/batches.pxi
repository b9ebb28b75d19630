# From packed states to batches: see batches.py, which does the same. Rows are gathered whole, then turned
# into columns a few rows at a time, so that what is read stays in the cache.

cdef enum:
    ROWS_AT_ONCE = 32

cdef enum Copying:
    ONE_OCTET
    TWO_OCTETS
    FOUR_OCTETS
    EIGHT_OCTETS
    SOME_OCTETS
    AS_FLOAT
    AS_SECONDS
    HIGH_OCTET
    LOW_OCTET

cdef dict DERIVED = {
    "flowStartSeconds": AS_SECONDS, "flowEndSeconds": AS_SECONDS,
    "icmpTypeIPv4": HIGH_OCTET, "icmpTypeIPv6": HIGH_OCTET,
    "icmpCodeIPv4": LOW_OCTET, "icmpCodeIPv6": LOW_OCTET,
}

cdef struct Column:
    uint8_t* values
    uint32_t offset  # in the state
    uint32_t size  # of a value in the column
    Copying copying

cdef struct Handle:
    uint64_t serial
    uint32_t handle  # NOBODY: the flow had left when its row was made


@cython.final
cdef class Handles:
    """Which flows the rows of a batch are from."""
    cdef Handle* handles
    cdef Py_ssize_t count

    def __dealloc__(self):
        free(self.handles)

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        if isinstance(at, slice):
            start, stop, step = at.indices(self.count)
            if step == 1:
                return self.between(start, max(start, stop))
            return [self[each] for each in range(start, stop, step)]
        cdef Py_ssize_t place = at
        if place < 0:
            place += self.count
        if not 0 <= place < self.count:
            raise IndexError(at)
        if self.handles[place].handle == NOBODY:
            return None
        return (self.handles[place].handle, self.handles[place].serial)

    cdef Handles between(self, size_t start, size_t stop):
        """Some of them, without an object for each."""
        cdef Handles some = Handles()
        some.handles = <Handle*>grown(NULL, (stop - start + 1) * sizeof(Handle))
        if stop > start:  # a batch of Proxy mode has none, and nowhere where they would lie
            memcpy(some.handles, self.handles + start, (stop - start) * sizeof(Handle))
        some.count = stop - start
        return some


@cython.final
cdef class Group:
    """Rows of one batch."""
    cdef Layout layout
    cdef bint is_first_export
    cdef bint has_flows
    cdef uint8_t* rows
    cdef Handle* handles
    cdef size_t count
    cdef size_t room

    def __cinit__(self, Layout layout, bint is_first_export, bint has_flows):
        self.layout = layout
        self.is_first_export = is_first_export
        self.has_flows = has_flows

    def __dealloc__(self):
        free(self.rows)
        free(self.handles)

    cdef int add(self, const uint8_t* state, uint32_t handle, uint64_t serial) except -1:
        """Take a row as it is now; its strings must be held until the batch is made."""
        if self.count == self.room:
            self.rows = <uint8_t*>grown(self.rows, (2 * self.room + 64) * self.layout.state_size)
            self.handles = <Handle*>grown(self.handles, (2 * self.room + 64) * sizeof(Handle))
            self.room = 2 * self.room + 64
        memcpy(self.rows + self.count * self.layout.state_size, state, self.layout.state_size)
        self.handles[self.count].handle = handle
        self.handles[self.count].serial = serial
        self.count += 1
        return 0

    cdef object batch(self, Strings strings):
        cdef Layout layout = self.layout
        cdef Py_ssize_t column_count = len(layout.columns), at
        cdef Column* columns = <Column*>zeroed(column_count + 1, sizeof(Column))
        cdef Handles handles = Handles()
        try:
            at = 0
            for element, derivation, place in layout.columns:
                offset, size, form, kind, text = place
                if derivation is not None:
                    columns[at].copying = <Copying><int>DERIVED[element.name]
                    size = element.data_type.natural_length
                elif form == FLOATING and element.data_type is DataType.FLOAT32:
                    columns[at].copying = AS_FLOAT
                    size = 4
                else:
                    if form == NUMBERED:
                        size = 4
                    columns[at].copying = <Copying><int>COPYING.get(size, SOME_OCTETS)
                columns[at].offset = offset
                columns[at].size = size
                at += 1
            buffers = self.places(columns, column_count)
            self.fill(columns, column_count)
            made = []
            at = 0
            for element, _, place in layout.columns:
                _, size, form, kind, _ = place
                if form == NUMBERED and kind == FIXED:
                    made.append(PackedColumn(element, self.expanded(<const uint8_t*>columns[at].values, size, strings)))
                elif form == NUMBERED:
                    dictionary = self.code(columns[at].values, <Kind><int>kind, strings)
                    made.append(DictionaryColumn(element, buffers[at], dictionary))
                elif form == PACKED:
                    made.append(PackedColumn(element, buffers[at]))
                else:
                    made.append(NumberColumn(element, buffers[at]))
                at += 1
        finally:
            free(columns)
        if self.has_flows:
            handles.handles, handles.count = self.handles, <Py_ssize_t>self.count
            self.handles = NULL
        return FlowBatch(layout.schema, made, is_first_export=self.is_first_export, handles=handles)

    cdef list places(self, Column* columns, Py_ssize_t column_count):
        """Where the columns' values go: views of one buffer, for the collector of garbage walks each that there is."""
        cdef Py_ssize_t at, octets = 0
        cdef uint8_t* start
        buffers = []
        for at in range(column_count):
            octets += aligned(self.count * columns[at].size)
        buffer = PyBytes_FromStringAndSize(NULL, octets)
        start = <uint8_t*>PyBytes_AS_STRING(buffer)
        whole = memoryview(buffer)
        octets = 0
        for at in range(column_count):
            columns[at].values = start + octets
            buffers.append(whole[octets : octets + <Py_ssize_t>(self.count * columns[at].size)])
            octets += aligned(self.count * columns[at].size)
        return buffers

    cdef void fill(self, Column* columns, Py_ssize_t column_count) noexcept:
        cdef size_t first, row, end, width = self.layout.state_size
        cdef Py_ssize_t at
        cdef const uint8_t* value
        cdef uint8_t* to
        cdef uint64_t number
        cdef float single
        for first in range(0, self.count, ROWS_AT_ONCE):
            end = min(first + ROWS_AT_ONCE, self.count)
            for at in range(column_count):
                value = self.rows + first * width + columns[at].offset
                to = columns[at].values + first * columns[at].size
                if columns[at].copying == FOUR_OCTETS:
                    for row in range(first, end):
                        memcpy(to, value, 4)
                        to += 4
                        value += width
                elif columns[at].copying == EIGHT_OCTETS:
                    for row in range(first, end):
                        memcpy(to, value, 8)
                        to += 8
                        value += width
                elif columns[at].copying == ONE_OCTET:
                    for row in range(first, end):
                        to[0] = value[0]
                        to += 1
                        value += width
                elif columns[at].copying == TWO_OCTETS:
                    for row in range(first, end):
                        memcpy(to, value, 2)
                        to += 2
                        value += width
                elif columns[at].copying == SOME_OCTETS:
                    for row in range(first, end):
                        memcpy(to, value, columns[at].size)
                        to += columns[at].size
                        value += width
                elif columns[at].copying == AS_FLOAT:
                    for row in range(first, end):
                        single = <float>load_double(value)
                        memcpy(to, &single, 4)
                        to += 4
                        value += width
                elif columns[at].copying == AS_SECONDS:
                    for row in range(first, end):
                        number = load64(value) // 1000
                        store32(to, <uint32_t>min(number, 0xFFFFFFFF))
                        to += 4
                        value += width
                else:
                    for row in range(first, end):
                        number = load16(value)
                        to[0] = <uint8_t>(number >> 8 if columns[at].copying == HIGH_OCTET else number & 0xFF)
                        to += 1
                        value += width

    cdef tuple code(self, uint8_t* numbers, Kind kind, Strings strings):
        """Put codes in the place of strings' numbers; gives what they stand for, in order of the first row."""
        cdef size_t row
        cdef uint32_t number, code = 0
        cdef uint64_t column
        cdef list dictionary = []
        strings.next_column()
        column = <uint64_t>strings.column << 32
        for row in range(self.count):
            number = load32(numbers + 4 * row)
            if strings.codes[number] >> 32 != strings.column:
                strings.codes[number] = column | code
                dictionary.append(strings.show(number, kind))
                code += 1
            store32(numbers + 4 * row, <uint32_t>strings.codes[number])
        return tuple(dictionary)

    cdef bytes expanded(self, const uint8_t* numbers, size_t size, Strings strings):
        """Octets of a fixed number in the place of their numbers."""
        cdef bytes octets = PyBytes_FromStringAndSize(NULL, self.count * size)
        cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(octets)
        cdef size_t row
        cdef uint32_t number
        for row in range(self.count):
            number = load32(numbers + 4 * row)
            if number:
                memcpy(to + row * size, strings.at(number).octets, size)
            else:
                memset(to + row * size, 0, size)
        return octets

cdef inline size_t aligned(size_t octets) noexcept:
    """So many that a value of any size may begin behind them."""
    return (octets + 7) & ~<size_t>7


cdef dict COPYING = {1: ONE_OCTET, 2: TWO_OCTETS, 4: FOUR_OCTETS, 8: EIGHT_OCTETS}


@cython.final
cdef class Gathering:
    """The rows of one call."""
    cdef list groups
    cdef list order  # as the batches come: by their first rows

    def __cinit__(self):
        self.groups = [None] * 8
        self.order = []

    cdef int add(
        self, Layout layout, const uint8_t* state, bint is_first_export, uint32_t handle, uint64_t serial
    ) except -1:
        cdef int at = 2 * layout.number + is_first_export
        group = self.groups[at]
        if group is None:
            group = self.groups[at] = Group(layout, is_first_export, True)
            self.order.append(group)
        (<Group>group).add(state, handle, serial)
        return 0

    cdef list batches(self, Strings strings):
        return [(<Group>group).batch(strings) for group in self.order]
