/* Merging without merging: the tokens of a pretoken by longest matches, each checked against the token before it.
 *
 * Two tokens stay apart if merging their joined bytes gives these two again, and tokens of which each two neighbours
 * stay apart are what merging all the bytes gives; windows.pxi has the proof. So there is one such sequence, and from
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
 * Longest matches: a tree of the tokens by characters, as a hash table of its edges (first[] has those of the root).
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
    FIRST_CHARACTERS = FOUR_BYTES, /* characters with a place in first[]; those of four bytes are edges of node ROOT */
    MIN_MATCHED = 24,
    MATCHED_BYTES = 512, /* of a pretoken */
    MATCHES = 32,        /* pretokens side by side */
    BYTES = 256          /* the numbers below it */
};

typedef struct { /* of a token, by its number; of a byte, which comes before all others, only `size` and `shorter` */
    uint32_t left, right; /* what the last of its merges joins */
    uint32_t size;        /* in bytes */
    uint32_t shorter;     /* the longest other token that it begins with, or NONE */
} Split;

typedef struct {
    MergeTables pairs;  /* of two numbers, to that of the token they merge to */
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

typedef struct { /* of a pretoken on its way */
    const uint8_t *text;
    uint32_t *symbols;        /* room for one for each byte; the first `count` are those of text[:at] */
    uint32_t size, at, count; /* at the end `count` is the number of symbols, or 0: it took too many steps */
    uint32_t end;             /* of what is matched from `at` on */
    uint32_t link;            /* of the node that it leads to */
    uint32_t length, token, left, right, limit, least, steps;
    uint64_t key; /* of the edge, or the pair, that is being prefetched, */
    size_t slot;  /* and where it is looked for */
    uint64_t dead[MATCHED_BYTES / 64];
} Match;

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

/* Begin to look up what two neighbours merge to. */
static inline void start_pair(const Matches *matches, Match *match) {
    size_t slot;
    match->key = pair_of(&matches->pairs, match->left, match->right);
    match->slot = may_merge(&matches->pairs, match->key, &slot) ? slot : matches->pairs.mask + 1;
    prefetch(&matches->pairs.pairs[match->slot]);
    prefetch(&matches->splits[match->left]);
    prefetch(&matches->splits[match->right]);
}

/* One step of undoing the merges of two neighbours; returns APART, JOINED by a merge, or MORE. */
enum { MORE, APART, JOINED };

static inline int pair_step(const Matches *matches, Match *match) {
    const uint32_t left = match->left, right = match->right;
    if (matches->pairs.pairs[match->slot] != FREE) {
        const uint32_t merge = find_merge(&matches->pairs, match->key, match->slot);
        if (merge < match->limit) return JOINED; /* which NONE is not */
    }
    if (left > right) { /* of equal ones the left one was merged first */
        if (left < BYTES) return APART;
        match->limit = left; /* before the same merge across the border, which is further right */
        match->left = matches->splits[left].right;
    } else {
        if (right < BYTES) return APART;
        match->limit = right + 1; /* and this one after it */
        match->right = matches->splits[right].left;
    }
    if (match->limit <= match->least) return APART;
    start_pair(matches, match);
    return MORE;
}

/* Begin to look up the edge that goes on from a node with the next character; returns 0 where there is none. */
static inline int start_edge(const Matches *matches, Match *match) {
    size_t length;
    if (match->end == match->size || match->link & LEAF) return 0;
    const uint32_t character = character_at(match->text + match->end, match->size - match->end, &length);
    match->length = (uint32_t)length;
    match->key = edge_key(match->link >> 2, character);
    match->slot = match->key * PAIR_HASH >> matches->edge_shift;
    prefetch(&matches->edges[match->slot]);
    return 1;
}

/* Begin a longest match; returns 0 where it is done. */
static inline int start_walk(const Matches *matches, Match *match) {
    const uint8_t *text = match->text + match->at;
    const size_t size = match->size - match->at;
    size_t length;
    match->link = first_child(matches, character_at(text, size, &length));
    match->end = match->at + (uint32_t)length;
    if (match->link != NONE) return start_edge(matches, match);
    match->link = walk_bytes(matches, matches->first[text[0]], text + 1, size - 1);
    return 0;
}

static inline int walk_step(const Matches *matches, Match *match) {
    const uint64_t entry = matches->edges[match->slot];
    if (entry >> LINK_BITS == match->key) {
        match->link = (uint32_t)(entry & ((1u << LINK_BITS) - 1));
        match->end += match->length;
        return start_edge(matches, match);
    }
    if (entry != FREE) {
        match->slot = (match->slot + 1) & matches->edge_mask;
        return 1;
    }
    if (match->link & PARTIAL)
        match->link = walk_bytes(matches, match->link, match->text + match->end, match->size - match->end);
    return 0;
}

/* Begin to compare a token with the one before it; returns APART or JOINED where that is known at once. */
static inline int start_pairs(const Matches *matches, Match *match) {
    const uint32_t end = match->at + matches->splits[match->token].size;
    if (match->dead[(end - 1) / 64] >> (end - 1) % 64 & 1) return JOINED;
    if (match->count == 0) return APART;
    match->least = matches->least[byte_pair_at(match->text[match->at - 1], match->text[match->at])];
    if (match->least == UINT32_MAX) return APART;
    match->limit = UINT32_MAX;
    match->left = match->symbols[match->count - 1];
    match->right = match->token;
    start_pair(matches, match);
    return MORE;
}

/* Take the next shorter token, or give up the one before; returns 0 where none is left. */
static int next_shorter(const Matches *matches, Match *match) {
    match->token = matches->splits[match->token].shorter;
    while (match->token == NONE) {
        if (match->count == 0) return 0;
        match->dead[(match->at - 1) / 64] |= (uint64_t)1 << (match->at - 1) % 64;
        match->token = match->symbols[--match->count];
        match->at -= matches->splits[match->token].size;
        match->token = matches->splits[match->token].shorter;
    }
    return 1;
}

/* Match up to MATCHES pretokens of at most MATCHED_BYTES bytes, each of which is a symbol. Steps are made in turn: all
 * walks to the end, then all comparisons. */
static void match_all(const Matches *matches, Match *all, size_t count) {
    Match *walking[MATCHES], *comparing[MATCHES];
    size_t n_walking = 0, n_comparing = 0, i;
    for (i = 0; i < count; i++) {
        all[i].at = all[i].count = all[i].steps = 0;
        memset(all[i].dead, 0, ((all[i].size + 63) / 64) * sizeof(uint64_t));
        walking[n_walking++] = &all[i];
    }
    while (n_walking) {
        Match *busy[MATCHES], *undecided[MATCHES];
        size_t n_busy = 0, n_undecided = 0;
        for (i = 0; i < n_walking; i++) {
            busy[n_busy] = walking[i];
            n_busy += (size_t)start_walk(matches, walking[i]);
        }
        while (n_busy) {
            size_t left = 0;
            for (i = 0; i < n_busy; i++) {
                Match *match = busy[i];
                busy[left] = match;
                left += (size_t)walk_step(matches, match);
            }
            n_busy = left;
        }
        for (i = 0; i < n_walking; i++) {
            walking[i]->token = token_of_node(matches, walking[i]->link >> 2);
            prefetch(&matches->splits[walking[i]->token]);
            comparing[i] = walking[i];
        }
        n_comparing = n_walking;
        n_walking = 0;
        while (n_comparing) {
            /* begin, or decide */
            for (i = 0; i < n_comparing; i++) {
                Match *match = comparing[i];
                int result = start_pairs(matches, match);
                while (result == JOINED) {
                    if (match->steps++ > 8 * match->size + 64 || !next_shorter(matches, match)) {
                        match->count = 0;
                        break;
                    }
                    result = start_pairs(matches, match);
                }
                if (result == MORE) {
                    undecided[n_undecided++] = match;
                } else if (result == APART) {
                    match->symbols[match->count++] = match->token;
                    match->at += matches->splits[match->token].size;
                    if (match->at < match->size) walking[n_walking++] = match;
                }
            }
            n_comparing = 0;
            while (n_undecided) {
                size_t left = 0;
                for (i = 0; i < n_undecided; i++) {
                    Match *match = undecided[i];
                    const int result = pair_step(matches, match);
                    undecided[left] = match;
                    left += result == MORE;
                    match->steps++;
                    if (result == APART) {
                        match->symbols[match->count++] = match->token;
                        match->at += matches->splits[match->token].size;
                        if (match->at < match->size) walking[n_walking++] = match;
                    } else if (result == JOINED) {
                        if (match->steps > 32 * match->size + 256 || !next_shorter(matches, match)) match->count = 0;
                        else comparing[n_comparing++] = match;
                    }
                }
                n_undecided = left;
            }
        }
    }
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
        if (node != ROOT) { /* as what is longer than a node begins with it */
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
