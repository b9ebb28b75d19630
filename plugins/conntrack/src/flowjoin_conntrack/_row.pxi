# Where things stand in a row, as _entry.ROW packs it, and what both compiled modules read numbers with.

from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

cdef enum:
    PROTOCOL_AT = 1
    ZONE_AT = 2
    ID_AT = 4
    SOURCE_AT = 8
    DESTINATION_AT = 24
    SOURCE_PORT_AT = 40
    DESTINATION_PORT_AT = 42
    IDENTITY_OCTETS = 44
    ORIGINAL_DESTINATION_AT = 44
    REPLY_DESTINATION_AT = 60
    ORIGINAL_DESTINATION_PORT_AT = 76
    REPLY_DESTINATION_PORT_AT = 78
    MARK_AT = 80
    LABELS_AT = 84
    START_AT = 100
    STOP_AT = 108
    STATUS_AT = 116
    STATE_AT = 120
    PACKETS_AT = 121
    OCTETS_AT = 129
    REVERSE_PACKETS_AT = 137
    REVERSE_OCTETS_AT = 145
    ROW_OCTETS = 153


cdef inline uint16_t native16(const uint8_t *at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, at, 2)
    return value


cdef inline uint32_t native32(const uint8_t *at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return value


cdef inline uint64_t big64(const uint8_t *at) noexcept nogil:
    cdef uint64_t value = 0
    cdef int number
    for number in range(8):
        value = value << 8 | at[number]
    return value
