# Merging many bytes: a heap of candidates over a linked list, so that n of them cost n log n, whatever the text. A
# candidate is a merge << 32 | the position of its left symbol: the lowest rank comes first, of equals the leftmost.


cdef size_t merge_with_heap(Ranks ranks, Work *work, const uint8_t *text, size_t size) except 0 nogil:
    """Merge into work.linked, whose `previous` then says where each symbol begins; returns how many there are."""
    cdef Linked *linked
    cdef uint64_t best
    cdef uint32_t at, after
    cdef size_t count = 0
    if size > work.linked_room:
        work.linked = <Linked *> checked_realloc(work.linked, size * sizeof(Linked))
        work.linked_room = size
    linked = work.linked
    for at in range(<uint32_t> size):
        linked[at].symbol = ranks.tables.symbol_of_byte[text[at]]
        linked[at].next = at + 1
        linked[at].previous = at - 1                        # NONE for the first
    linked[size - 1].next = NONE
    work.heap_size = 0
    for at in range(<uint32_t> size - 1):
        consider(ranks, work, at)
    while work.heap_size:
        best = pop(work.heap, &work.heap_size)
        at = <uint32_t> best
        after = linked[at].next
        # it is void where one of its symbols has been merged since
        if linked[at].symbol == NONE or after == NONE or merge_at(ranks, linked, at) != best >> 32:
            continue
        linked[at].symbol = made_by(&ranks.tables, <uint32_t> (best >> 32))
        linked[after].symbol = NONE
        linked[at].next = linked[after].next
        if linked[at].next != NONE:
            linked[linked[at].next].previous = at
            consider(ranks, work, at)
        if linked[at].previous != NONE:
            consider(ranks, work, linked[at].previous)
    at = 0
    while at != NONE:
        after = linked[at].next
        linked[count].symbol, linked[count].previous = linked[at].symbol, at
        count += 1
        at = after
    return count


cdef uint32_t merge_at(Ranks ranks, const Linked *linked, uint32_t at) noexcept nogil:
    """The merge of the pair that begins at `at`, or NONE."""
    cdef uint64_t pair = pair_of(&ranks.tables, linked[at].symbol, linked[linked[at].next].symbol)
    cdef size_t slot
    return find_merge(&ranks.tables, pair, slot) if may_merge(&ranks.tables, pair, &slot) else NONE


cdef int consider(Ranks ranks, Work *work, uint32_t at) except -1 nogil:
    """Put the pair that begins at `at` into the heap, if it can be merged."""
    cdef uint32_t merge = merge_at(ranks, work.linked, at)
    if merge == NONE:
        return 0
    if work.heap_size == work.heap_room:
        work.heap = <uint64_t *> checked_realloc(work.heap, (work.heap_room * 2 + 256) * sizeof(uint64_t))
        work.heap_room = work.heap_room * 2 + 256
    push(work.heap, &work.heap_size, <uint64_t> merge << 32 | at)
    return 0
