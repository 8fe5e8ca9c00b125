# A long pretoken, merged in windows that overlap.
#
#     text       ................................................................................
#     window 0   [ th e | catalogue | of the | ca ]
#     window 1                             [ the | ca t a | logue | of the ]
#     result     [ th e | catalogue | of   | the | ca t a | logue | of the ]
#                                            ^ the same symbol in the same position in both: joined there
#
# Why that is right. Two symbols agree if merging their joined bytes gives these two again. If each two neighbours
# among some symbols agree, merging all their bytes gives these symbols: take the first merge that would join across a
# border of two of them. No border was crossed before it, so the bytes of the two have been merged just as they are
# alone: of all pairs the one to merge first was taken, so of the pairs within these two as well. The merge would
# therefore be made there too, but there the border stays. So no merge crosses any border, and the bytes between two
# borders are merged as they would be alone. This holds for any merges in any order, since which of two pairs goes first
# does not depend on the pairs around them.
#
# Neighbours in the result for a window therefore agree. Where two windows overlap and hold one symbol in common, in the
# same position, the symbols of the first as far as that one and then those of the second are the result for both. Where
# they have none in common, a window of four times the width is merged instead. It overlaps the finished part by
# a quarter, so that all widenings together cost a few times the part that they add.
#
# Windows of 64 bytes fill lanes, 32 at a time; wider ones are merged with a heap. Windows of pretokens of up to 316
# bytes share lanes with other pretokens (merge_together); as these would be merged again if two windows could not be
# joined, they overlap by more.

cdef enum:
    OVERLAP = 12                # bytes that neighbouring windows share; they mostly hold a symbol
    MORE_OVERLAP = 32           # overlap that is tried after two windows shared no symbol
    FEWEST_JOINED = 4           # wide windows that are joined before narrow ones are tried again
    MOST_JOINED = 1 << 20       # upper bound of that number, which doubles after each failure

ctypedef struct Window:
    size_t begin, end           # in the text
    const uint32_t *symbols     # of its result, and where each begins in it, `pitch` words from one to the next
    const uint32_t *positions
    size_t pitch, count


