/* What a Scanner holds of automaton.h and of joins.h. */
#ifndef BPE_LEVELS_H
#define BPE_LEVELS_H
#include <stddef.h>
#include <stdint.h>

#define MOST_LEVELS 8

/* Where an automaton is in a text: the rest of its piece, and the end of a match that was found behind a gap, or 0. */
typedef struct {
    size_t at, end, match;
} level_place;

/* What 64 bytes leave to the next: whether the last of them was a space, a letter of ASCII, from 0x80 on. */
typedef struct {
    uint64_t blank, letter, high;
} joins_before;
#endif
