# The tables of a vocabulary, made from its symbols and merges.


cdef int fill_tables(
    Ranks ranks, const uint32_t[:, ::1] merges, bint by_rank, bint ignore_merges, dict aliases
) except -1:
    """Fill ranks.tables and ranks.pretokens. by_rank: there are no merges, but any two that join to a symbol merge."""
    cdef MergeTables *tables = &ranks.tables
    cdef size_t i, listed = ranks.symbols if by_rank else merges.shape[0], count, lost_count = 0
    cdef bint several = False, by_symbol = by_rank, in_order = True
    cdef uint32_t *lost
    if not by_rank:
        steps = np.diff(np.asarray(merges[:, 2], dtype=np.int64))
        ordered = (steps >= 0).all()
        several = (steps == 0).any() if ordered else len(np.unique(merges[:, 2])) < listed
        by_symbol = several and ordered     # a merge then has the number of the symbol it makes: the order is the same
    take_room(ranks, listed)
    count = ranks.merges = ranks.symbols if by_symbol else listed
    tables.made = <uint32_t *> checked_malloc((count + 1) * sizeof(uint32_t))  # join_bytes reads one in any case
    for i in range(count):
        tables.made[i] = <uint32_t> i if by_symbol else merges[i, 2]
    lost = <uint32_t *> checked_malloc(ranks.symbols * sizeof(uint32_t))
    try:
        if by_rank:
            merge_symbols(ranks, NULL, False, lost, &lost_count)
        else:
            for i in range(listed):
                add_merge(tables, merges[i, 0], merges[i, 1], merges[i, 2] if by_symbol else i)
            if several:
                keep_last_merges(ranks, lost, &lost_count)
            elif ignore_merges:
                merge_symbols(ranks, NULL, True, lost, &lost_count)
        for i in range(count if aliases else 0):
            tables.made[i] = aliases.get(tables.made[i], tables.made[i])
        for i in range(count):
            in_order = in_order and tables.made[i] == tables.made[0] + i
        tables.first_made = tables.made[0] if count else 0
        add_byte_pairs(ranks, aliases)
        if in_order:
            free(tables.made)
            tables.made = NULL
        if ignore_merges:
            add_whole(ranks, lost, lost_count)
    finally:
        free(lost)
    return 0


