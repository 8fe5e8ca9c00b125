/* Loads, hashes and bit counts that Cython has no words for. Nothing here allocates or fails. */
#ifndef BPE_BYTES_H
#define BPE_BYTES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* prefetch() fetches a cache line into the L1 cache, and prefetch_far() into the L2 cache, which can wait
 * for more lines of main memory at a time: on a Zen 4, 4 ns a line instead of 8. It is for memory that is read after
 * many other fetches. */
static inline int count_trailing_zeros(uint64_t word) { return __builtin_ctzll(word); }
static inline int count_leading_zeros(uint64_t word) { return __builtin_clzll(word); }
static inline uint64_t multiply_fold(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
static inline void prefetch(const void *address) { __builtin_prefetch(address); }
static inline void prefetch_far(const void *address) { __builtin_prefetch(address, 0, 2); }

/* How one thread tells others that something is there to be read. */
typedef long atomic_word;
static inline long load_acquire(atomic_word *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static inline void store_release(atomic_word *word, long value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
static inline int exchange_if(atomic_word *word, long from, long to) {
    return __atomic_compare_exchange_n(word, &from, to, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
}

/* Hashes of text, in the manner of wyhash (Wang Yi, 2019): one 64 x 64 -> 128-bit multiplication whose halves are
 * folded together. Both factors depend on the seed (native/hash_seed.pyx): a factor that a text could make zero would
 * hide what the other one says, and texts that collide could be prepared. */
static inline uint64_t other_seed(uint64_t seed) { return seed << 32 | seed >> 32; }

static inline uint64_t hash_pair(uint64_t a, uint64_t b, uint64_t seed) {
    return multiply_fold(a ^ seed, b ^ other_seed(seed));
}

static inline uint64_t eight_bytes(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* A word whose lowest byte is the first one in memory. */
static inline uint64_t little_endian(uint64_t word) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(word);
#else
    return word;
#endif
}

static inline uint64_t four_bytes(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The last 16 bytes, or all of a shorter text, are two words; of under 16 bytes these have bytes in common. */
static inline uint64_t hash_bytes(const uint8_t *at, size_t size, uint64_t seed) {
    uint64_t hash = size ^ other_seed(seed), a = 0, b = 0;
    const uint8_t *end = at + size;
    for (; end - at > 16; at += 16) hash = multiply_fold(eight_bytes(at) ^ seed, eight_bytes(at + 8) ^ hash);
    if (size >= 8) {
        at = size < 16 ? at : end - 16;
        a = eight_bytes(at);
        b = eight_bytes(end - 8);
    } else if (size >= 4) {
        a = four_bytes(at);
        b = four_bytes(end - 4);
    } else if (size) {
        a = (uint64_t)at[0] << 16 | (uint64_t)at[size / 2] << 8 | end[-1];
    }
    return multiply_fold(a ^ seed, b ^ hash);
}

enum { PACKED = 15 }; /* bytes of the longest pretoken that is packed */

/* A pretoken of at most PACKED bytes as two words, so that comparing two of them takes two instructions. By the value
 * of the words, which does not depend on the byte order of the machine:
 *
 *     byte     0 1 2 3 4 5 6 7 | 8 9 ... 14 | 15
 *              low             | high       |
 *              text, then zeros             | its length      */
typedef struct {
    uint64_t low, high;
} packed_key;

#define LONG_KEY 0xff00000000000000ULL /* plus its size: the second word of a longer one, which no short one has */

/* From PACKED - n on: n bytes that are kept, and zeros. */
static const uint8_t keep[PACKED + 16] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};

/* `room` is how many bytes may be read from `at`. With 16 or more the load is two instructions, and the bytes beyond
 * the pretoken are masked away. */
static inline packed_key pack_key(const uint8_t *at, size_t size, size_t room) {
    packed_key key;
    if (room >= 16) {
        key.low = little_endian(eight_bytes(at) & eight_bytes(keep + PACKED - size));
        key.high = little_endian(eight_bytes(at + 8) & eight_bytes(keep + PACKED + 8 - size));
    } else {
        key.low = key.high = 0;
        for (size_t i = 0; i < size; i++) {
            if (i < 8) key.low |= (uint64_t)at[i] << (8 * i);
            else key.high |= (uint64_t)at[i] << (8 * (i - 8));
        }
    }
    key.high |= (uint64_t)size << 56;
    return key;
}

/* Write the bytes of a packed pretoken to `to`, which has room for 16. */
static inline void unpack_key(packed_key key, uint8_t *to) {
    key.low = little_endian(key.low);
    key.high = little_endian(key.high);
    memcpy(to, &key.low, 8);
    memcpy(to + 8, &key.high, 8);
}
#endif