cdef size_t merge_in_windows(Ranks ranks, Work *work, const uint8_t *text, size_t size) except 0 nogil:
    """The symbols of `size` bytes, all of them symbols, in work.found; returns their number."""
    cdef size_t covered = 0, width = LANE_BYTES, overlap = OVERLAP, begin, end
    cdef int rounds = 0, patience = FEWEST_JOINED
    cdef Window window
    if size > MOST_BYTES:
        with gil:
            raise ValueError(
                f"a pretoken of {size:,} bytes; the most is {MOST_BYTES:,}: choose a pattern that splits this text"
            )
    window.begin = window.end = work.count = 0
    while covered < size:
        if width == LANE_BYTES:
            if join_lanes(ranks, work, text, size, overlap, &covered):
                overlap = OVERLAP
            elif overlap == OVERLAP:
                overlap = MORE_OVERLAP
            else:
                width, rounds, overlap = 4 * width, 0, OVERLAP
                patience = min(2 * patience, MOST_JOINED)
            continue
        begin = symbol_at(work, covered - min(covered, width // 4), covered - min(covered, width // 2))
        end = min(size, begin + width)
        if end - begin != window.end - window.begin or memcmp(text + begin, text + window.begin, end - begin):
            window.count = merge_with_heap(ranks, work, text + begin, end - begin)
            window.symbols, window.positions = &work.linked.symbol, &work.linked.previous
            window.pitch = sizeof(Linked) // sizeof(uint32_t)
        window.begin, window.end = begin, end
        if not join(work, &window):
            width, rounds = 4 * width, 0
            patience = min(2 * patience, MOST_JOINED)
            continue
        covered = end
        rounds += 1
        if rounds == patience:
            width, rounds = width // 4, 0
    work.found = work.symbols
    return work.count


cdef size_t symbol_at(const Work *work, size_t at, size_t least) noexcept nogil:
    """Return the begin of the symbol of the result that contains `at`, if that is `least` or more; otherwise `at`.

    A window that begins with a symbol of a run has the next symbols of the run, and often the bytes of the window
    before it, which then need not be merged. Where it began inside one, it might have none of them: a megabyte of "="
    after a space took 450 ms instead of one.
    """
    cdef size_t i = work.count
    while i and work.begins[i - 1] > at:
        i -= 1
    return work.begins[i - 1] if i and work.begins[i - 1] >= least else at


cdef int join_lanes(
    Ranks ranks, Work *work, const uint8_t *text, size_t size, size_t overlap, size_t *covered
) except -1 nogil:
    """Merge the next windows side by side, those that are alike once, and join them; returns whether each could be.

    overlap: bytes that the first window shares with the text that is covered.
    """
    cdef Window windows[LANES]
    cdef size_t lane_of[LANES]
    cdef Piece pieces[LANES]
    cdef Lane *lane
    cdef size_t begin = covered[0] - min(covered[0], overlap), count = 0, found = 0, i
    while count < LANES and (count == 0 or windows[count - 1].end < size):
        windows[count].begin, windows[count].end = begin, min(size, begin + LANE_BYTES)
        for i in range(count):
            if text[windows[i].begin] == text[begin] and begin + LANE_BYTES <= size:
                if memcmp(text + windows[i].begin, text + begin, LANE_BYTES) == 0:
                    lane_of[count] = lane_of[i]
                    break
        else:
            lane_of[count] = found
            pieces[found].text, pieces[found].size = text + begin, windows[count].end - begin
            found += 1
        begin += LANE_BYTES - OVERLAP
        count += 1
    merge_lanes(&ranks.tables, ranks.lowest, work.lanes, pieces, found)
    for lane in work.lanes[:found]:
        list_positions(lane)
    for i in range(count):
        if not join_lane(work, &work.lanes[lane_of[i]], &windows[i]):
            return False
        covered[0] = windows[i].end
    return True


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


cdef size_t join_windows(Work *work, size_t first, size_t count, size_t size) except? 0 nogil:
    """Join the lanes from number `first` on, which are the merged windows of a pretoken of `size` bytes.

    Returns how many symbols it has, in work.found; 0 where two windows have none in common.
    """
    cdef size_t i
    cdef Window window
    for i in range(count):
        window.begin = i * WINDOW_STEP
        window.end = min(size, window.begin + LANE_BYTES)
        list_positions(&work.lanes[first + i])
        if not join_lane(work, &work.lanes[first + i], &window):
            return 0
    work.found = work.symbols
    return work.count


cdef void list_positions(Lane *lane) noexcept nogil:
    """Put the position of each symbol of a merged lane into its keys, which it no longer needs."""
    cdef uint64_t bits = lane.alive
    cdef size_t i
    for i in range(lane.count):
        lane.keys[i] = lane.begins[count_trailing_zeros(bits)]
        bits &= bits - 1


cdef int join_lane(Work *work, Lane *lane, Window *window) except -1 nogil:
    """join() for a window whose result is in a lane, with its positions."""
    window.symbols, window.positions, window.pitch, window.count = lane.symbols, lane.keys, 1, lane.count
    return join(work, window)


cdef int join(Work *work, const Window *window) except -1 nogil:
    """Add the result for a window to that for the text before it, if they have a symbol in common; returns whether.

    A window that begins with the text needs none.
    """
    cdef size_t i = work.count, k = 0, room
    cdef uint32_t position
    while i and work.begins[i - 1] >= window.begin:
        i -= 1
    if window.begin == 0:
        work.count = 0
    else:
        while True:
            if i == work.count or k == window.count:
                return False
            position = position_in(window, k)
            if work.begins[i] == position:
                if work.begins[i + 1] == position_in(window, k + 1):
                    break
                i += 1
                k += 1
            elif work.begins[i] < position:
                i += 1
            else:
                k += 1
        work.count = i
    if work.count + window.count - k + 1 > work.room:
        room = work.room + work.room // 2 + window.count + 256
        work.symbols = <uint32_t *> checked_realloc(work.symbols, room * sizeof(uint32_t))
        work.begins = <uint32_t *> checked_realloc(work.begins, room * sizeof(uint32_t))
        work.room = room
    for k in range(k, window.count):
        work.symbols[work.count] = window.symbols[k * window.pitch]
        work.begins[work.count] = position_in(window, k)
        work.count += 1
    work.begins[work.count] = <uint32_t> window.end
    return True


cdef inline uint32_t position_in(const Window *window, size_t k) noexcept nogil:
    """Return the position of a window's symbol in the text; after the last one, the end of the window."""
    return <uint32_t> (window.begin + window.positions[k * window.pitch] if k < window.count else window.end)
