# The first merges of long words, by passes over the whole of them.
#
# A pair that stands at one place in some dozens or hundreds is found faster by looking at every symbol, 64 at a time,
# than by postings, which have to be made, and whose places are fetched one by one. So the words are kept as bytes
# (byte_words.pxi) as long as pairs are so common. A byte is its own code; a symbol that a merge makes gets one that the
# words do not have. Each pass makes them shorter. Pairs have counts meanwhile, but no postings in long words.
#
# Passes end when no code is left, or when a pair was too rare. What is left of the words is then loaded as long words
# and all pairs are counted again.

ctypedef struct Passes:
    pass_function replace
    size_t rare                 # a pair is too rare that stands at less than one place in so many
    uint8_t free_codes[256]     # for new symbols, the last one first
    size_t free_size
    pass_neighbours beside      # what one pass over a group has found

cdef enum:
    PASS_RARE = 200             # 128 to 400 take about the same time: the larger ones less with AVX-512, more without


cdef bint begin_passes(Passes *passes, ByteWords *words, int level) noexcept nogil:
    """Whether passes are made over the words: if their commonest pair is not too rare. The pairs have been counted."""
    cdef bint occurs[256]
    cdef size_t pair, code
    cdef int64_t commonest = 0, total = 0
    memset(occurs, 0, sizeof(occurs))
    occurs[words.border] = True
    for pair in range(CODE_PAIRS):
        if words.tally[pair].count:
            occurs[pair >> 8] = occurs[pair & 255] = True
            commonest = max(commonest, words.tally[pair].count)
            total += words.tally[pair].count
    for code in range(256):
        if not occurs[code]:
            words.symbol_of[code] = -1
            passes.free_codes[passes.free_size] = <uint8_t> code
            passes.free_size += 1
    passes.replace = choose_pass(level)
    return passes.replace != NULL and passes.free_size and passes.rare and commonest > total // passes.rare


cdef bint replace_by_pass(
    Passes *passes, ByteWords *words, Changes *changes, uint32_t a, uint32_t b, uint32_t made
) noexcept nogil:
    """Replace a, b by `made` in all byte words, and note what stands beside it. Whether passes go on."""
    cdef int left = code_of(words, a), right = code_of(words, b)
    cdef uint8_t code = passes.free_codes[passes.free_size - 1]
    cdef size_t i, before = words.size, replaced = 0
    cdef Group *group
    cdef pass_neighbours *beside = &passes.beside
    if left < 0 or right < 0:
        return False
    changes.visited += before // 64
    passes.free_size -= 1
    words.symbol_of[code] = made
    words.size = 0
    for i in range(words.groups_size):
        group = &words.groups[i]
        memset(beside, 0, sizeof(pass_neighbours))
        group.size = 1 + passes.replace(
            words.codes + group.begin, group.size - 1, <uint8_t> left, <uint8_t> right, code, beside
        )
        words.size += group.size
        replaced += beside.replaced
        note_pass(words, changes, group.count, beside)
    return passes.free_size > 0 and replaced > before // passes.rare


cdef int code_of(const ByteWords *words, uint32_t symbol) noexcept nogil:
    """The code of a symbol, or -1."""
    cdef int code
    for code in range(256):
        if words.symbol_of[code] == symbol:
            return code
    return -1


cdef void note_pass(
    const ByteWords *words, Changes *changes, int64_t count, const pass_neighbours *beside
) noexcept nogil:
    """Note what stands beside the new symbols of words that occur `count` times."""
    cdef size_t code
    for code in range(256):
        if words.symbol_of[code] >= 0:      # a border is no neighbour
            note_neighbours(&changes.left, words.symbol_of[code], count * sum_of_four(beside.left, code))
            note_neighbours(&changes.right, words.symbol_of[code], count * sum_of_four(beside.right, code))
    changes.doubles += count * <int64_t> beside.doubles


cdef inline void note_neighbours(Side *side, size_t symbol, int64_t count) noexcept nogil:
    """Note that a symbol stands there `count` times, which may be 0; short words have been noted before."""
    cdef Beside *beside = &side.beside[symbol]
    if beside.change == 0 and count:
        side.touched[side.touched_size] = <uint32_t> symbol
        side.touched_size += 1
    beside.change += count


cdef inline int64_t sum_of_four(const uint32_t (*counts)[256], size_t code) noexcept nogil:
    return <int64_t> counts[0][code] + counts[1][code] + counts[2][code] + counts[3][code]
