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


cdef bint match_later(
    Encoder encoder, Scratch scratch, cache_batch *batch, size_t i, const uint8_t *text
) except -1 nogil:
    """Put pretoken number `i` of a batch among those to be matched; returns False where the tables are not made."""
    cdef Work *work = &scratch.work
    cdef size_t size = batch.begins[i + 1] - batch.begins[i]
    work.long_bytes += size
    if work.tables == NULL:
        return False
    if work.matches_count == MATCHES or work.matches_bytes + size > MOST_MATCHED:
        match_together(encoder, scratch, batch)
    work.in_matches[work.matches_count] = i
    work.matches[work.matches_count].text, work.matches[work.matches_count].size = text, <uint32_t> size
    work.matches[work.matches_count].symbols = work.matched + work.matches_bytes
    work.matches_bytes += size
    work.matches_count += 1
    return True


cdef int match_together(Encoder encoder, Scratch scratch, cache_batch *batch) except -1 nogil:
    """Match pretokens of a batch side by side, and put them into the cache; what cannot be is left to encode_one()."""
    cdef uint32_t ids[MATCHED_BYTES + COPIED_IDS]
    cdef Work *work = &scratch.work
    cdef const Match *match
    cdef size_t i, k, m, n, size
    match_all(work.tables, work.matches, work.matches_count)
    for k in range(work.matches_count):
        match = &work.matches[k]
        size = match.count
        i = work.in_matches[k]
        for n in range(0, size, 4):             # by fours, as above
            for m in range(n, n + 4):
                ids[m] = id_of(encoder, work.tables.symbol_of[match.symbols[m]])
        if encoder.first_beginning != NONE:
            size = spell_beginnings(encoder, ids, size)
        if size:
            batch.sets[i] = cache_keep(&encoder.cache.table, batch.keys[i], batch.sets[i], match.text, ids, size)
    work.matches_count = work.matches_bytes = 0
    return 0
