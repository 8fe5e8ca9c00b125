/* The numbers of the bits of a word that are one: from the masks of scanning back to places in the text. */
#ifndef BPE_PLACES_H
#define BPE_PLACES_H
#include "native/bytes.h"
#include "native/cpu.h"

/* Write the numbers of the ones of a word, ascending and plus `base`; returns how many. The vector versions write
 * several at once, which spares the processor a branch for each; so there has to be room for 64 numbers, whatever the
 * count. */
typedef size_t (*places_function)(uint64_t ones, size_t base, size_t *places);

static size_t places_portable(uint64_t ones, size_t base, size_t *places) {
    size_t count = 0;
    while (ones) {
        places[count++] = base + count_trailing_zeros(ones);
        ones &= ones - 1;
    }
    return count;
}

#ifdef BPE_X86
TARGET_AVX2 static size_t places_avx2(uint64_t ones, size_t base, size_t *places) {
    const size_t count = (size_t)_mm_popcnt_u64(ones);
    for (size_t i = 0; i < count; i += 4)
        for (size_t j = 0; j < 4; j++) {
            places[i + j] = base + _tzcnt_u64(ones); /* 64 of zero */
            ones &= ones - 1;
        }
    return count;
}
#endif

#ifdef BPE_NEON
/* Four ones to a branch: NEON has nothing that moves the bytes of a mask together. The bits are turned round once, for
 * ARM counts zeros from the top only. */
static size_t places_neon(uint64_t ones, size_t base, size_t *places) {
    const size_t count = vaddv_u8(vcnt_u8(vcreate_u8(ones)));
    uint64_t turned = __rbitll(ones);
    for (size_t i = 0; i < count; i += 4)
        for (size_t j = 0; j < 4; j++) {
            const uint64_t zeros = __clzll(turned); /* 64 of zero */
            places[i + j] = base + zeros;
            turned &= ~(1ULL << 63 >> (zeros & 63));
        }
    return count;
}
#endif

static inline places_function choose_places(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX2) return places_avx2;
#endif
#ifdef BPE_NEON
    if (level >= LEVEL_NEON) return places_neon;
#endif
    return places_portable;
}
#endif
