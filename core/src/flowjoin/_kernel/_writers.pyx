# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""The rows of ``row_writing``, written octet by octet.

Strategy: every piece becomes a C struct, a part. Parts that are the same in every row are written once, and those
side by side become one: of a flow's many members most are defaults. Room for the longest possible row is made
before each row, so that nothing is checked within one. Invariant: the caller has checked lengths and formats; codes
are checked here.
"""

from array import array
from collections.abc import Sequence

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from flowjoin._kernel.row_writing import Chosen, Constant, Decimal, Dotted, Fixed, Hexadecimal, NetworkOrder

__all__ = ["Texts", "encode_texts", "pack_texts", "write_rows"]

cdef extern from "compiled/octets.h" nogil:
    uint64_t load_number(const uint8_t* at, unsigned size) noexcept
    uint32_t load32(const void* at) noexcept

cdef extern from "compiled/writing.h" nogil:
    enum: PADDING
    uint8_t* put_padded(uint8_t* to, const uint8_t* source, size_t length) noexcept
    uint8_t* put_exactly(uint8_t* to, const uint8_t* source, size_t length) noexcept
    uint8_t* write_decimal(uint8_t* to, uint64_t value) noexcept
    uint8_t* write_dotted(uint8_t* to, const uint8_t* octets) noexcept
    uint8_t* write_hexadecimal(uint8_t* to, const uint8_t* octets, size_t length) noexcept
    uint8_t* write_swapped(uint8_t* to, const uint8_t* source, size_t size) noexcept
    uint8_t* write_json(uint8_t* to, const uint8_t* text, Py_ssize_t length) noexcept
    uint8_t* write_quoted(uint8_t* to, const uint8_t* text, Py_ssize_t length) noexcept
    uint8_t* write_one_line(uint8_t* to, const uint8_t* text, Py_ssize_t length) noexcept
    uint8_t* write_ipfix_length(uint8_t* to, size_t length) noexcept
    uint8_t* write_native_length(uint8_t* to, size_t length) noexcept
    bint are_same(const uint8_t* values, size_t size, size_t count) noexcept

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* octets, Py_ssize_t size) except NULL
    int resize_bytes "_PyBytes_Resize"(PyObject** octets, Py_ssize_t size) except -1
    char* bytes_at "PyBytes_AS_STRING"(PyObject* octets) noexcept

include "compiled/texts.pxi"

cdef enum Kind:
    CONSTANT
    CHOSEN
    UNSIGNED
    SIGNED
    DOTTED
    OCTETS
    SWAPPED
    DIGITS

cdef struct Text:  # padded
    const uint8_t* octets
    Py_ssize_t length

cdef struct Part:
    Kind kind
    const uint8_t* values
    Py_ssize_t size  # octets of a value
    Py_ssize_t longest  # that it writes in one row
    const uint8_t* texts
    const Py_ssize_t* starts
    Py_ssize_t text_count
    Text prefix
    Text suffix
    Text unset
    bint has_unset
    bint is_counted

cdef enum:
    FIRST_ROWS = 16  # from them it is told how much room all need
    LONG_ROW = 65_536


def write_rows(pieces, Py_ssize_t rows, Py_ssize_t first, Py_ssize_t last):
    """As ``row_writing.write_rows``, which has made its checks."""
    cdef Py_ssize_t count = len(pieces), at, row, longest = 0, room, used = 0
    cdef Part* parts
    cdef uint8_t* constants = NULL
    cdef PyObject* written = NULL
    cdef uint8_t* to
    cdef uint64_t[:] ends
    cdef list held = []  # what the parts point into
    made = array("Q", bytes(8 * (last - first)))
    if first == last:
        return b"", made
    ends = made
    parts = <Part*>calloc(count + 1, sizeof(Part))
    if parts == NULL:
        raise MemoryError
    try:
        for at in range(count):
            prepare(parts + at, pieces[at], held)
            longest += parts[at].longest
        constants = <uint8_t*>malloc(longest + PADDING)
        if constants == NULL:
            raise MemoryError
        count = fold(parts, count, first, last, constants)
        room = longest if longest > LONG_ROW else FIRST_ROWS * longest
        written = new_bytes(NULL, room + PADDING)
        for row in range(first, last):
            if room - used < longest:
                # The rest is about as long as what is there.
                room = used + longest + (used // (row - first) + 1) * (last - row) * 9 // 8
                resize_bytes(&written, room + PADDING)
            to = <uint8_t*>bytes_at(written) + used
            for at in range(count):
                to = write_part(parts + at, row, to)
                if to == NULL:
                    raise IndexError(f"a code that is none of {parts[at].text_count}")
            used = to - <uint8_t*>bytes_at(written)
            ends[row - first] = used
        resize_bytes(&written, used)
        return <object>written, made
    finally:
        Py_XDECREF(written)
        free(constants)
        free(parts)


cdef Py_ssize_t fold(Part* parts, Py_ssize_t count, Py_ssize_t first, Py_ssize_t last, uint8_t* to) except -1:
    """Write parts that are the same in all rows once, and make one of those side by side; gives how many are left."""
    cdef Py_ssize_t at, kept = 0
    cdef const uint8_t* start
    for at in range(count):
        if parts[at].kind != CONSTANT and not are_same(
            parts[at].values + first * parts[at].size, parts[at].size, last - first
        ):
            parts[kept] = parts[at]
            kept += 1
            continue
        start = to
        to = write_part(parts + at, first, to)
        if to == NULL:
            raise IndexError(f"a code that is none of {parts[at].text_count}")
        if kept and parts[kept - 1].kind == CONSTANT:
            parts[kept - 1].prefix.length += to - start
        else:
            parts[kept].kind = CONSTANT
            parts[kept].prefix.octets, parts[kept].prefix.length = start, to - start
            kept += 1
    return kept


cdef inline uint8_t* write_part(const Part* part, Py_ssize_t row, uint8_t* to) noexcept:
    """Write a part of a row; gives what is behind, NULL if its code stands for nothing."""
    cdef const uint8_t* value = part.values + row * part.size
    cdef uint8_t* counted
    cdef uint64_t number
    cdef int64_t negative
    cdef uint32_t code
    if part.kind == CHOSEN:
        code = load32(value) if part.size == 4 else value[0]
        if code >= part.text_count:
            return NULL
        return put_padded(to, part.texts + part.starts[code], part.starts[code + 1] - part.starts[code])
    if part.kind == OCTETS:
        return put_exactly(to, value, part.size)
    if part.kind == SWAPPED:
        return write_swapped(to, value, part.size)
    if part.kind == DOTTED and part.has_unset and load32(value) == 0:
        return put_padded(to, part.unset.octets, part.unset.length)
    to = put_padded(to, part.prefix.octets, part.prefix.length)
    if part.kind == UNSIGNED:
        return write_decimal(to, load_number(value, <unsigned>part.size))
    if part.kind == CONSTANT:
        return to
    if part.kind == DOTTED:
        counted = to
        to = write_dotted(to + part.is_counted, value)
        if part.is_counted:
            counted[0] = <uint8_t>(to - counted - 1)
        return put_padded(to, part.suffix.octets, part.suffix.length)
    if part.kind == DIGITS:
        to = write_hexadecimal(to, value, part.size)
        return put_padded(to, part.suffix.octets, part.suffix.length)
    number = load_number(value, <unsigned>part.size)
    negative = <int64_t>(number << (64 - 8 * part.size)) >> (64 - 8 * part.size)
    if negative < 0:
        to[0] = c"-"
        to += 1
        number = 0 - <uint64_t>negative
    return write_decimal(to, number)


cdef int prepare(Part* part, piece, list held) except -1:
    """Make a piece's part."""
    cdef Texts texts
    kind = type(piece)
    if kind is Constant:
        part.kind = CONSTANT
        part.prefix = text_of(piece.octets, held)
        part.longest = part.prefix.length
        return 0
    if kind is Chosen:
        part.kind = CHOSEN
        part.size = piece.codes.itemsize
        part.values = octets_of(piece.codes, held)
        texts = piece.texts if isinstance(piece.texts, Texts) else pack_texts(piece.texts)
        held.append(texts)
        part.texts, part.starts, part.text_count = texts.octets, texts.starts, texts.count
        part.longest = texts.longest
        return 0
    column = piece.column
    part.values = octets_of(column.buffer, held)
    if kind is Decimal:
        part.kind = SIGNED if column.buffer.format in "bhiq" else UNSIGNED
        part.size = column.buffer.itemsize
        part.prefix = text_of(piece.prefix, held)
        part.longest = part.prefix.length + 20
        return 0
    if kind is NetworkOrder:
        part.kind = SWAPPED
        part.longest = part.size = column.buffer.itemsize
        return 0
    part.size = column.width
    if kind is Fixed:
        part.kind = OCTETS
        part.longest = part.size
        return 0
    part.prefix, part.suffix = text_of(piece.prefix, held), text_of(piece.suffix, held)
    part.longest = part.prefix.length + part.suffix.length
    if kind is Hexadecimal:
        part.kind = DIGITS
        part.longest += 2 * part.size
        return 0
    assert kind is Dotted, "no other piece"
    part.kind = DOTTED
    part.is_counted = piece.counted
    part.longest += 15 + part.is_counted
    if piece.unset is not None:
        part.has_unset = True
        part.unset = text_of(piece.unset, held)
        part.longest = max(part.longest, part.unset.length)
    return 0


cdef Text text_of(bytes octets, list held):
    cdef Text text
    cdef bytes padded = octets + bytes(PADDING)
    held.append(padded)
    text.octets, text.length = <const uint8_t*>PyBytes_AS_STRING(padded), PyBytes_GET_SIZE(octets)
    return text


cdef const uint8_t* octets_of(view, list held) except? NULL:
    cdef const uint8_t[:] octets
    if not view.nbytes:
        return NULL
    octets = view.cast("B")
    held.append(octets)
    return &octets[0]
