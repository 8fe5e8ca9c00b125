# The long words of a Merger: those of more than `long_word` symbols, whose postings are places in them.
#
# A short word is rewritten whole for each of its postings, which takes the square of its length as it is merged from bytes
# to a few tokens. In a long word a posting names the place of a pair, and replacing the pair takes a few steps, so that the
# whole takes time in proportion to the length. A cell stands for each byte of a long word:
#
#       bytes     t   h   e   r   e       symbols   the, re
#       cells    the  .  E3  re  E2       E: the last byte of a symbol of so many bytes; `.`: a byte inside one
#
# so that the symbol to the right begins where the token ends, and the symbol to the left is where E says, or one cell away
# if it is a single byte. A cell BORDER stands before, between and behind the words. In postings the cells are numbered on
# from the end of the short words.


cdef uint32_t NO_SYMBOL = <uint32_t> 1 << 31    # set in every cell that no symbol begins in; the rest is its length at an end
cdef uint32_t BORDER = <uint32_t> 1 << 31
cdef uint32_t INSIDE = <uint32_t> -1


cdef int load_long(Merger self, const uint8_t[::1] records, const uint8_t *of_byte) except -1:
    """The cells of all long words, and where each word begins and how often it occurs."""
    cdef size_t at = 0, end = records.shape[0], word = 0, i
    cdef uint32_t size, symbol
    cdef uint32_t *cell = self.cells
    cdef const uint8_t *record
    with nogil:
        cell[0] = BORDER
        cell += 1
        while at < end:
            record = &records[at]
            memcpy(&size, record + 8, 4)
            at += RECORD + size
            size = size // 4 if self.spelled else size
            if size <= self.long_word:
                continue
            self.long_words[word].begin = cell - self.cells
            memcpy(&self.long_words[word].count, record, 8)
            word += 1
            for i in range(size):
                if self.spelled:
                    memcpy(&symbol, record + RECORD + 4 * i, 4)
                else:
                    symbol = of_byte[record[RECORD + i]]
                cell = put_symbol(self, cell, symbol)
            cell[0] = BORDER
            cell += 1
    return 0


cdef inline uint32_t *put_symbol(Merger self, uint32_t *cell, uint32_t symbol) noexcept nogil:
    """Fill the cells of a symbol; the cell behind it."""
    cdef size_t size = self.token_size[symbol]
    cdef size_t i
    cell[0] = symbol
    for i in range(1, size):
        cell[i] = INSIDE
    if size > 1:
        cell[size - 1] = NO_SYMBOL | <uint32_t> size
    return cell + size


cdef inline const uint32_t *left_of(const uint32_t *cell) noexcept nogil:
    """Where the symbol before this one begins; there must be one."""
    return cell - ((cell - 1)[0] & ~NO_SYMBOL if (cell - 1)[0] & NO_SYMBOL else 1)


cdef int tally_long(Merger self, int64_t *sieve, size_t sieve_mask, bint sift) except -1 nogil:
    """As tally(), over the long words: into the sieve, or into the table what the sieve lets through."""
    cdef const uint32_t *cell
    cdef const uint32_t *right
    cdef uint64_t key
    cdef int64_t count
    cdef Pair *pair
    cdef size_t word, heed = HEED
    for word in range(self.long_size):
        cell, count = self.cells + self.long_words[word].begin, self.long_words[word].count
        right = cell + self.token_size[cell[0]]
        while right[0] != BORDER:
            key = <uint64_t> cell[0] << 32 | right[0]
            if sift:
                sieve[hash_pair(key, 0, hash_seed) & sieve_mask] += count
            elif sieve == NULL or sieve[hash_pair(key, 0, hash_seed) & sieve_mask] >= self.floor:
                pair = self.find(key)
                if pair == NULL:
                    pair = self.add(key)
                pair.count += count
                pair.postings_size += 1
            cell, right = right, right + self.token_size[right[0]]
            heed_signals(&heed)
    return 0


