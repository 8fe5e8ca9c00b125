# The words of a Merger, for both widths of their numbers: loading, counting the pairs in them, rewriting them.
#
# A word is its length, its count in eight bytes, and its symbols, one word after another.


cdef inline size_t header(Symbol *words) noexcept nogil:
    if Symbol is uint16_t:
        return NARROW_HEADER
    else:
        return WIDE_HEADER


cdef int load(Merger self, Symbol *words, const uint8_t[::1] records, const uint8_t *of_byte) except -1:
    """The words; pretokens of one symbol are none."""
    cdef size_t at = 0, end = records.shape[0]
    cdef const uint8_t *record
    cdef uint32_t size, j, symbol
    cdef Symbol *word = words
    with nogil:
        while at < end:
            record = &records[at]
            memcpy(&size, record + 8, 4)
            at += RECORD + size
            size = size // 4 if self.spelled else size
            if 1 < size <= self.long_word:
                word[0] = <Symbol> size
                memcpy(word + 1, record, 8)
                word += header(words)
                for j in range(size):
                    if self.spelled:
                        memcpy(&symbol, record + RECORD + 4 * j, 4)
                        word[j] = <Symbol> symbol
                    else:
                        word[j] = of_byte[record[RECORD + j]]
                word += size
    return 0


cdef inline Symbol *next_word(Merger self, Symbol *words, Symbol *word) noexcept nogil:
    """A word keeps its place when it shrinks; what is left over was marked, so that it can be stepped across."""
    word += header(words) + word[0]
    while word < words + self.words_size and word[0] == <Symbol> NOWHERE:
        word += 1
    return word


cdef inline int heed_signals(size_t *left) except -1 nogil:
    """Look for a pending Ctrl-C, once in HEED calls."""
    left[0] -= 1
    if left[0] == 0:
        left[0] = HEED
        with gil:
            PyErr_CheckSignals()
    return 0


cdef int tally_bytes(Merger self, Symbol *words, BytePair *found, uint8_t *begun) except -1:
    """How often each pair of bytes occurs, and in how many places; which bytes begin one."""
    cdef Symbol *word = words
    cdef Symbol *symbols
    cdef BytePair *pair
    cdef int64_t count
    cdef size_t i, heed = HEED
    with nogil:
        while word < words + self.words_size:
            memcpy(&count, word + 1, 8)
            symbols = word + header(words)
            for i in range(<size_t> word[0] - 1):
                pair = &found[<size_t> symbols[i] << 8 | symbols[i + 1]]
                pair.count += count
                pair.places.number += 1
                begun[symbols[i]] = True
            word = symbols + word[0]    # none has shrunk yet
            heed_signals(&heed)
    return 0


cdef int post_bytes(Merger self, Symbol *words, BytePair *found) except -1:
    """Into the postings of each pair of bytes that is not left aside: the words it occurs in, once for each place."""
    cdef Symbol *word = words
    cdef Symbol *symbols
    cdef BytePair *pair
    cdef size_t i, heed = HEED
    with nogil:
        while word < words + self.words_size:
            symbols = word + header(words)
            for i in range(<size_t> word[0] - 1):
                pair = &found[<size_t> symbols[i] << 8 | symbols[i + 1]]
                if pair.places.postings != NULL:
                    pair.places.postings[0] = <uint32_t> (word - words)
                    pair.places.postings += 1
            word = symbols + word[0]
            heed_signals(&heed)
    return 0


cdef int tally(Merger self, Symbol *words, int64_t *sieve, size_t sieve_mask) except -1:
    """How often each pair occurs, and in how many places; not of those that a sieve shows to be below the floor."""
    cdef Symbol *word
    cdef Symbol *symbols
    cdef Pair *pair
    cdef uint64_t key
    cdef int64_t count
    cdef size_t i, heed = HEED, sift
    for sift in reversed(range(2 if sieve else 1)):
        word = words
        with nogil:
            while word < words + self.words_size:
                memcpy(&count, word + 1, 8)
                symbols = word + header(words)
                for i in range(<size_t> word[0] - 1):
                    key = <uint64_t> symbols[i] << 32 | symbols[i + 1]
                    if sift:
                        sieve[hash_pair(key, 0, hash_seed) & sieve_mask] += count
                    elif sieve == NULL or sieve[hash_pair(key, 0, hash_seed) & sieve_mask] >= self.floor:
                        pair = self.find(key)
                        if pair == NULL:
                            pair = self.add(key)
                        pair.count += count
                        pair.postings_size += 1
                word = next_word(self, words, word)
                heed_signals(&heed)
            tally_long(self, sieve, sieve_mask, sift)
    return 0


