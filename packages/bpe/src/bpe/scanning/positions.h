/* The numbers of the bits of a word that are one: from the masks of scanning back to positions in the text. */
#ifndef BPE_POSITIONS_H
#define BPE_POSITIONS_H
#include "native/bytes.h"
#include "native/cpu.h"

/* Write the numbers of the ones of a word, ascending and plus `base`; returns how many. Four are written at a time,
 * which spares the processor a branch for each; so there has to be room for 64 numbers, whatever the count. */
typedef size_t (*positions_function)(uint64_t ones, size_t base, size_t *positions);

#define POSITIONS(name, target)                                                            \
    target static size_t name(uint64_t ones, size_t base, size_t *positions) {             \
        const size_t count = (size_t)__builtin_popcountll(ones);                           \
        for (size_t i = 0; i < count; i += 4)                                              \
            for (size_t k = 0; k < 4; k++) {                                               \
                positions[i + k] = base + (size_t)count_trailing_zeros(ones | 1ULL << 63); \
                ones &= ones - 1;                                                          \
            }                                                                              \
        return count;                                                                      \
    }

POSITIONS(positions_portable, )
#ifdef BPE_X86
POSITIONS(positions_avx2, TARGET_AVX2) /* by its instructions for counts of bits */
#endif

static inline positions_function choose_positions(int level) {
    (void)level;
#ifdef BPE_X86
    if (level >= LEVEL_AVX2) return positions_avx2;
#endif
    return positions_portable;
}
#endif
