/* Pretokens by automata: what bpe.expressions.automaton compiles, for the patterns that no scanner by masks serves.
 *
 * A splitter has one automaton or several. The first parts the text into its matches and what lies between them, each
 * of the others does the same with every piece that is left by the one before. A step over a character is one look at a
 * table, and where a match ends is known one character later, which is what lets (?!\S) and possessive runs cost
 * nothing. */
#ifndef BPE_AUTOMATON_H
#define BPE_AUTOMATON_H
#include <stdlib.h>

#include "scanning/characters.h"
#include "scanning/scanner_state.h"

#define MATCH_BEFORE 0x8000 /* of an entry: a match ends before the character */
#define WIDE 255            /* instead of a class: the byte belongs to a character of several bytes */
enum { CUT_CLEAN = 1, CUT_ENDS = 2 };

typedef struct {
    uint32_t class_count; /* a row has one entry more, for the end of the text */
    uint32_t of_bytes;    /* whether every byte is a character */
    uint8_t of_byte[256]; /* the class of each byte, or WIDE */
    uint16_t *page;       /* page[c >> 7] << 7 | (c & 127) is where of_code has the class of the code point c */
    uint8_t *of_code;
    uint16_t *table; /* rows of entries: the position of the next row, or 0, with or without MATCH_BEFORE */
    uint8_t *cuts;   /* for each pair of classes: CUT_CLEAN, CUT_ENDS */
} automaton;

typedef struct {
    uint32_t stages;
    automaton stage[MOST_STAGES];
} splitter;

static splitter *splitters[MOST_OWN]; /* by number; NULL for a number that is free */

/* The class of the character at text[0] and its length. */
static inline uint32_t automaton_class(const automaton *a, const uint8_t *text, size_t room, size_t *length) {
    const uint32_t quick = a->of_byte[text[0]];
    uint32_t code;
    *length = 1;
    if (quick != WIDE) return quick;
    *length = decode_character(text, room, &code);
    return a->of_code[(uint32_t)a->page[code >> 7] << 7 | (code & 127)];
}

/* The end of the match that begins at `at`, or 0 where none does. */
static inline size_t automaton_match(const automaton *a, const uint8_t *text, size_t at, size_t end) {
    const uint16_t *table = a->table;
    size_t match = 0, length;
    uint32_t row = a->class_count + 1, entry;
    while (at < end) {
        entry = table[row + automaton_class(a, text + at, end - at, &length)];
        if (entry & MATCH_BEFORE) match = at;
        row = entry & ~(uint32_t)MATCH_BEFORE;
        if (!row) return match;
        at += length;
    }
    return table[row + a->class_count] & MATCH_BEFORE ? end : match;
}

/* The end of the next piece of a stage, or 0 after the last. The first stage's position begins as {0, size, 0}. */
static size_t next_piece(const splitter *s, const uint8_t *text, stage_position *positions, uint32_t stage) {
    const automaton *a = &s->stage[stage];
    stage_position *position = &positions[stage];
    size_t at, match, length;
    if (position->match) {
        position->at = position->match;
        position->match = 0;
        return position->at;
    }
    if (position->at == position->end) {
        if (stage == 0) return 0;
        position->end = next_piece(s, text, positions, stage - 1);
        if (position->end == 0) {
            position->end = position->at;
            return 0;
        }
    }
    for (at = position->at; at < position->end; at += length) {
        match = automaton_match(a, text, at, position->end);
        if (match) {
            if (at > position->at) { /* what lies before the match comes first */
                position->match = match;
                match = at;
            }
            position->at = match;
            return match;
        }
        automaton_class(a, text + at, position->end - at, &length);
    }
    return position->at = position->end;
}

/* The first position from `at` on where a piece surely ends, whatever comes before and after, or `size`: one of the
 * stages ends a piece there, and to those before it the position is as good as an end of the text. */
static size_t splitter_cut(const splitter *s, const uint8_t *text, size_t size, size_t at) {
    for (at = at ? at : 1; at < size; at++) {
        size_t length, ignored;
        uint32_t code;
        if ((text[at] & 0xc0) == 0x80) continue;
        decode_character(text + at, size - at, &code);
        if (code >= 0xd800 && code < 0xe000) continue; /* it may be a character whose end is still to come */
        length = decode_before(text, at, &code);
        for (uint32_t stage = 0; stage < s->stages; stage++) {
            const automaton *a = &s->stage[stage];
            const size_t back = a->of_bytes ? 1 : length;
            const uint32_t before = automaton_class(a, text + at - back, back, &ignored);
            const uint32_t after = automaton_class(a, text + at, size - at, &ignored);
            const uint8_t cut = a->cuts[before * a->class_count + after];
            if (cut & CUT_ENDS) return at;
            if (!(cut & CUT_CLEAN)) break;
        }
    }
    return size;
}

static void *copied(const void *from, size_t size) {
    void *to = malloc(size ? size : 1);
    if (to) memcpy(to, from, size);
    return to;
}
#endif