cdef int post(Merger self, Symbol *words, uint32_t *filled) except -1:
    """Into the postings of each pair that the table has: the words it occurs in, once for each place."""
    cdef Symbol *word = words
    cdef Symbol *symbols
    cdef Pair *pair
    cdef size_t i, number, heed = HEED
    with nogil:
        while word < words + self.words_size:
            symbols = word + header(words)
            for i in range(<size_t> word[0] - 1):
                pair = self.find(<uint64_t> symbols[i] << 32 | symbols[i + 1])
                if pair != NULL:
                    number = pair - self.pairs
                    pair.postings[filled[number]] = <uint32_t> (word - words)
                    filled[number] += 1
            word = next_word(self, words, word)
            heed_signals(&heed)
    return 0


cdef int rewrite_all(
    Merger self, Symbol *words, const uint32_t *postings, size_t size, uint32_t a, uint32_t b, uint32_t made
) except -1 nogil:
    cdef size_t i
    if Symbol is uint16_t:
        if self.rewrite_short != NULL:
            return rewrite_batches(self, words, postings, size, a, b, made)
    for i in range(size):
        if i + AHEAD < size:
            prefetch_word(words, postings[i + AHEAD])
        rewrite(self, words, postings[i], a, b, made)
    return 0


cdef inline void prefetch_word(Symbol *words, uint32_t place) noexcept nogil:
    prefetch(words + place)
    prefetch(words + place + header(words) + 8)     # it may lie across two cache lines


cdef int rewrite_batches(
    Merger self, uint16_t *words, const uint32_t *postings, size_t size, uint32_t a, uint32_t b, uint32_t made
) except -1 nogil:
    """The same with the processor's vectors, where words are short."""
    cdef rewritten_batch batch
    cdef size_t begin = 0, count, i
    while begin < size:
        count = min(size - begin, <size_t> REWRITE_BATCH)
        for i in range(begin + count, min(begin + count + REWRITE_BATCH, size)):
            prefetch_word(words, postings[i])
        self.rewrite_short(words, postings + begin, count, a, b, made, &batch)
        for i in range(count):
            if batch.of[i].found:
                note_rewritten(self, words, postings[begin + i], &batch.of[i])
            elif batch.of[i].size > REWRITE_MOST:
                rewrite(self, words, postings[begin + i], a, b, made)
        begin += count
    return 0


cdef inline int note_rewritten(Merger self, const uint16_t *words, uint32_t place, const rewritten *word) except -1 nogil:
    """Note what stands beside the new symbols of a word."""
    cdef uint32_t found = word.found, end = 0, i    # end: of the pair before, of none at first
    cdef int64_t count
    memcpy(&count, words + place + 1, 8)
    while found:
        i = count_trailing_zeros(found)
        found &= found - 1
        if i == 0:
            pass
        elif i == end:
            self.twins += count
            self.note_twins(place)
        else:
            self.note(&self.left, word.before[i - 1], count, place)
        end = i + 2
        if end < word.size and (found == 0 or <uint32_t> count_trailing_zeros(found) != end):
            self.note(&self.right, word.before[end], count, place)
    return 0


cdef inline size_t find_pair(const Symbol *symbols, size_t size, uint32_t a, uint32_t b) noexcept nogil:
    """The first place where b follows a; `size` if there is none."""
    if Symbol is uint16_t:
        return find_narrow(symbols, size, a, b)
    else:
        return find_wide(symbols, size, a, b)


cdef inline int rewrite(Merger self, Symbol *words, uint32_t place, uint32_t a, uint32_t b, uint32_t made) except -1 nogil:
    """Replace a, b by `made` in the word at `place`, left to right, and note what stands beside it."""
    cdef Symbol *word = words + place
    cdef Symbol *symbols = word + header(words)
    cdef size_t size = word[0], i = find_pair(symbols, size, a, b), out = i, next_place
    cdef int64_t count
    cdef bint joined = False    # whether symbols[out - 1] is a `made` just made
    self.visited += size
    if i == size:
        return 0
    memcpy(&count, word + 1, 8)
    while i < size:
        if joined:
            self.twins += count
            self.note_twins(place)
        elif out:
            self.note(&self.left, symbols[out - 1], count, place)
        symbols[out] = <Symbol> made
        out += 1
        i += 2
        next_place = i + find_pair(symbols + i, size - i, a, b)
        joined = next_place == i
        if i < next_place:
            self.note(&self.right, symbols[i], count, place)
            while i < next_place:
                symbols[out] = symbols[i]
                out += 1
                i += 1
    word[0] = <Symbol> out
    for i in range(out, size):
        symbols[i] = <Symbol> NOWHERE
    return 0