cdef int take_room(Ranks ranks, size_t merges) except -1:
    """Room for the tables of a number of merges; no bytes join at once yet."""
    cdef MergeTables *tables = &ranks.tables
    cdef size_t slots = 64
    while slots < 2 * merges:
        slots *= 2
    tables.symbol_bits = max(1, ranks.symbols.bit_length())         # so that no pair is all ones, as FREE is
    tables.merge_bits = 64 - 2 * tables.symbol_bits
    tables.mask = slots - 1
    tables.shift = 64 - count_trailing_zeros(slots)
    tables.filter_shift = tables.shift - 2                          # four bits for each slot
    tables.filter = <uint64_t *> checked_block(slots // 2)
    tables.pairs = <uint64_t *> checked_block((slots + 1) * sizeof(uint64_t))
    memset(tables.pairs, 0xFF, (slots + 1) * sizeof(uint64_t))
    tables.byte_pairs = <uint64_t *> checked_sparse_block(BYTE_PAIRS * sizeof(uint64_t))
    return 0


cdef dict copy_parts(Ranks ranks):
    """See Ranks.parts()."""
    cdef MergeTables *tables = &ranks.tables
    cdef size_t i, slots = tables.mask + 1
    lost = []
    if ranks.pretokens != NULL:
        lost = [ranks.pretokens[i] for i in range(ranks.pretokens_mask + 1) if ranks.pretokens[i] != NONE]
    return {
        "text": ranks.joined,
        "sizes": copy(ranks.size, ranks.symbols * sizeof(uint32_t)),
        "pairs": copy(tables.pairs, (slots + 1) * sizeof(uint64_t)),
        "filter": copy(tables.filter, slots // 2),
        "byte_pairs": copy(tables.byte_pairs, BYTE_PAIRS * sizeof(uint64_t)),
        "made": b"" if tables.made == NULL else copy(tables.made, ranks.merges * sizeof(uint32_t)),
        "first_made": copy(&tables.first_made, sizeof(uint32_t)),
        "lost": np.array(sorted(lost), dtype=np.uint32).tobytes(),
    }


cdef int take_parts(Ranks ranks, parts) except -1:
    """Fill ranks.tables and ranks.pretokens with the parts of other ranks of the same symbols."""
    cdef MergeTables *tables = &ranks.tables
    cdef size_t slots = len(parts["pairs"]) // sizeof(uint64_t) - 1
    cdef const uint32_t[::1] lost = memoryview(parts["lost"]).cast("I")
    if slots < 64 or slots & (slots - 1) or max(lost, default=0) >= max(1, ranks.symbols):
        raise ValueError("these are no parts of ranks")
    take_room(ranks, slots // 2)
    paste(tables.pairs, (slots + 1) * sizeof(uint64_t), parts["pairs"])
    paste(tables.filter, slots // 2, parts["filter"])
    paste(tables.byte_pairs, BYTE_PAIRS * sizeof(uint64_t), parts["byte_pairs"])
    paste(&tables.first_made, sizeof(uint32_t), parts["first_made"])
    if len(parts["made"]):
        ranks.merges = len(parts["made"]) // sizeof(uint32_t)
        tables.made = <uint32_t *> checked_malloc(ranks.merges * sizeof(uint32_t))
        paste(tables.made, ranks.merges * sizeof(uint32_t), parts["made"])
    check_parts(ranks)
    if lost.shape[0]:
        add_whole(ranks, &lost[0], lost.shape[0])
    return 0


cdef int check_parts(Ranks ranks) except -1:
    """Refuse tables of parts that merging would read beyond; they may come from a file, and files lie.

    Merging keeps count of the positions in a text by itself. What it takes from the tables are the numbers of symbols
    and of merges, so these are bounded here, and a search of the pairs ends, as one slot is free.
    """
    cdef const MergeTables *tables = &ranks.tables
    cdef size_t symbols = ranks.symbols, merges = ranks.merges, i, free_slots = 0
    cdef uint64_t entry
    cdef bint wrong = symbols > MOST_SYMBOLS or merges > MOST_MERGES or tables.pairs[tables.mask + 1] != FREE
    if tables.made == NULL:
        wrong |= tables.first_made > symbols
        merges = 0 if wrong else symbols - tables.first_made
    for i in range(ranks.merges):
        wrong |= tables.made[i] >= symbols
    for i in range(symbols):
        wrong |= ranks.size[i] == 0
    for i in range(BYTE_PAIRS):
        wrong |= tables.byte_pairs[i] >> JOINS_AT != 0 and joining_merge(tables.byte_pairs[i]) >= merges
    for i in range(tables.mask + 1):
        entry = tables.pairs[i]
        free_slots += entry == FREE
        wrong |= entry != FREE and (
            left_of_entry(tables, entry) >= symbols
            or right_of_entry(tables, entry) >= symbols
            or merge_of_entry(tables, entry) >= merges
        )
    if wrong or free_slots == 0:
        raise ValueError("these are no parts of ranks")
    return 0


cdef bytes copy(const void *part, size_t size):
    return (<const char *> part)[:size]


cdef int paste(void *part, size_t size, const uint8_t[::1] data) except -1:
    if <size_t> data.shape[0] != size:
        raise ValueError(f"a part of {data.shape[0]:,} bytes, where there are {size:,}")
    memcpy(part, &data[0], size)
    return 0


cdef void free_tables(MergeTables *tables) noexcept nogil:
    free_block(tables.pairs, (tables.mask + 2) * sizeof(uint64_t))
    free_block(tables.filter, (tables.mask + 1) // 2)
    free_sparse_block(tables.byte_pairs, BYTE_PAIRS * sizeof(uint64_t))
    free(tables.made)


cdef enum:
    TEXTS_AHEAD = 32            # symbols between the one that is merged and the one whose text is fetched


cdef int keep_last_merges(Ranks ranks, uint32_t *lost, size_t *lost_count) except -1:
    """Of several merges that make one symbol, keep the one that does so when its bytes are merged.

    It is the only one that is ever done (see ranks.pyx); of files that list all pairs, a quarter to a half is left.
    """
    cdef MergeTables *tables = &ranks.tables
    cdef MergeTables listed = tables[0]
    listed.made = NULL                                      # ranks.tables keeps its own
    tables.pairs = tables.filter = tables.byte_pairs = NULL
    try:
        take_room(ranks, ranks.symbols)
        merge_symbols(ranks, &listed, False, lost, lost_count)
    finally:
        free_tables(&listed)
    return 0


cdef int merge_symbols(
    Ranks ranks, const MergeTables *listed, bint complete, uint32_t *lost, size_t *lost_count
) except -1:
    """Merge the bytes of each symbol, and note those as lost that they do not lead to.

    Shorter symbols come first, as longer ones are made of them; those of one length are merged side by side. Unless the
    tables are complete, the merge that makes each symbol is added to them: see leads_to().
    """
    cdef const uint32_t[::1] order
    cdef uint32_t symbol
    cdef size_t ahead
    cdef uint32_t in_lane[LANES]
    cdef Piece pieces[LANES]
    cdef Lane *lane
    cdef size_t i = 0, k, found, size, count
    cdef Work work
    memset(&work, 0, sizeof(Work))
    sizes = np.asarray(<uint32_t[:ranks.symbols]> ranks.size) if ranks.symbols else np.empty(0, dtype=np.uint32)
    if ranks.symbols and sizes.max() < 1 << 16:
        sizes = sizes.astype(np.uint16)     # which NumPy sorts by radix, 200,000 in 0.9 ms instead of 7
    order = np.argsort(sizes, kind="stable").astype(np.uint32)
    try:
        with nogil:
            need_lanes(&work)
            while i < ranks.symbols:
                found, size = 0, ranks.size[order[i]]
                while i < ranks.symbols and found < LANES and ranks.size[order[i]] == size:
                    symbol = order[i]
                    i += 1
                    # The texts lie anywhere: their positions are fetched first, and then their bytes.
                    ahead = min(i + 2 * TEXTS_AHEAD, ranks.symbols - 1)
                    prefetch(&ranks.text[order[ahead]])
                    prefetch(&ranks.size[order[ahead]])
                    prefetch(ranks.text[order[min(i + TEXTS_AHEAD, ranks.symbols - 1)]])
                    if size <= 1:
                        continue
                    if ranks.spelled(ranks.text[symbol], size):
                        if size <= LANE_BYTES:
                            in_lane[found] = symbol
                            pieces[found].text, pieces[found].size = ranks.text[symbol], size
                            found += 1
                            continue
                        count = ranks.merge_bytes(&work, ranks.text[symbol], size)
                        if leads_to(ranks, listed, complete, work.found, count, symbol):
                            continue
                    lost[lost_count[0]] = symbol
                    lost_count[0] += 1
                ranks.merge_pieces(work.lanes, pieces, found)
                for k in range(found):
                    lane = &work.lanes[k]
                    if not leads_to(ranks, listed, complete, lane.symbols, lane.count, in_lane[k]):
                        lost[lost_count[0]] = in_lane[k]
                        lost_count[0] += 1
    finally:
        free_work(&work)
    return 0


cdef bint leads_to(
    Ranks ranks, const MergeTables *listed, bint complete, const uint32_t *symbols, size_t count, uint32_t symbol
) noexcept nogil:
    """True if merging the bytes of a symbol, which gave these symbols, leads to it.

    In tables that are not complete it does so if there are two, and they have a merge, which is added. `listed` has the
    merges; NULL: any two that join to a symbol merge, and a merge has the number of that symbol.
    """
    cdef uint32_t merge = symbol
    cdef uint64_t pair
    cdef size_t slot
    if complete:
        return count == 1 and symbols[0] == symbol
    if count != 2:
        return False
    if listed != NULL:
        pair = pair_of(listed, symbols[0], symbols[1])
        if not may_merge(listed, pair, &slot):
            return False
        merge = find_merge(listed, pair, slot)
    if merge != NONE:
        add_merge(&ranks.tables, symbols[0], symbols[1], merge)
    return merge != NONE


cdef int add_byte_pairs(Ranks ranks, dict aliases) except -1:
    """Note of each two bytes what can take one of them, and whether they join at once; see merge_tables.h.

    Where an alias makes a byte, its own first and last bytes may stand in the text for that byte.
    """
    cdef MergeTables *tables = &ranks.tables
    cdef uint8_t other_first[256]
    cdef uint8_t other_last[256]
    cdef uint8_t last, first
    cdef int as_last, as_first
    cdef uint32_t *takes_second = <uint32_t *> checked_malloc(2 * BYTE_PAIRS * sizeof(uint32_t))
    cdef uint32_t *takes_first = takes_second + BYTE_PAIRS
    cdef uint32_t *takes_symbol = NULL      # by symbol: the least rank of a merge that it takes part in
    cdef uint32_t left, right, merge
    cdef uint64_t entry
    cdef size_t i, at
    try:
        takes_symbol = <uint32_t *> checked_malloc(ranks.symbols * sizeof(uint32_t))
        memset(takes_second, 0xFF, 2 * BYTE_PAIRS * sizeof(uint32_t))
        memset(takes_symbol, 0xFF, ranks.symbols * sizeof(uint32_t))
        for i in range(256):
            other_first[i] = other_last[i] = <uint8_t> i
        for alias, target in aliases.items():
            first = ranks.text[<size_t> target][0]
            other_first[first] = ranks.text[<size_t> alias][0]
            other_last[first] = ranks.text[<size_t> alias][ranks.size[<size_t> alias] - 1]
        for i in range(tables.mask + 1):
            if tables.pairs[i] != FREE:
                left, right = left_of_entry(tables, tables.pairs[i]), right_of_entry(tables, tables.pairs[i])
                merge = merge_of_entry(tables, tables.pairs[i])
                takes_symbol[left] = min(takes_symbol[left], merge)
                takes_symbol[right] = min(takes_symbol[right], merge)
                last, first = ranks.text[left][ranks.size[left] - 1], ranks.text[right][0]
                for as_last in range(2):
                    for as_first in range(2):
                        at = byte_pair_at(
                            other_last[last] if as_last else last, other_first[first] if as_first else first
                        )
                        if ranks.size[right] == 1:
                            takes_second[at] = min(takes_second[at], merge)
                        if ranks.size[left] == 1:
                            takes_first[at] = min(takes_first[at], merge)
        for at in range(BYTE_PAIRS):
            entry = byte_pair_entry(takes_first[at], takes_second[at])
            if entry:                       # the others are zero, in pages that are there once written to
                tables.byte_pairs[at] = entry
        for i in range(tables.mask + 1):
            if tables.pairs[i] != FREE:
                left, right = left_of_entry(tables, tables.pairs[i]), right_of_entry(tables, tables.pairs[i])
                merge = merge_of_entry(tables, tables.pairs[i])
                if ranks.size[left] == 1 and ranks.size[right] == 1 and takes_symbol[made_by(tables, merge)] > merge:
                    at = byte_pair_at(ranks.text[left][0], ranks.text[right][0])
                    tables.byte_pairs[at] = with_joining(tables.byte_pairs[at], merge)
    finally:
        free(takes_second)
        free(takes_symbol)
    return 0


cdef int add_whole(Ranks ranks, const uint32_t *lost, size_t count) except -1:
    """Put the lost symbols into the table of those that are found as whole pretokens."""
    cdef size_t slots = 64, i, at
    cdef uint32_t symbol
    while slots < count * 2:
        slots *= 2
    ranks.pretokens = <uint32_t *> checked_malloc(slots * sizeof(uint32_t))
    memset(ranks.pretokens, 0xFF, slots * sizeof(uint32_t))
    ranks.pretokens_mask = slots - 1
    for i in range(count):
        symbol = lost[i]
        at = hash_bytes(ranks.text[symbol], ranks.size[symbol], hash_seed) & ranks.pretokens_mask
        while ranks.pretokens[at] != NONE:
            at = (at + 1) & ranks.pretokens_mask
        ranks.pretokens[at] = symbol
        ranks.longest_whole = max(ranks.longest_whole, <size_t> ranks.size[symbol])
    return 0


cdef cut_table *make_cuts(Ranks ranks) except NULL:
    """The positions where no symbol joins two characters, for a Scanner; see cuts.h. The caller frees the block."""
    cdef cut_table *table = <cut_table *> checked_sparse_block(sizeof(cut_table))      # of zeros, few change
    cdef size_t i
    for i in range(ranks.symbols):
        add_token(table, ranks.text[i], ranks.size[i])
    for i in range(ranks.pretokens_mask + 1 if ranks.pretokens != NULL else 0):
        if ranks.pretokens[i] != NONE:
            add_whole_token(table, ranks.text[ranks.pretokens[i]], ranks.size[ranks.pretokens[i]])
    return table
