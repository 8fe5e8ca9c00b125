# Merging many bytes: a heap of candidates over a linked list, so that n of them cost n log n, whatever the text.


cdef size_t merge_with_heap(Ranks ranks, Work *work, const uint8_t *text, size_t size) except 0 nogil:
    """Merge into work.linked, whose `previous` then says where each symbol begins; returns how many there are."""
    cdef Linked *linked
    cdef Candidate best
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
        best = pop(work)
        at = best.at
        after = linked[at].next
        if linked[at].symbol != best.left or after == NONE or linked[after].symbol != best.right:
            continue
        linked[at].symbol = made_by(&ranks.tables, best.merge)
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


cdef int consider(Ranks ranks, Work *work, uint32_t at) except -1 nogil:
    """Put the pair that begins at `at` into the heap, if it can be merged."""
    cdef Candidate candidate
    cdef uint64_t pair
    cdef size_t slot
    candidate.left, candidate.right, candidate.at = work.linked[at].symbol, work.linked[work.linked[at].next].symbol, at
    pair = pair_of(&ranks.tables, candidate.left, candidate.right)
    if not may_merge(&ranks.tables, pair, &slot):
        return 0
    candidate.merge = find_merge(&ranks.tables, pair, slot)
    return 0 if candidate.merge == NONE else push(work, candidate)


cdef inline uint64_t order(const Candidate *candidate) noexcept nogil:
    """Order of the heap: the lowest rank first, of equals the leftmost."""
    return <uint64_t> candidate.merge << 32 | candidate.at


cdef int push(Work *work, Candidate candidate) except -1 nogil:
    cdef size_t at = work.heap_size, parent
    cdef uint64_t key = order(&candidate)
    if at == work.heap_room:
        work.heap = <Candidate *> checked_realloc(work.heap, (work.heap_room * 2 + 256) * sizeof(Candidate))
        work.heap_room = work.heap_room * 2 + 256
    work.heap_size += 1
    while at:
        parent = (at - 1) // 2
        if order(&work.heap[parent]) <= key:
            break
        work.heap[at] = work.heap[parent]
        at = parent
    work.heap[at] = candidate
    return 0


cdef Candidate pop(Work *work) noexcept nogil:
    cdef Candidate first = work.heap[0], moved
    cdef size_t at = 0, child
    cdef uint64_t key
    work.heap_size -= 1
    moved = work.heap[work.heap_size]
    key = order(&moved)
    while 2 * at + 1 < work.heap_size:
        child = 2 * at + 1
        if child + 1 < work.heap_size and order(&work.heap[child + 1]) < order(&work.heap[child]):
            child += 1
        if key <= order(&work.heap[child]):
            break
        work.heap[at] = work.heap[child]
        at = child
    work.heap[at] = moved
    return first
