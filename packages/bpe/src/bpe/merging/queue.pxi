# The queue of pairs: a bucket queue with lazy deletion, and a heap for the bucket whose turn it is.
#
# A pair waits in the bucket of its count, where it stays when its count falls. The pairs of the highest bucket that has
# any are put into a heap. An entry whose count is no longer that of its pair is put where it belongs when it comes up:
# into the heap again, into a lower bucket, or nowhere.

ctypedef struct Entry:          # of the heap
    int64_t count
    uint64_t head               # what decides among equal counts, or its beginning: the greatest comes first
    uint64_t key
    uint32_t pair

cdef enum:
    STEPS = 32                  # buckets to a doubling of the count
    BUCKETS = 60 * STEPS

ctypedef struct PairQueue:
    PairTable *table            # of the pairs
    const SymbolTable *symbols      # whose bytes break ties
    bint by_bytes               # ties to the greatest (left bytes, right bytes), else to the smallest pair of symbols
    uint32_t buckets[BUCKETS]   # the first pair of each, or NO_PAIR
    size_t bucket               # the bucket whose pairs are in the heap; BUCKETS: none yet
    Entry *heap
    size_t heap_size, heap_room


cdef void clear_queue(PairQueue *queue) noexcept nogil:
    cdef size_t i
    for i in range(BUCKETS):
        queue.buckets[i] = NO_PAIR
    queue.bucket, queue.heap_size = BUCKETS, 0


cdef inline size_t bucket_of(int64_t count) noexcept nogil:
    """STEPS buckets to a doubling; one for each count as long as there are fewer counts than that."""
    cdef int power = 63 - count_leading_zeros(<uint64_t> count) if count > 0 else 0
    cdef int shift = power - 5 if power > 5 else 0
    return <size_t> shift * STEPS + <size_t> (count >> shift)


cdef inline Entry entry_of(const PairQueue *queue, const Pair *pair, uint32_t number) noexcept nogil:
    cdef Entry entry
    entry.count, entry.key, entry.pair = pair.count, pair.key, number
    entry.head = queue.symbols.head[left_of(pair.key)] if queue.by_bytes else ~pair.key
    return entry


cdef inline bint is_before(const PairQueue *queue, Entry a, Entry b) noexcept nogil:
    """True if a is merged before b."""
    cdef int order
    if a.count != b.count:
        return a.count > b.count
    if a.head != b.head:
        return a.head > b.head
    order = compare_symbols(queue.symbols, left_of(a.key), left_of(b.key))
    if order == 0:
        order = compare_symbols(queue.symbols, right_of(a.key), right_of(b.key))
    if order == 0:
        return a.key < b.key    # the same bytes, which two symbols may stand for that merging started from
    return order > 0


cdef int push_pair(PairQueue *queue, uint32_t number) except -1 nogil:
    """Let a pair wait for its turn."""
    cdef Pair *pair = &queue.table.pairs[number]
    cdef size_t bucket = bucket_of(pair.count)
    if bucket < queue.bucket:
        pair.next = queue.buckets[bucket]
        queue.buckets[bucket] = number
    else:
        reserve_heap(queue, queue.heap_size + 1)
        queue.heap_size += 1
        sift_up(queue, queue.heap_size - 1, 0, entry_of(queue, pair, number))
    return 0


cdef int reserve_heap(PairQueue *queue, size_t entries) except -1 nogil:
    cdef size_t room = entries + entries // 2 + 64
    if entries > queue.heap_room:
        queue.heap = <Entry *> checked_realloc(queue.heap, room * sizeof(Entry))
        queue.heap_room = room
    return 0


cdef void sift_up(PairQueue *queue, size_t at, size_t top, Entry entry) noexcept nogil:
    """Put `entry` in the place at `at`, or above it as far as `top`."""
    cdef size_t parent
    while at > top:
        parent = (at - 1) // 2
        if not is_before(queue, entry, queue.heap[parent]):
            break
        queue.heap[at] = queue.heap[parent]
        at = parent
    queue.heap[at] = entry


cdef void sift_down(PairQueue *queue, size_t at, Entry entry) noexcept nogil:
    """Put `entry` in the place of the one at `at`: at the bottom below its better children, and up from there.

    Most entries belong near the bottom, so that this compares less than going down no further than needed.
    """
    cdef size_t top = at, child
    while 2 * at + 2 < queue.heap_size:
        child = 2 * at + 1
        child += is_before(queue, queue.heap[child + 1], queue.heap[child])
        queue.heap[at] = queue.heap[child]
        at = child
    if 2 * at + 1 < queue.heap_size:
        queue.heap[at] = queue.heap[2 * at + 1]
        at = 2 * at + 1
    sift_up(queue, at, top, entry)


cdef int64_t best_pair(PairQueue *queue) except -2 nogil:
    """The number of the pair to merge next, or -1 where none reaches the floor. It stays at the top of the heap."""
    cdef Pair *pair
    cdef Entry entry
    while True:
        while queue.heap_size:
            entry = queue.heap[0]
            pair = &queue.table.pairs[entry.pair]
            if pair.count == entry.count:
                return entry.pair
            if pair.count >= queue.table.floor and bucket_of(pair.count) == queue.bucket:
                entry.count = pair.count
                sift_down(queue, 0, entry)
                continue
            queue.heap_size -= 1
            if queue.heap_size:
                sift_down(queue, 0, queue.heap[queue.heap_size])
            push_again(queue, entry.pair)
        while queue.bucket and (queue.bucket == BUCKETS or queue.buckets[queue.bucket] == NO_PAIR):
            queue.bucket -= 1
        if queue.bucket == 0:
            return -1
        fill_heap(queue)


cdef int push_again(PairQueue *queue, uint32_t number) except -1 nogil:
    """Put a pair whose count has fallen where it belongs; nowhere, if it is below the floor."""
    cdef Pair *pair = &queue.table.pairs[number]
    if pair.count >= queue.table.floor:
        push_pair(queue, number)
    else:
        pair.count = 0
        drop_postings(queue.table, pair)
    return 0


cdef int fill_heap(PairQueue *queue) except -1 nogil:
    """The pairs of this bucket, as far as they still belong there."""
    cdef uint32_t number = queue.buckets[queue.bucket], next_number
    cdef Pair *pair
    cdef size_t i
    queue.buckets[queue.bucket] = NO_PAIR
    while number != NO_PAIR:
        pair = &queue.table.pairs[number]
        next_number = pair.next
        if pair.count >= queue.table.floor and bucket_of(pair.count) == queue.bucket:
            reserve_heap(queue, queue.heap_size + 1)
            queue.heap[queue.heap_size] = entry_of(queue, pair, number)
            queue.heap_size += 1
        else:
            push_again(queue, number)
        number = next_number
    for i in range(queue.heap_size // 2, 0, -1):
        sift_down(queue, i - 1, queue.heap[i - 1])
    return 0


cdef void free_queue(PairQueue *queue) noexcept nogil:
    free(queue.heap)
