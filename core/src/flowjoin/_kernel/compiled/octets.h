/* Octets in memory: loads and stores without alignment, network order, a seeded hash.

   States are packed, so nothing in them is aligned: every access goes through memcpy, which compilers turn
   into one instruction. States and columns are little-endian: on another machine the build ends here, and
   the plain-Python kernel is used. */
#ifndef FLOWJOIN_OCTETS_H
#define FLOWJOIN_OCTETS_H

#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the compiled kernel wants a little-endian machine"
#endif

static inline uint64_t load64(const void *at) { uint64_t value; memcpy(&value, at, 8); return value; }
static inline uint32_t load32(const void *at) { uint32_t value; memcpy(&value, at, 4); return value; }
static inline uint16_t load16(const void *at) { uint16_t value; memcpy(&value, at, 2); return value; }
static inline double load_double(const void *at) { double value; memcpy(&value, at, 8); return value; }
static inline void store64(void *at, uint64_t value) { memcpy(at, &value, 8); }
static inline void store32(void *at, uint32_t value) { memcpy(at, &value, 4); }
static inline void store16(void *at, uint16_t value) { memcpy(at, &value, 2); }
static inline void store_double(void *at, double value) { memcpy(at, &value, 8); }

static inline uint64_t wire64(const void *at) { return __builtin_bswap64(load64(at)); }
static inline uint32_t wire32(const void *at) { return __builtin_bswap32(load32(at)); }
static inline uint16_t wire16(const void *at) { return __builtin_bswap16(load16(at)); }

static inline float wire_float(const void *at) {
    uint32_t bits = wire32(at);
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline double wire_double(const void *at) {
    uint64_t bits = wire64(at);
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

/* Up to eight octets in network order. */
static inline uint64_t wire_number(const uint8_t *at, unsigned size) {
    uint64_t value = 0;
    while (size--) value = value << 8 | *at++;
    return value;
}

/* The low octets of a number, as a state has them. */
static inline void store_number(uint8_t *at, uint64_t value, unsigned size) {
    switch (size) {
    case 1: *at = (uint8_t)value; break;
    case 2: store16(at, (uint16_t)value); break;
    case 4: store32(at, (uint32_t)value); break;
    default: store64(at, value);
    }
}

static inline uint64_t load_number(const uint8_t *at, unsigned size) {
    switch (size) {
    case 1: return *at;
    case 2: return load16(at);
    case 4: return load32(at);
    default: return load64(at);
    }
}

static inline int is_zero(const uint8_t *at, size_t size) {
    while (size--) if (*at++) return 0;
    return 1;
}

/* Mostly a few tens of octets: cheaper than a call. */
static inline int are_equal(const uint8_t *one, const uint8_t *other, size_t size) {
    uint64_t differing = 0;
    if (size > 64) return memcmp(one, other, size) == 0;
    if (size >= 8) {
        for (size_t at = 0; at < size - 8; at += 8) differing |= load64(one + at) ^ load64(other + at);
        return (differing | (load64(one + size - 8) ^ load64(other + size - 8))) == 0;
    }
    if (size >= 4) return load32(one) == load32(other) && load32(one + size - 4) == load32(other + size - 4);
    for (size_t at = 0; at < size; at++) differing |= one[at] ^ other[at];
    return differing == 0;
}

static inline uint64_t hash_mix(uint64_t one, uint64_t other) {
    __uint128_t product = (__uint128_t)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Peers choose what is hashed, so the seeds are secret: with them unknown nobody can aim at one slot. */
static inline uint32_t hash_octets(const uint8_t *at, size_t size, const uint64_t *seeds) {
    uint64_t state = seeds[0] ^ size, head, tail;
    size_t left = size;
    while (left > 16) {
        state = hash_mix(load64(at) ^ seeds[1], load64(at + 8) ^ state);
        at += 16;
        left -= 16;
    }
    if (left > 8) {
        head = load64(at);
        tail = load64(at + left - 8);
    } else if (left >= 4) {
        head = load32(at);
        tail = load32(at + left - 4);
    } else if (left) {
        head = (uint64_t)at[0] << 16 | (uint64_t)at[left >> 1] << 8 | at[left - 1];
        tail = 0;
    } else {
        head = tail = 0;
    }
    state = hash_mix(seeds[2] ^ size, hash_mix(head ^ seeds[1], tail ^ state));
    return (uint32_t)(state ^ seeds[3] ^ (state >> 32));
}

#endif
