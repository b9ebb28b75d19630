# Values of fields that are no plain load: times in NTP form (RFC 7011 section 6.1.9), numbers of any length.

cdef uint64_t UNIX_EPOCH = 2_208_988_800  # seconds from 1900-01-01, NTP's epoch, to 1970-01-01


cdef inline uint64_t ntp(uint64_t stamp, uint32_t export_time, uint64_t units, uint32_t mask) noexcept:
    """Units since 1970, in the era that brings the stamp nearest to the export time; 0 before 1970."""
    cdef uint32_t away = <uint32_t>((stamp >> 32) - UNIX_EPOCH - export_time)
    cdef int64_t seconds = <int64_t>export_time + <int32_t>away
    cdef uint64_t fraction = stamp & mask
    cdef int64_t value = seconds * <int64_t>units + <int64_t>((fraction * units + 0x80000000) >> 32)
    return <uint64_t>value if value > 0 else 0


cdef inline uint64_t number_in_range(const uint8_t* at, uint32_t length, uint32_t natural, bint is_signed) noexcept:
    """RFC 7011 section 6.2: a number of one to eight octets, brought into its type's range."""
    cdef uint64_t value = wire_number(at, length)
    cdef int64_t number, bound
    if not is_signed:
        if length > natural and value >> (8 * natural):
            return (<uint64_t>1 << (8 * natural)) - 1
        return value
    number = <int64_t>(value << (64 - 8 * length)) >> (64 - 8 * length)
    if length > natural:
        bound = <int64_t>1 << (8 * natural - 1)
        number = -bound if number < -bound else bound - 1 if number >= bound else number
    return <uint64_t>number
