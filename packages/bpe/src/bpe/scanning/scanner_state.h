/* The state of the automaton and joins scanners in a text: fields of a Scanner. */
#ifndef BPE_SCANNER_STATE_H
#define BPE_SCANNER_STATE_H
#include <stddef.h>
#include <stdint.h>

#define MOST_STAGES 8
#define MOST_OWN (1 << 16) /* scanners of each kind that are made while the program runs, at a time */

/* Position of an automaton in a text: the rest of its piece, and the end of a match found behind a gap, or 0. */
typedef struct {
    size_t at, end, match;
} stage_position;

/* State from one 64 bytes to the next: 1 if the last byte was a space or an ASCII letter, and which of the last two
 * were no first bytes of a character. */
typedef struct {
    uint64_t blank, letter, inside;
} joins_before;
#endif
