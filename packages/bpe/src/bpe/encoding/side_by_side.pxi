# Pretokens of a batch merged side by side, in the lanes of lanes.h.


cdef int merge_together(
    Encoder encoder, Scratch scratch, cache_batch *batch, const Piece *pieces, const size_t *numbers, size_t count
) except -1 nogil:
    """Merge pretokens of a batch side by side, and put them into the cache.

    A long one has several pieces, its windows; where these cannot be joined, it is left to encode_one().
    """
    cdef uint32_t ids[MOST_WINDOWS * LANE_BYTES + COPIED_IDS]
    cdef Lane *lane
    cdef size_t k = 0, i, m, n, size, windows
    encoder.ranks.merge_pieces(scratch.work.lanes, pieces, count)
    while k < count:
        i = numbers[k]
        windows = 1
        while k + windows < count and numbers[k + windows] == i:
            windows += 1
        if windows == 1:
            lane = &scratch.work.lanes[k]
            size = lane.count
            for n in range(0, size, 4):         # by fours: most have no more, and the count is unpredictable
                for m in range(n, n + 4):
                    ids[m] = id_of(encoder, lane.symbols[m])
        else:
            size = join_windows(&scratch.work, k, windows, batch.begins[i + 1] - batch.begins[i])
            for n in range(size):
                ids[n] = id_of(encoder, scratch.work.found[n])
        if encoder.first_beginning != NONE:
            size = spell_beginnings(encoder, ids, size)
        if size:
            batch.sets[i] = cache_keep(&encoder.cache.table, batch.keys[i], batch.sets[i], pieces[k].text, ids, size)
        k += windows
    return 0
