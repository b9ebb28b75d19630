# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""The rows of ``row_writing``, written octet by octet.

Strategy: every piece becomes a C struct; room for the longest possible row is made before each row, so that
nothing is checked within one. Invariant: the caller has checked lengths and formats; codes are checked here.
"""

from array import array

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from flowjoin._kernel.row_writing import Chosen, Constant, Decimal, Dotted, Fixed, Hexadecimal, NetworkOrder

__all__ = ["encode_texts", "write_rows"]

cdef extern from "compiled/octets.h" nogil:
    uint64_t load_number(const uint8_t* at, unsigned size) noexcept
    uint32_t load32(const void* at) noexcept
    bint is_zero(const uint8_t* at, size_t size) noexcept

cdef extern from "compiled/writing.h" nogil:
    const char* HEX
    uint8_t* write_decimal(uint8_t* to, uint64_t value) noexcept

cdef enum Kind:
    CONSTANT
    CHOSEN
    UNSIGNED
    SIGNED
    DOTTED
    OCTETS
    SWAPPED
    DIGITS

cdef struct Text:
    const uint8_t* octets
    Py_ssize_t length

cdef struct Part:
    Kind kind
    const uint8_t* values
    Py_ssize_t size  # octets of a value
    Text* texts
    Py_ssize_t text_count
    Text prefix
    Text suffix
    Text unset
    bint has_unset
    bint is_counted


cdef inline uint8_t* put(uint8_t* to, const Text* text) noexcept nogil:
    memcpy(to, text.octets, text.length)
    return to + text.length


cdef inline Text text_of(bytes octets) noexcept:
    cdef Text text
    text.octets = <const uint8_t*>PyBytes_AS_STRING(octets)
    text.length = PyBytes_GET_SIZE(octets)
    return text


def write_rows(pieces, Py_ssize_t rows, Py_ssize_t first, Py_ssize_t last):
    """As ``row_writing.write_rows``, which has made its checks."""
    cdef Py_ssize_t count = len(pieces), at, row, longest = 0, room, used, text
    cdef Part* parts
    cdef Part* part
    cdef uint8_t* buffer = NULL
    cdef uint8_t* to
    cdef uint8_t* larger
    cdef uint8_t* counted
    cdef const uint8_t* value
    cdef uint64_t number
    cdef int64_t negative
    cdef uint32_t code
    cdef Py_ssize_t octet
    cdef const uint8_t[:] view
    cdef uint64_t[:] ends
    held = []  # what the parts point into
    made = array("Q", bytes(8 * (last - first)))
    parts = <Part*>calloc(count + 1, sizeof(Part))
    if parts == NULL:
        raise MemoryError
    try:
        for at in range(count):
            longest += prepare(parts + at, pieces[at], held)
        room = 4096 + longest + (last - first) * (longest if longest < 1024 else 1024)
        buffer = <uint8_t*>malloc(room)
        if buffer == NULL:
            raise MemoryError
        if last > first:
            ends = made
        used = 0
        for row in range(first, last):
            if room - used < longest:
                room += room // 2 + longest
                larger = <uint8_t*>realloc(buffer, room)
                if larger == NULL:
                    raise MemoryError
                buffer = larger
            to = buffer + used
            for at in range(count):
                part = parts + at
                if part.kind == CHOSEN:
                    code = load32(part.values + 4 * row) if part.size == 4 else part.values[row]
                    if code >= part.text_count:
                        raise IndexError(f"code {code} of {part.text_count}")
                    to = put(to, part.texts + code)
                elif part.kind == UNSIGNED:
                    to = put(to, &part.prefix)
                    to = write_decimal(to, load_number(part.values + row * part.size, <unsigned>part.size))
                elif part.kind == CONSTANT:
                    to = put(to, &part.prefix)
                elif part.kind == DOTTED:
                    value = part.values + 4 * row
                    if part.has_unset and load32(value) == 0:
                        to = put(to, &part.unset)
                        continue
                    to = put(to, &part.prefix)
                    counted = to
                    to += part.is_counted
                    for octet in range(4):
                        if octet:
                            to[0] = c"."
                            to += 1
                        to = write_decimal(to, value[octet])
                    if part.is_counted:
                        counted[0] = <uint8_t>(to - counted - 1)
                    to = put(to, &part.suffix)
                elif part.kind == OCTETS:
                    memcpy(to, part.values + row * part.size, part.size)
                    to += part.size
                elif part.kind == DIGITS:
                    value = part.values + row * part.size
                    to = put(to, &part.prefix)
                    for octet in range(part.size):
                        to[0] = HEX[value[octet] >> 4]
                        to[1] = HEX[value[octet] & 15]
                        to += 2
                    to = put(to, &part.suffix)
                elif part.kind == SWAPPED:
                    value = part.values + (row + 1) * part.size
                    for octet in range(part.size):
                        value -= 1
                        to[octet] = value[0]
                    to += part.size
                else:
                    to = put(to, &part.prefix)
                    number = load_number(part.values + row * part.size, <unsigned>part.size)
                    negative = <int64_t>(number << (64 - 8 * part.size)) >> (64 - 8 * part.size)
                    if negative < 0:
                        to[0] = c"-"
                        to += 1
                        number = 0 - <uint64_t>negative
                    to = write_decimal(to, number)
            used = to - buffer
            ends[row - first] = used
        return PyBytes_FromStringAndSize(<char*>buffer, used), made
    finally:
        for at in range(count):
            free(parts[at].texts)
        free(parts)
        free(buffer)


cdef Py_ssize_t prepare(Part* part, piece, list held) except -1:
    """Make a piece's part; gives the most octets that it writes in one row."""
    cdef Py_ssize_t at, longest = 0
    kind = type(piece)
    if kind is Constant:
        part.kind = CONSTANT
        part.prefix = text_of(piece.octets)
        return part.prefix.length
    if kind is Chosen:
        part.kind = CHOSEN
        part.size = piece.codes.itemsize
        part.values = octets_of(piece.codes, held)
        texts = list(piece.texts)
        held.append(texts)
        part.text_count = len(texts)
        part.texts = <Text*>calloc(part.text_count + 1, sizeof(Text))
        if part.texts == NULL:
            raise MemoryError
        for at in range(part.text_count):
            part.texts[at] = text_of(<bytes>texts[at])
            if part.texts[at].length > longest:
                longest = part.texts[at].length
        return longest
    column = piece.column
    part.values = octets_of(column.buffer, held)
    if kind is Decimal:
        part.kind = SIGNED if column.buffer.format in "bhiq" else UNSIGNED
        part.size = column.buffer.itemsize
        part.prefix = text_of(piece.prefix)
        return part.prefix.length + 20
    if kind is NetworkOrder:
        part.kind = SWAPPED
        part.size = column.buffer.itemsize
        return part.size
    part.size = column.width
    if kind is Fixed:
        part.kind = OCTETS
        return part.size
    if kind is Hexadecimal:
        part.kind = DIGITS
        part.prefix, part.suffix = text_of(piece.prefix), text_of(piece.suffix)
        return part.prefix.length + 2 * part.size + part.suffix.length
    assert kind is Dotted, "no other piece"
    part.kind = DOTTED
    part.prefix, part.suffix = text_of(piece.prefix), text_of(piece.suffix)
    longest = part.prefix.length + part.suffix.length + 16
    part.is_counted = piece.counted
    if piece.unset is not None:
        part.has_unset = True
        part.unset = text_of(piece.unset)
        longest = max(longest, part.unset.length)
    return longest


