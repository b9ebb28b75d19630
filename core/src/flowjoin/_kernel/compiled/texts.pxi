# Texts side by side in one block: what rows choose from.

cdef enum:  # TextStyle
    PLAIN
    ONE_LINE
    RFC4180
    JSON
    IPFIX
    NATIVE

cdef enum:
    LONGEST_IPFIX = 65_535
    ADDED_OCTETS = 12  # the most that a style puts before and behind a text
    LARGEST_GROWTH = 6  # the most octets that a style makes of one


@cython.final
cdef class Texts:
    """A sequence of ``bytes``, none of which is an object until it is asked for."""

    cdef uint8_t* octets  # padded
    cdef Py_ssize_t* starts  # one more than there are texts
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t longest
    cdef Py_ssize_t octet_room

    def __cinit__(self, Py_ssize_t count):
        """Room for so many texts, none of which is there yet."""
        self.starts = <Py_ssize_t*>calloc(count + 1, sizeof(Py_ssize_t))
        self.octet_room = 16 * count + 64
        self.octets = <uint8_t*>malloc(self.octet_room + PADDING)
        if self.starts == NULL or self.octets == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.starts)
        free(self.octets)

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        cdef Py_ssize_t place = at
        if not 0 <= place < self.count:
            raise IndexError(f"code {place} of {self.count}")
        return PyBytes_FromStringAndSize(
            <char*>self.octets + self.starts[place], self.starts[place + 1] - self.starts[place]
        )

    def __eq__(self, other):
        return list(self) == list(other)

    cdef uint8_t* room_for(self, Py_ssize_t octets) except NULL:
        """Where the next text begins, with room for so many octets."""
        cdef Py_ssize_t used = self.starts[self.count]
        cdef uint8_t* larger
        if self.octet_room - used < octets:
            larger = <uint8_t*>realloc(self.octets, 2 * (used + octets) + PADDING)
            if larger == NULL:
                raise MemoryError
            self.octets, self.octet_room = larger, 2 * (used + octets)
        return self.octets + used

    cdef void end_at(self, const uint8_t* end) noexcept:
        """The next text is there."""
        cdef Py_ssize_t length = end - (self.octets + self.starts[self.count])
        self.count += 1
        self.starts[self.count] = self.starts[self.count - 1] + length
        if length > self.longest:
            self.longest = length


Sequence.register(Texts)


def pack_texts(texts):
    """Octet strings as ``Texts``."""
    cdef Texts made = Texts(len(texts))
    cdef bytes text
    cdef uint8_t* to
    for text in texts:
        to = made.room_for(PyBytes_GET_SIZE(text))
        memcpy(to, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        made.end_at(to + PyBytes_GET_SIZE(text))
    return made


def encode_texts(values, bytes prefix, int style):
    """As ``row_writing.encode_texts_plainly``."""
    cdef Texts made = Texts(len(values))
    cdef Py_ssize_t length, before = PyBytes_GET_SIZE(prefix)
    cdef const uint8_t* text
    cdef uint8_t* to
    for value in values:
        text = <const uint8_t*>PyUnicode_AsUTF8AndSize(value, &length)
        if style == IPFIX and length > LONGEST_IPFIX:
            raise ValueError(f"{length} octets are more than a field can have")
        to = made.room_for(before + LARGEST_GROWTH * length + ADDED_OCTETS)
        memcpy(to, PyBytes_AS_STRING(prefix), before)
        to += before
        if style == JSON:
            to = write_json(to, text, length)
        elif style == RFC4180:
            to = write_quoted(to, text, length)
        elif style == ONE_LINE:
            to = write_one_line(to, text, length)
        else:
            if style == IPFIX:
                to = write_ipfix_length(to, length)
            elif style == NATIVE:
                to = write_native_length(to, length)
            memcpy(to, text, length)
            to += length
        made.end_at(to)
    return made