cdef int post_long(Merger self, uint32_t *filled) except -1 nogil:
    """As post(), over the long words: the place of each pair that the table has."""
    cdef const uint32_t *cell
    cdef const uint32_t *right
    cdef Pair *pair
    cdef size_t word, number, heed = HEED
    for word in range(self.long_size):
        cell = self.cells + self.long_words[word].begin
        right = cell + self.token_size[cell[0]]
        while right[0] != BORDER:
            pair = self.find(<uint64_t> cell[0] << 32 | right[0])
            if pair != NULL:
                number = pair - self.pairs
                pair.postings[filled[number]] = <uint32_t> (self.words_size + (cell - self.cells))
                filled[number] += 1
            cell, right = right, right + self.token_size[right[0]]
            heed_signals(&heed)
    return 0


cdef int tally_long_bytes(Merger self, BytePair *found, uint8_t *begun) except -1 nogil:
    """As tally_bytes(), over the long words."""
    cdef const uint32_t *cell
    cdef BytePair *pair
    cdef size_t word, heed = HEED
    for word in range(self.long_size):
        cell = self.cells + self.long_words[word].begin
        while cell[1] != BORDER:
            pair = &found[<size_t> cell[0] << 8 | cell[1]]
            pair.count += self.long_words[word].count
            pair.places.number += 1
            begun[cell[0]] = True
            cell += 1
            heed_signals(&heed)
    return 0


cdef int post_long_bytes(Merger self, BytePair *found) except -1 nogil:
    """As post_bytes(), over the long words."""
    cdef const uint32_t *cell
    cdef BytePair *pair
    cdef size_t word, heed = HEED
    for word in range(self.long_size):
        cell = self.cells + self.long_words[word].begin
        while cell[1] != BORDER:
            pair = &found[<size_t> cell[0] << 8 | cell[1]]
            if pair.places.postings != NULL:
                pair.places.postings[0] = <uint32_t> (self.words_size + (cell - self.cells))
                pair.places.postings += 1
            cell += 1
            heed_signals(&heed)
    return 0


cdef size_t first_long(Merger self, const uint32_t *postings, size_t size) noexcept nogil:
    """How many postings are of short words: they stand before the others."""
    cdef size_t low = 0, high = size, middle
    if size == 0 or postings[size - 1] < self.words_size:
        return size
    while low < high:
        middle = (low + high) // 2
        if postings[middle] < self.words_size:
            low = middle + 1
        else:
            high = middle
    return low


cdef size_t long_word_of(Merger self, size_t place) noexcept nogil:
    """The long word that a cell belongs to."""
    cdef size_t low = 0, high = self.long_size, middle
    while high - low > 1:
        middle = (low + high) // 2
        if self.long_words[middle].begin <= place:
            low = middle
        else:
            high = middle
    return low


cdef int rewrite_long(Merger self, const uint32_t *postings, size_t size, uint32_t a, uint32_t b, uint32_t made) except -1 nogil:
    """Replace a, b by `made` at each posting where they still stand, and note what stands beside it. Postings ascend."""
    cdef uint32_t a_size = self.token_size[a], b_size = self.token_size[b], base = <uint32_t> self.words_size
    cdef uint32_t *cell
    cdef uint32_t *right
    cdef const uint32_t *left
    cdef int64_t count = 0
    cdef size_t i, place, word_end = 0, word, heed = HEED
    for i in range(size):
        if i + LONG_AHEAD < size:
            cell = self.cells + (postings[i + LONG_AHEAD] - base)
            prefetch(cell - 8)      # what is looked at is in one cache line or two
            prefetch(cell + 8)
        place = postings[i] - base
        cell = self.cells + place
        if cell[0] != a or cell[a_size] != b:
            continue
        if place >= word_end:
            word = long_word_of(self, place)
            count = self.long_words[word].count
            word_end = self.long_words[word + 1].begin if word + 1 < self.long_size else <size_t> -1
        if (cell - 1)[0] != BORDER:
            left = left_of(cell)
            if left[0] == made:
                self.twins += count
                self.note_twins(<uint32_t> (base + (left - self.cells)))
            else:
                self.note(&self.left, left[0], count, <uint32_t> (base + (left - self.cells)))
        right = cell + a_size + b_size
        cell[0] = made
        cell[a_size] = INSIDE
        (right - 1)[0] = NO_SYMBOL | (a_size + b_size)
        # what is itself merged next will note this one as its twin
        if right[0] != BORDER and not (right[0] == a and right[a_size] == b):
            self.note(&self.right, right[0], count, postings[i])
        heed_signals(&heed)
    return 0
