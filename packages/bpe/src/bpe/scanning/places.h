/* The numbers of the bits of a word that are one: from the masks of scanning back to places in the text. */
#ifndef BPE_PLACES_H
#define BPE_PLACES_H
#include "native/bytes.h"
#include "native/cpu.h"

/* Write the numbers of the ones of a word, ascending and plus `base`; returns how many. Four are written at a time,
 * which spares the processor a branch for each; so there has to be room for 64 numbers, whatever the count. */
typedef size_t (*places_function)(uint64_t ones, size_t base, size_t *places);

#define PLACES(name, target)                                                            \
    target static size_t name(uint64_t ones, size_t base, size_t *places) {             \
        const size_t count = (size_t)__builtin_popcountll(ones);                        \
        for (size_t i = 0; i < count; i += 4)                                           \
            for (size_t k = 0; k < 4; k++) {                                            \
                places[i + k] = base + (size_t)count_trailing_zeros(ones | 1ULL << 63); \
                ones &= ones - 1;                                                       \
            }                                                                           \
        return count;                                                                   \
    }

PLACES(places_portable, )
#ifdef BPE_X86
PLACES(places_avx2, TARGET_AVX2) /* by its instructions for counts of bits */
#endif

static inline places_function choose_places(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX2) return places_avx2;
#endif
    return places_portable;
}
#endif
