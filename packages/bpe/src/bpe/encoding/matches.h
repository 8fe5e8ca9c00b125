/* Merging without merging: the tokens of a pretoken by longest matches, each checked against the token before it.
 *
 * Two tokens stay apart if merging their joined bytes gives these two again, and tokens whose neighbours all stay apart
 * are the result of merging all the bytes; windows.pxi has the proof. So there is one such sequence, and from
 * left to right it is found by trying, longest first, the tokens that the text goes on with:
 *
 *     text       c a t a l o g u e s
 *     longest    catalogue                nothing is before it: taken
 *                          s              stays apart from "catalogue": taken
 *
 * If none of them stays apart from the token before, that token is given up for the next shorter one, and the place
 * where it ended is a dead end, whatever comes before it: the tokens of the text up to there were the only ones. So no
 * place is tried twice.
 *
 * Longest matches: a tree of the tokens by characters, as a hash table of its edges (the root's are in first[]).
 *
 *     63 62                43 42                22 21                 2  1  0
 *     +--+--------------------+--------------------+--------------------+--+--+
 *     | 0|        node        |     character      |       child        | P| L|   L: a leaf; P: tokens
 *     +--+--------------------+--------------------+--------------------+--+--+   go on with a part
 *
 * A node that is a token has its number; others come after. A character is whole, or, where a token or the text ends
 * inside it or it is no UTF-8, one byte of it.
 *
 * Staying apart: two neighbours are undone from the last of their merges to the first, beside their border:
 *
 *     the | catalogue      does any merge join these two?                           no
 *     the | cata           undone: cata + logue, the latest merge of the two        one of a lower rank than that? no
 *     he  | cata           undone: t + he                                           ...
 *
 * Tokens whose merges come after those of their parts, as training makes them, are numbered by rank after the bytes,
 * and only these are matched. Merging the bytes of two of them takes all merges of both in the order of their ranks,
 * and joins two neighbours across the border if, and only if, they have a merge that comes before the next one of
 * either. Other tokens are in no match; a pretoken that needs one has none, and is merged in lanes (lanes.h).
 *
 * Long pretokens gain by this, which are phrases of scripts without spaces. So the tokens are those with characters of
 * three bytes or more. */
#ifndef BPE_MATCHES_H
#define BPE_MATCHES_H
#include <string.h>

#include "encoding/merge_tables.h"
#include "native/bytes.h"

enum {
    LINK_BITS = 22, /* of a child with its flags */
    CHARACTER_BITS = 21,
    MOST_NODES = (1 << 20) - 1,
    LEAF = 1,
    PARTIAL = 2,
    TWO_BYTES = 0x100, /* the first character of two bytes, */
    THREE_BYTES = TWO_BYTES + (1 << 11),
    FOUR_BYTES = THREE_BYTES + (1 << 16),
    FIRST_CHARACTERS = FOUR_BYTES, /* characters with a place in first[]; longer ones are edges of node ROOT */
    MIN_MATCHED = 24,
    MATCHED_BYTES = 512, /* of a pretoken */
    BYTES = 256          /* the numbers below it */
};

typedef struct { /* of a token, by its number; of a byte, which comes before all others, only `size` and `shorter` */
    uint32_t left, right; /* what the last of its merges joins */
    uint32_t size;        /* in bytes */
    uint32_t shorter;     /* the longest other token that it begins with, or NONE */
} Split;

typedef struct {
    MergeTables pairs;  /* from two tokens to the token they merge to, by number */
    uint64_t *edges;    /* edge_mask + 1 of them, FREE where there is none */
    uint32_t *first;    /* by character: the child of the root with its flags, or NONE */
    uint32_t *token_of; /* by node, from number `numbers` on: the longest token that it begins with */
    Split *splits;
    uint32_t *symbol_of; /* by number */
    uint32_t *least;     /* by byte pair: the lowest number of a token whose parts end and begin with these */
    size_t edge_mask;
    int edge_shift;
    uint32_t numbers, nodes;
} Matches;

/* 1 for a pretoken that is worth matching: a phrase in a script of three bytes a character. */
static inline int is_matched(const uint8_t *text, size_t size) {
    return size > MIN_MATCHED && size <= MATCHED_BYTES && (text[0] >= 0xe0 || text[1] >= 0xe0);
}

