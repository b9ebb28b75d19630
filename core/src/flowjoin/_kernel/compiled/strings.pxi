# Strings and octets, each held once and known by a number: see strings.py, which does the same.
#
# Octets of a fixed number (UUIDs) are held here too, but outside of the bound: the plain-Python kernel has
# them in the state, where they cannot be refused.

cdef enum Kind:
    TEXT = 0
    BLOB = 1
    FIXED = 2

cdef struct String:
    uint8_t* octets
    PyObject* shown  # the Python object, once it was made; NULL
    uint32_t length
    uint32_t holders
    uint32_t hash
    uint8_t kind
    bint is_united  # text: httpVals as a merge gave them

cdef enum:
    STRING_BITS = 12
    STRINGS = 1 << STRING_BITS  # of a segment

# A string as a record has it: somewhere in the Message, not looked at yet.
cdef struct Found:
    const uint8_t* octets
    uint32_t length


@cython.final
cdef class Strings:
    cdef Index index
    cdef String** segments
    cdef uint32_t segment_count
    cdef uint32_t count  # numbers ever given, 0 included
    cdef uint32_t free  # the number freed last, 0 with none; then by ``hash``
    cdef uint64_t limit
    cdef uint64_t octets
    cdef uint64_t dropped
    cdef uint64_t seeds[4]
    # for batches: of each number, the batch's column that met it last, and its code there
    cdef uint64_t* codes
    cdef uint32_t codes_size
    cdef uint32_t column

    def __cinit__(self, limit, seeds):
        cdef int at
        index_open(&self.index)
        self.limit = min(max(limit, 0), 0xFFFFFFFFFFFFFFFF)
        for at in range(4):
            self.seeds[at] = seeds[at]
        self.count = 1  # number 0 is the empty string

    def __dealloc__(self):
        cdef uint32_t number
        cdef String* string
        for number in range(1, self.count):
            string = self.at(number)
            free(string.octets)
            Py_XDECREF(string.shown)
        for number in range(self.segment_count):
            free(self.segments[number])
        free(self.segments)
        free(self.codes)
        index_close(&self.index)

    cdef inline String* at(self, uint32_t number) noexcept:
        return self.segments[number >> STRING_BITS] + (number & (STRINGS - 1))

    cdef uint32_t hold(self, const uint8_t* octets, uint32_t length, Kind kind) except? 0xFFFFFFFF:
        """The number of a string, held once more; 0 if it is empty or there is no room."""
        cdef uint32_t hash
        cdef uint64_t walk = 0
        cdef int64_t number
        cdef String* string
        if length == 0 or (kind == FIXED and is_zero(octets, length)):
            return 0
        hash = hash_octets(octets, length, self.seeds) + kind
        while True:
            number = index_next(&self.index, hash, &walk)
            if number < 0:
                break
            string = self.at(<uint32_t>number)
            if string.length == length and string.kind == kind and are_equal(string.octets, octets, length):
                string.holders += 1
                return <uint32_t>number
        if kind == TEXT and not self.is_ascii(octets, length):
            shown = PyUnicode_DecodeUTF8(<const char*>octets, length, "replace")
            mended = (<str>shown).encode()
            if len(mended) != length or memcmp(PyBytes_AS_STRING(mended), octets, length) != 0:
                return self.hold(<const uint8_t*>PyBytes_AS_STRING(mended), <uint32_t>len(mended), TEXT)
        if kind != FIXED and self.octets + length > self.limit:
            self.dropped += 1
            return 0
        return self.add(octets, length, kind, hash)

    cdef bint is_ascii(self, const uint8_t* octets, uint32_t length) noexcept:
        cdef uint32_t at
        for at in range(length):
            if octets[at] & 0x80:
                return False
        return True

    cdef uint32_t add(self, const uint8_t* octets, uint32_t length, Kind kind, uint32_t hash) except? 0xFFFFFFFF:
        cdef uint32_t number
        cdef String* string
        cdef uint8_t* copy
        index_reserve(&self.index)
        number = self.free
        if number == 0:
            number = self.count
            if number >> STRING_BITS == self.segment_count:
                self.add_segment()
        copy = <uint8_t*>malloc(length)
        if copy == NULL:
            raise MemoryError
        memcpy(copy, octets, length)
        string = self.at(number)
        if number == self.count:
            self.count += 1
        else:
            self.free = string.hash
        string.octets = copy
        string.shown = NULL
        string.length = length
        string.holders = 1
        string.hash = hash
        string.kind = kind
        string.is_united = False
        if kind != FIXED:
            self.octets += length
        index_add(&self.index, hash, number)
        return number

    cdef int add_segment(self) except -1:
        self.segments = <String**>grown(self.segments, (self.segment_count + 1) * sizeof(String*))
        self.segments[self.segment_count] = <String*>zeroed(STRINGS, sizeof(String))
        self.segment_count += 1
        return 0

    cdef inline void let_go(self, uint32_t number) noexcept:
        """Hold a string once less."""
        cdef String* string
        if number == 0:
            return
        string = self.at(number)
        string.holders -= 1
        if string.holders == 0:
            self.forget(number, string)

    cdef void forget(self, uint32_t number, String* string) noexcept:
        index_remove(&self.index, string.hash, number)
        if string.kind != FIXED:
            self.octets -= string.length
        free(string.octets)
        string.octets = NULL
        Py_XDECREF(string.shown)
        string.shown = NULL
        string.hash = self.free
        self.free = number

    cdef inline int replace(self, uint8_t* at, Found* found, Kind kind) except -1:
        """Hold another string in a slot."""
        cdef uint32_t before = load32(at)
        cdef String* string
        if before == 0:
            if found.length == 0:
                return 0
        else:
            string = self.at(before)
            if string.length == found.length and are_equal(string.octets, found.octets, found.length):
                return 0
        store32(at, self.hold(found.octets, found.length, kind))
        self.let_go(before)
        return 0

    cdef object show(self, uint32_t number, Kind kind):
        """The Python object of a number."""
        cdef String* string
        if number == 0:
            return "" if kind == TEXT else b""
        string = self.at(number)
        if string.shown != NULL:
            return <object>string.shown
        if string.kind == TEXT:
            shown = PyUnicode_DecodeUTF8(<const char*>string.octets, string.length, NULL)
        else:
            shown = PyBytes_FromStringAndSize(<const char*>string.octets, string.length)
        if string.holders > 1:  # it will be asked for again
            Py_INCREF(shown)
            string.shown = <PyObject*>shown
        return shown

    cdef int next_column(self) except -1:
        """Begin to give codes for another column."""
        cdef size_t room
        if self.column == 0xFFFFFFFF:  # after years: what was given then must not be taken for new
            memset(self.codes, 0, <size_t>self.codes_size * 8)
            self.column = 0
        if self.codes_size < self.count:  # by so much at once that it seldom happens, and never begins anew
            room = min(<size_t>self.count + self.count // 4 + STRINGS, 0xFFFFFFFF)
            self.codes = <uint64_t*>grown(self.codes, room * 8)
            memset(self.codes + self.codes_size, 0, (room - self.codes_size) * 8)
            self.codes_size = <uint32_t>room
        self.column += 1
        return 0
