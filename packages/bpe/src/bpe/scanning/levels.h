/* Where each automaton of a splitter is in a text: what a Scanner holds of automaton.h. */
#ifndef BPE_LEVELS_H
#define BPE_LEVELS_H
#include <stddef.h>

#define MOST_LEVELS 8

/* The rest of a level's piece, and the end of a match that was found behind a gap, or 0. */
typedef struct {
    size_t at, end, match;
} level_place;
#endif
