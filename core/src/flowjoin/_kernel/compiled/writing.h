/* Numbers and strings as text. Each function writes at ``to``, where there is room, and gives what is behind. */
#ifndef FLOWJOIN_WRITING_H
#define FLOWJOIN_WRITING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static const char PAIRS[] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
static const char HEX[] = "0123456789abcdef";

/* At most 20 digits. */
static inline uint8_t *write_decimal(uint8_t *to, uint64_t value) {
    uint8_t digits[20];
    unsigned at = 20;
    while (value >= 100) {
        unsigned pair = (unsigned)(value % 100) * 2;
        value /= 100;
        digits[--at] = (uint8_t)PAIRS[pair + 1];
        digits[--at] = (uint8_t)PAIRS[pair];
    }
    if (value >= 10) {
        digits[--at] = (uint8_t)PAIRS[value * 2 + 1];
        digits[--at] = (uint8_t)PAIRS[value * 2];
    } else {
        digits[--at] = (uint8_t)('0' + value);
    }
    memcpy(to, digits + at, 20 - at);
    return to + (20 - at);
}

/* As a JSON string, quotes included: at most six octets for each, and two. */
static inline uint8_t *write_json(uint8_t *to, const uint8_t *text, ptrdiff_t length) {
    *to++ = '"';
    for (ptrdiff_t at = 0; at < length; at++) {
        uint8_t octet = text[at];
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

#endif
