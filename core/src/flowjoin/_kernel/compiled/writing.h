/* Numbers and strings as text. Each function writes at ``to`` and gives what is behind.

   What is written may be followed by up to PADDING octets of anything: there must be room for them, and they
   are overwritten by what comes next. Padded sources have as many octets behind their end that may be read. */
#ifndef FLOWJOIN_WRITING_H
#define FLOWJOIN_WRITING_H

#include "octets.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PADDING = 32, LONG_TEXT = 128 };

static const char PAIRS[] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
static const char HEX[] = "0123456789abcdef";
static const uint64_t POWERS[20] = {
    0u, 10u, 100u, 1000u, 10000u, 100000u, 1000000u, 10000000u, 100000000u, 1000000000u, 10000000000u,
    100000000000u, 1000000000000u, 10000000000000u, 100000000000000u, 1000000000000000u, 10000000000000000u,
    100000000000000000u, 1000000000000000000u, 10000000000000000000u,
};

/* A padded source. Its length is not known when this is compiled: blocks are cheaper than a call for so few octets. */
static inline uint8_t *put_padded(uint8_t *to, const uint8_t *from, size_t length) {
    if (length <= LONG_TEXT) {
        for (size_t at = 0; at < length; at += PADDING) memcpy(to + at, from + at, PADDING);
    } else {
        memcpy(to, from, length);
    }
    return to + length;
}

/* At most 20 digits. */
static inline uint8_t *write_decimal(uint8_t *to, uint64_t value) {
    unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1);
    unsigned digits = bits * 1233 >> 12; /* log2 to log10, one too low at times */
    digits += 1 - (value < POWERS[digits]);
    uint8_t *end = to + digits, *at = end;
    while (value >= 100) {
        memcpy(at -= 2, PAIRS + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        memcpy(at - 2, PAIRS + value * 2, 2);
    } else {
        at[-1] = (uint8_t)('0' + value);
    }
    return end;
}

/* Four octets as an IPv4 address. */
static inline uint8_t *write_dotted(uint8_t *to, const uint8_t *octets) {
    for (int at = 0; at < 4; at++) {
        unsigned value = octets[at];
        if (at) *to++ = '.';
        if (value >= 100) {
            *to++ = (uint8_t)('0' + value / 100);
            value %= 100;
            memcpy(to, PAIRS + value * 2, 2);
            to += 2;
        } else if (value >= 10) {
            memcpy(to, PAIRS + value * 2, 2);
            to += 2;
        } else {
            *to++ = (uint8_t)('0' + value);
        }
    }
    return to;
}

static inline uint8_t *write_hexadecimal(uint8_t *to, const uint8_t *octets, size_t length) {
    for (size_t at = 0; at < length; at++) {
        *to++ = (uint8_t)HEX[octets[at] >> 4];
        *to++ = (uint8_t)HEX[octets[at] & 15];
    }
    return to;
}

/* A number in network order, from one as a column has it. */
static inline uint8_t *write_swapped(uint8_t *to, const uint8_t *from, size_t size) {
    switch (size) {
    case 1: *to = *from; break;
    case 2: store16(to, wire16(from)); break;
    case 4: store32(to, wire32(from)); break;
    default: store64(to, wire64(from));
    }
    return to + size;
}

/* An exact number of octets from a source that is not padded. */
static inline uint8_t *put_exactly(uint8_t *to, const uint8_t *from, size_t size) {
    switch (size) {
    case 4: memcpy(to, from, 4); break;
    case 16: memcpy(to, from, 16); break;
    default: memcpy(to, from, size);
    }
    return to + size;
}

/* Whether one of eight octets must be escaped in JSON: a control character, a quote or a backslash. */
static inline int needs_escape(uint64_t octets) {
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t quotes = octets ^ ones * '"', slashes = octets ^ ones * '\\';
    return (((octets - ones * 0x20) & ~octets) | ((quotes - ones) & ~quotes) | ((slashes - ones) & ~slashes)) & tops
        ? 1 : 0;
}

/* As a JSON string, quotes included: at most six octets for each, and two. */
static inline uint8_t *write_json(uint8_t *to, const uint8_t *text, ptrdiff_t length) {
    ptrdiff_t at = 0;
    *to++ = '"';
    while (at < length) {
        if (length - at >= 8 && !needs_escape(load64(text + at))) {
            memcpy(to, text + at, 8);
            to += 8;
            at += 8;
            continue;
        }
        uint8_t octet = text[at++];
        if (octet == '"' || octet == '\\') {
            *to++ = '\\';
            *to++ = octet;
            continue;
        }
        if (octet >= 0x20) {
            *to++ = octet;
            continue;
        }
        *to++ = '\\';
        switch (octet) {
        case '\b': *to++ = 'b'; break;
        case '\f': *to++ = 'f'; break;
        case '\n': *to++ = 'n'; break;
        case '\r': *to++ = 'r'; break;
        case '\t': *to++ = 't'; break;
        default:
            memcpy(to, "u00", 3);
            to[3] = (uint8_t)HEX[octet >> 4];
            to[4] = (uint8_t)HEX[octet & 15];
            to += 5;
        }
    }
    *to++ = '"';
    return to;
}

/* As a field of RFC 4180: at most two octets for each, and two. */
static inline uint8_t *write_quoted(uint8_t *to, const uint8_t *text, ptrdiff_t length) {
    ptrdiff_t at = 0;
    while (at < length && text[at] != '"' && text[at] != ',' && text[at] != '\n' && text[at] != '\r') at++;
    if (at == length) {
        memcpy(to, text, (size_t)length);
        return to + length;
    }
    *to++ = '"';
    for (at = 0; at < length; at++) {
        if (text[at] == '"') *to++ = '"';
        *to++ = text[at];
    }
    *to++ = '"';
    return to;
}

static inline uint8_t *write_one_line(uint8_t *to, const uint8_t *text, ptrdiff_t length) {
    for (ptrdiff_t at = 0; at < length; at++) *to++ = text[at] == '\n' || text[at] == '\r' ? ' ' : text[at];
    return to;
}

/* RFC 7011 section 7: the length of a field of variable length, at most 65535. */
static inline uint8_t *write_ipfix_length(uint8_t *to, size_t length) {
    if (length >= 255) {
        *to++ = 255;
        *to++ = (uint8_t)(length >> 8);
    }
    *to++ = (uint8_t)length;
    return to;
}

/* LEB128. */
static inline uint8_t *write_native_length(uint8_t *to, size_t length) {
    while (length > 127) {
        *to++ = (uint8_t)((length & 127) | 128);
        length >>= 7;
    }
    *to++ = (uint8_t)length;
    return to;
}

/* Whether so many values are all the same. */
static inline int are_same(const uint8_t *values, size_t size, size_t count) {
    return count < 2 || memcmp(values, values + size, size * (count - 1)) == 0;
}

#endif
