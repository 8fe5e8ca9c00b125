# The pairs of a Merger that wait to be merged, and the best of them.
#
# A pair waits in the bucket of its count. The pairs of one bucket at a time, the highest that has any, are in a heap; an entry of
# it whose count is no longer that of its pair is settled anew when it comes up.


cdef inline size_t bucket_of(int64_t count) noexcept nogil:
    """STEPS buckets to a doubling; one a count as far as there are so few."""
    cdef int power = 63 - count_leading_zeros(<uint64_t> count) if count > 0 else 0
    cdef int shift = power - 5 if power > 5 else 0
    return <size_t> shift * STEPS + <size_t> (count >> shift)


cdef inline Entry entry_of(Merger self, const Pair *pair, uint32_t number) noexcept nogil:
    cdef Entry entry
    entry.count, entry.key, entry.pair = pair.count, pair.key, number
    entry.head = self.token_head[pair.key >> 32] if self.by_bytes else ~pair.key
    return entry


cdef inline bint before(Merger self, Entry a, Entry b) noexcept nogil:
    """Whether a is merged before b."""
    cdef int order
    if a.count != b.count:
        return a.count > b.count
    if a.head != b.head:
        return a.head > b.head
    order = compare_tokens(self, <uint32_t> (a.key >> 32), <uint32_t> (b.key >> 32))
    if order == 0:
        order = compare_tokens(self, <uint32_t> a.key, <uint32_t> b.key)
    return order > 0


cdef inline int compare_tokens(Merger self, uint32_t a, uint32_t b) noexcept nogil:
    cdef int order
    if a == b:
        return 0
    if self.token_head[a] != self.token_head[b]:
        return 1 if self.token_head[a] > self.token_head[b] else -1
    order = memcmp(self.text + self.token[a], self.text + self.token[b], min(self.token_size[a], self.token_size[b]))
    if order:
        return order
    return 1 if self.token_size[a] > self.token_size[b] else -1


cdef int offer(Merger self, uint32_t number) except -1 nogil:
    """Let a pair wait for its turn."""
    cdef Pair *pair = &self.pairs[number]
    cdef size_t bucket = bucket_of(pair.count)
    if bucket < self.level:
        pair.next = self.bucket[bucket]
        self.bucket[bucket] = number
    else:
        make_heap_room(self, self.heap_size + 1)
        self.heap_size += 1
        sift_up(self, self.heap_size - 1, 0, entry_of(self, pair, number))
    return 0


cdef int make_heap_room(Merger self, size_t wanted) except -1 nogil:
    cdef size_t room = wanted + wanted // 2 + 64
    if wanted > self.heap_room:
        self.heap = <Entry *> checked_realloc(self.heap, room * sizeof(Entry))
        self.heap_room = room
    return 0


cdef void sift_up(Merger self, size_t at, size_t top, Entry entry) noexcept nogil:
    """Put `entry` in the place at `at`, or above it as far as `top`."""
    cdef size_t parent
    while at > top:
        parent = (at - 1) // 2
        if not before(self, entry, self.heap[parent]):
            break
        self.heap[at] = self.heap[parent]
        at = parent
    self.heap[at] = entry


cdef void sift_down(Merger self, size_t at, Entry entry) noexcept nogil:
    """Put `entry` in the place of the one at `at`: down the better children to the bottom, where most belong, and up from there."""
    cdef size_t top = at, child
    while 2 * at + 2 < self.heap_size:
        child = 2 * at + 1
        child += before(self, self.heap[child + 1], self.heap[child])
        self.heap[at] = self.heap[child]
        at = child
    if 2 * at + 1 < self.heap_size:
        self.heap[at] = self.heap[2 * at + 1]
        at = 2 * at + 1
    sift_up(self, at, top, entry)


cdef int64_t best(Merger self) except -2 nogil:
    """The number of the pair to merge next, or -1 where none reaches the floor."""
    cdef Pair *pair
    cdef Entry entry
    while True:
        while self.heap_size:
            entry = self.heap[0]
            pair = &self.pairs[entry.pair]
            if pair.count == entry.count:
                return entry.pair
            if pair.count >= self.floor and bucket_of(pair.count) == self.level:
                entry.count = pair.count
                sift_down(self, 0, entry)
                continue
            self.heap_size -= 1
            if self.heap_size:
                sift_down(self, 0, self.heap[self.heap_size])
            settle(self, entry.pair)
        while self.level and (self.level == BUCKETS or self.bucket[self.level] == NO_PAIR):
            self.level -= 1
        if self.level == 0:
            return -1
        fill_heap(self)


cdef int settle(Merger self, uint32_t number) except -1 nogil:
    """Put a pair that has fallen where its count belongs, or leave it behind."""
    cdef Pair *pair = &self.pairs[number]
    if pair.count >= self.floor:
        offer(self, number)
    else:
        pair.count = 0
        self.drop_postings(pair)
    return 0


cdef int fill_heap(Merger self) except -1 nogil:
    """The pairs of this level, as far as they still belong there."""
    cdef uint32_t number = self.bucket[self.level], next_number
    cdef Pair *pair
    cdef size_t i
    self.bucket[self.level] = NO_PAIR
    while number != NO_PAIR:
        pair = &self.pairs[number]
        next_number = pair.next
        if pair.count >= self.floor and bucket_of(pair.count) == self.level:
            make_heap_room(self, self.heap_size + 1)
            self.heap[self.heap_size] = entry_of(self, pair, number)
            self.heap_size += 1
        else:
            settle(self, number)
        number = next_number
    for i in range(self.heap_size // 2, 0, -1):
        sift_down(self, i - 1, self.heap[i - 1])
    return 0


# While a pair is merged, its entry is still the first of the heap; the next to be merged is probably one of the two below it.
# What is needed of them is fetched in three steps, each of which needs what the one before has fetched.


cdef inline void foresee_pairs(Merger self) noexcept nogil:
    cdef size_t i
    for i in range(1, min(self.heap_size, <size_t> 3)):
        prefetch(&self.pairs[self.heap[i].pair])


cdef inline void foresee_postings(Merger self) noexcept nogil:
    cdef size_t i
    for i in range(1, min(self.heap_size, <size_t> 3)):
        prefetch(self.pairs[self.heap[i].pair].postings)


cdef inline void foresee_words(Merger self) noexcept nogil:
    cdef const Pair *pair
    cdef size_t i, j
    for i in range(1, min(self.heap_size, <size_t> 3)):
        pair = &self.pairs[self.heap[i].pair]
        for j in range(min(pair.postings_size, <uint32_t> FORESEEN)):
            prefetch(<const uint8_t *> self.words + pair.postings[j] * self.width())