static inline int continues(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* The number of the character, or byte, at the begin of a text of at least one byte, and its size. */
static inline uint32_t character_at(const uint8_t *text, size_t left, size_t *size) {
    const uint32_t lead = text[0];
    *size = 1;
    if (lead < 0xc0) return lead;
    if (lead < 0xe0) {
        if (left < 2 || !continues(text[1])) return lead;
        *size = 2;
        return TWO_BYTES + ((lead & 31) << 6 | (text[1] & 63));
    }
    if (lead < 0xf0) {
        if (left < 3 || !continues(text[1]) || !continues(text[2])) return lead;
        *size = 3;
        return THREE_BYTES + ((lead & 15) << 12 | (uint32_t)(text[1] & 63) << 6 | (text[2] & 63));
    }
    if (lead > 0xf4 || left < 4 || !continues(text[1]) || !continues(text[2]) || !continues(text[3])) return lead;
    *size = 4;
    return FOUR_BYTES +
           ((lead & 7) << 18 | (uint32_t)(text[1] & 63) << 12 | (uint32_t)(text[2] & 63) << 6 | (text[3] & 63));
}

#define ROOT ((uint32_t)MOST_NODES)

static inline uint64_t edge_key(uint32_t node, uint32_t character) {
    return (uint64_t)node << CHARACTER_BITS | character;
}

/* The place of an edge, or of the free entry where it would be. */
static inline size_t edge_slot(const Matches *matches, uint64_t key) {
    size_t slot = key * PAIR_HASH >> matches->edge_shift;
    while (matches->edges[slot] != FREE && matches->edges[slot] >> LINK_BITS != key)
        slot = (slot + 1) & matches->edge_mask;
    return slot;
}

/* The child of a node, with its flags, or NONE. */
static inline uint32_t child_of(const Matches *matches, uint32_t node, uint32_t character) {
    const uint64_t entry = matches->edges[edge_slot(matches, edge_key(node, character))];
    return entry == FREE ? NONE : (uint32_t)(entry & ((1u << LINK_BITS) - 1));
}

static inline uint32_t first_child(const Matches *matches, uint32_t character) {
    return character < FIRST_CHARACTERS ? matches->first[character] : child_of(matches, ROOT, character);
}

/* As far as edges of single bytes lead. */
static uint32_t walk_bytes(const Matches *matches, uint32_t link, const uint8_t *text, size_t size) {
    for (size_t at = 0; at < size; at++) {
        const uint32_t next = child_of(matches, link >> 2, text[at]);
        if (next == NONE) break;
        link = next;
    }
    return link;
}

static inline uint32_t token_of_node(const Matches *matches, uint32_t node) {
    return node < matches->numbers ? node : matches->token_of[node - matches->numbers];
}

/* 1 if two neighbouring tokens stay apart: undone from the last of their merges to the first, no merge of a lower rank
 * joins what is beside their border. `least` is the lowest number of a token that any merge across it could make. */
static inline int stay_apart(const Matches *matches, uint32_t left, uint32_t right, uint32_t least, size_t *steps) {
    uint32_t limit = UINT32_MAX;
    do {
        const uint64_t pair = pair_of(&matches->pairs, left, right);
        size_t slot;
        if (may_merge(&matches->pairs, pair, &slot) && find_merge(&matches->pairs, pair, slot) < limit) return 0;
        if (left > right) { /* of equal ones the left one was merged first */
            if (left < BYTES) return 1;
            limit = left; /* before the same merge across the border, which is further right */
            left = matches->splits[left].right;
        } else {
            if (right < BYTES) return 1;
            limit = right + 1; /* and this one after it */
            right = matches->splits[right].left;
        }
        ++*steps;
    } while (limit > least);
    return 1;
}

/* The longest token that a text of at least one byte begins with. */
static inline uint32_t longest_match(const Matches *matches, const uint8_t *text, size_t size) {
    size_t length, at;
    uint32_t link = first_child(matches, character_at(text, size, &length));
    if (link == NONE) {
        link = walk_bytes(matches, matches->first[text[0]], text + 1, size - 1);
        return token_of_node(matches, link >> 2);
    }
    for (at = length; at < size && !(link & LEAF); at += length) {
        const uint32_t next = child_of(matches, link >> 2, character_at(text + at, size - at, &length));
        if (next == NONE) {
            if (link & PARTIAL) link = walk_bytes(matches, link, text + at, size - at);
            break;
        }
        link = next;
    }
    return token_of_node(matches, link >> 2);
}

/* Write the tokens of a pretoken of at most MATCHED_BYTES bytes, all of them symbols, by their numbers; returns how
 * many there are, or 0 where it took too many steps. */
static size_t match_bytes(const Matches *matches, const uint8_t *text, size_t size, uint32_t *numbers) {
    uint64_t dead[MATCHED_BYTES / 64] = {0};
    size_t at = 0, count = 0, steps = 0;
    while (at < size) {
        uint32_t token = longest_match(matches, text + at, size - at);
        for (;;) {
            const size_t last = at + matches->splits[token].size - 1;
            if (!(dead[last / 64] >> last % 64 & 1)) {
                uint32_t least;
                if (count == 0) break;
                least = matches->least[byte_pair_at(text[at - 1], text[at])];
                if (least == UINT32_MAX || stay_apart(matches, numbers[count - 1], token, least, &steps)) break;
            }
            if (steps++ > 32 * size + 256) return 0;
            token = matches->splits[token].shorter;
            while (token == NONE) { /* the token before is given up, as nothing can follow it */
                if (count == 0) return 0;
                dead[(at - 1) / 64] |= (uint64_t)1 << (at - 1) % 64;
                token = numbers[--count];
                at -= matches->splits[token].size;
                token = matches->splits[token].shorter;
            }
        }
        numbers[count++] = token;
        at += matches->splits[token].size;
    }
    return count;
}

/* Building the tables. */

typedef struct { /* of a symbol: the merge that its own bytes lead to, and its rank plus one; 0: none, or a byte */
    uint32_t left, right, rank;
} Tree;

/* 1 if merging the bytes of two symbols side by side leads to these two; both are bytes or have trees. */
static int lead_to(const MergeTables *tables, const Tree *trees, uint32_t left, uint32_t right) {
    uint32_t limit = UINT32_MAX;
    while (trees[left].rank || trees[right].rank) {
        size_t slot;
        if (trees[left].rank > trees[right].rank) {
            limit = trees[left].rank;
            left = trees[left].right;
        } else {
            limit = trees[right].rank + 1;
            right = trees[right].left;
        }
        const uint64_t pair = pair_of(tables, left, right);
        if (may_merge(tables, pair, &slot)) {
            const uint32_t merge = find_merge(tables, pair, slot);
            if (merge != NONE && merge + 1 < limit) return 0;
        }
    }
    return 1;
}

static inline void put_edge(Matches *matches, uint32_t node, uint32_t character, uint32_t link) {
    const uint64_t key = edge_key(node, character);
    if (node == ROOT && character < FIRST_CHARACTERS) matches->first[character] = link;
    else matches->edges[edge_slot(matches, key)] = key << LINK_BITS | link;
}

/* The characters of a token, one by one, and as single bytes where the token ends inside a character. Returns 0 for too
 * many nodes. Shorter tokens first. */
static int add_match(Matches *matches, uint32_t token, const uint8_t *text, size_t size) {
    uint32_t node = ROOT, parent = ROOT, parent_character = 0, link = 0, best = NONE;
    for (size_t at = 0, length; at < size; at += length) {
        const uint32_t character = character_at(text + at, size - at, &length);
        uint32_t next = node == ROOT ? first_child(matches, character) : child_of(matches, node, character);
        if (node != ROOT) { /* as longer tokens begin with it */
            const uint32_t flagged = (link & ~(uint32_t)LEAF) | (text[at] >= 0xc0 && length == 1 ? PARTIAL : 0);
            if (flagged != link) put_edge(matches, parent, parent_character, link = flagged);
            best = token_of_node(matches, node);
        }
        if (next == NONE) {
            const uint32_t number = at + length == size ? token : matches->nodes++;
            if (matches->nodes == 2 * matches->numbers) return 0;
            next = number << 2 | LEAF;
            put_edge(matches, node, character, next);
            if (length > 1 && (node == ROOT || link & PARTIAL)) { /* tokens may end inside this character */
                uint32_t inside = node == ROOT ? matches->first[text[at]] : link;
                if (inside != NONE && node == ROOT) inside = walk_bytes(matches, inside, text + at + 1, length - 1);
                else if (inside != NONE) inside = walk_bytes(matches, inside, text + at, length);
                if (inside != NONE && inside >> 2 != node) best = token_of_node(matches, inside >> 2);
            }
            if (number < matches->numbers) matches->splits[number].shorter = best;
            else matches->token_of[number - matches->numbers] = best;
        }
        parent = node;
        parent_character = character;
        node = next >> 2;
        link = next;
    }
    return 1;
}
#endif