cdef const uint8_t* octets_of(view, list held) except? NULL:
    cdef const uint8_t[:] octets
    if not view.nbytes:
        return NULL
    octets = view.cast("B")
    held.append(octets)
    return &octets[0]


cdef extern from "compiled/writing.h" nogil:
    uint8_t* write_json(uint8_t* to, const uint8_t* text, Py_ssize_t length) noexcept

cdef enum:  # TextStyle
    PLAIN
    ONE_LINE
    RFC4180
    JSON
    IPFIX
    NATIVE


def encode_texts(values, bytes prefix, int style):
    """As ``row_writing.encode_texts_plainly``."""
    cdef Py_ssize_t length, rest, at, room = 1024, before = PyBytes_GET_SIZE(prefix)
    cdef const uint8_t* text
    cdef uint8_t* buffer = <uint8_t*>malloc(room)
    cdef uint8_t* to
    cdef uint8_t* larger
    cdef bint needs_quotes
    cdef list made = []
    if buffer == NULL:
        raise MemoryError
    try:
        for value in values:
            text = <const uint8_t*>PyUnicode_AsUTF8AndSize(value, &length)
            if room < before + 6 * length + 10:
                room = 2 * (before + 6 * length + 10)
                larger = <uint8_t*>realloc(buffer, room)
                if larger == NULL:
                    raise MemoryError
                buffer = larger
            memcpy(buffer, PyBytes_AS_STRING(prefix), before)
            to = buffer + before
            if style == JSON:
                to = write_json(to, text, length)
            elif style == PLAIN or style == IPFIX or style == NATIVE:
                if style == NATIVE:
                    rest = length
                    while rest > 127:
                        to[0] = <uint8_t>(rest & 127 | 128)
                        to += 1
                        rest >>= 7
                    to[0] = <uint8_t>rest
                    to += 1
                elif style == IPFIX:
                    if length > 65535:
                        raise ValueError(f"{length} octets are more than a field can have")
                    if length >= 255:
                        to[0] = 255
                        to[1] = <uint8_t>(length >> 8)
                        to += 2
                    to[0] = <uint8_t>length
                    to += 1
                memcpy(to, text, length)
                to += length
            elif style == ONE_LINE:
                for at in range(length):
                    to[at] = c" " if text[at] == c"\n" or text[at] == c"\r" else text[at]
                to += length
            else:
                needs_quotes = False
                for at in range(length):
                    if text[at] == c'"' or text[at] == c"," or text[at] == c"\n" or text[at] == c"\r":
                        needs_quotes = True
                        break
                if not needs_quotes:
                    memcpy(to, text, length)
                    to += length
                else:
                    to[0] = c'"'
                    to += 1
                    for at in range(length):
                        if text[at] == c'"':
                            to[0] = c'"'
                            to += 1
                        to[0] = text[at]
                        to += 1
                    to[0] = c'"'
                    to += 1
            made.append(PyBytes_FromStringAndSize(<char*>buffer, to - buffer))
    finally:
        free(buffer)
    return made
