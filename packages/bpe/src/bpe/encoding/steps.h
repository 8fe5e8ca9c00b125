/* Merging what lanes hold, to the end: always the pair of the lowest rank, and of equals the leftmost.
 *
 * One merge in a lane is one step, and lanes take steps in turn. A step makes a symbol, which has two new
 * neighbours; the entries of these two pairs are prefetched, and read when the lane's turn comes again:
 *
 *     lane 0   least key -> merge -> prefetch left, right  .  .  .  .  .  .  read them -> least key -> merge -> ...
 *     lane 1      .         least key -> merge -> prefetch left, right  .  .  .  .  .     read them -> ...
 */
#ifndef BPE_STEPS_H
#define BPE_STEPS_H
#include "encoding/lanes.h"
#include "encoding/lowest.h"
#include "native/bytes.h"

/* Begin to look up what two symbols merge to, the left one at `at`. What the filter says is unpredictable, and so no
 * branch. */
static inline void start_lookup(const MergeTables *tables, Lookup *lookup, uint32_t at, uint64_t left, uint64_t right) {
    size_t slot;
    lookup->pair = pair_of(tables, left, right);
    lookup->at = at;
    lookup->slot = may_merge(tables, lookup->pair, &slot) ? slot : tables->mask + 1;
    prefetch(&tables->pairs[lookup->slot]);
}

/* The key of the pair that was looked up, or NONE. */
static inline uint32_t finish_lookup(const MergeTables *tables, const Lookup *lookup) {
    const uint64_t entry = tables->pairs[lookup->slot];
    if (pair_of_entry(tables, entry) != lookup->pair && entry != FREE) {
        const uint32_t merge = find_merge(tables, lookup->pair, lookup->slot);
        return merge == NONE ? NONE : key_of(merge, lookup->at);
    }
    return key_of(merge_of_entry(tables, entry), lookup->at) | (0 - (uint32_t)(entry == FREE));
}

/* One merge; returns 0 where there was none to do, and the lane's symbols are then moved together. */
static inline int merge_step(const MergeTables *tables, Lane *lane, lowest_function lowest) {
    const uint64_t alive = lane->alive;
    const uint32_t right_key = finish_lookup(tables, &lane->right), left_key = finish_lookup(tables, &lane->left);
    const uint32_t new_key = left_key < right_key ? left_key : right_key;
    uint32_t best = lowest(lane->keys, lane->keys_count); /* before the two are stored, which loads would wait for */
    best = new_key < best ? new_key : best;
    if (best == NONE) {
        lane->count = 0;
        for (uint64_t rest = alive; rest; rest &= rest - 1)
            lane->symbols[lane->count++] = lane->symbols[count_trailing_zeros(rest)];
        return 0;
    }
    lane->keys[lane->right.at] = right_key;
    lane->keys[lane->left.at] = left_key;
    const uint32_t at = place_of_key(best), product = made_by(tables, merge_of_key(best));
    uint64_t after = alive & (~(uint64_t)1 << at);
    const uint64_t before = alive & ~(~(uint64_t)0 << at);
    const uint32_t right_place =
        (uint32_t)count_trailing_zeros(after); /* its place in the lane; `at` is the left one */
    after &= after - 1;
    lane->symbols[at] = product;
    lane->keys[at] = lane->keys[right_place] = NONE;
    lane->alive = alive & ~((uint64_t)1 << right_place);
    lane->right.slot = lane->left.slot = tables->mask + 1;
    lane->right.at = lane->left.at = LANE_BYTES;
    if (after) start_lookup(tables, &lane->right, at, product, lane->symbols[count_trailing_zeros(after)]);
    if (before) {
        const uint32_t left = 63 - (uint32_t)count_leading_zeros(before);
        lane->keys[left] = NONE;
        start_lookup(tables, &lane->left, left, lane->symbols[left], product);
    }
    return 1;
}

/* Merge pieces of at most LANE_BYTES bytes, each in the lane of its number; each byte has to be a symbol. */
static void merge_lanes(const MergeTables *tables, lowest_function lowest, Lane *lanes, const Piece *pieces,
                        size_t count) {
    Lane *busy[LANES];
    fill_lanes(tables, lanes, pieces, count);
    for (size_t i = 0; i < count; i++) busy[i] = &lanes[i];
    while (count)
        for (size_t i = 0; i < count;) {
            if (merge_step(tables, busy[i], lowest)) i++;
            else busy[i] = busy[--count];
        }
}
#endif
