from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "scanning/characters.h" nogil:
    ctypedef union word_masks:  # 64 bytes of text: a bit each, in a mask for each class
        uint64_t letter, upper, lower, mark, digit, space, punctuation, other
        uint64_t blank, line, apostrophe, slash
        uint64_t high, continuation, inside, han
        uint64_t of[16]
    ctypedef void (*classify_function)(const uint8_t *text, word_masks *masks) noexcept nogil

cdef extern from "scanning/positions.h" nogil:
    ctypedef size_t (*positions_function)(uint64_t ones, size_t base, size_t *positions) noexcept nogil

cdef extern from "scanning/scanner_state.h" nogil:
    enum:
        MOST_STAGES, MOST_OWN
    ctypedef struct stage_position:
        size_t at, end, match
    ctypedef struct joins_before:
        uint64_t blank, letter, high

cdef extern from "scanning/cuts.h" nogil:
    ctypedef struct cut_table:
        pass
    ctypedef struct cut_before:
        pass
    void add_token(cut_table *table, const uint8_t *token, size_t size)
    void add_whole_token(cut_table *table, const uint8_t *token, size_t size)
    uint64_t cuts_in_word(
        const cut_table *table, const uint8_t *at, uint64_t begins, uint64_t high, uint64_t inside, uint64_t ahead,
        cut_before *before
    )

cdef enum:
    SCAN_BLOCK = 4096           # bytes scanned by one call of scan_block()
    SCAN_ENDS = SCAN_BLOCK + 64  # room for the ends one call can write, and for stores beyond them

cdef enum ScannedPattern:
    PATTERN_NONE                # no split: the whole text is one pretoken
    PATTERN_GPT2
    PATTERN_CL100K
    PATTERN_LLAMA3
    PATTERN_QWEN2
    PATTERN_QWEN35
    PATTERN_O200K
    PATTERN_DEEPSEEK
    PATTERN_SPLITTER            # and all from it on: made by register_splitter(),
    PATTERN_JOINS = 1 << 20     # and from this one on by register_joins()

# What the words so far leave to the next: for each mask that is shifted, 1 if the byte before the word is in it.
ctypedef struct Before:
    uint64_t letter, digit, space, blank, punctuation, other, line, han
    uint64_t tab                # white space that is no line end
    uint64_t alone              # a character that a letter may follow within the pretoken it begins
    uint64_t taken              # a line end (o200k: or slash) that belongs to the punctuation before it
    uint64_t absorbed           # o200k: a mark that belongs to the punctuation before it
    uint64_t both, lowered      # o200k: letters by what may follow them
    uint64_t run                # deepseek-v3: an ASCII letter of a run that an ASCII punctuation mark began

ctypedef struct Scanner:
    const uint8_t *text
    size_t size
    size_t at                   # where the next word to scan begins
    ScannedPattern pattern
    int family                  # which classes the pattern knows
    classify_function classify
    positions_function positions
    word_masks word, ahead      # the words at and after `at`
    uint64_t spill              # bytes of `ahead` that belong to a character begun in `word`
    uint8_t spill_class
    Before before
    uint64_t cleared, added     # boundaries of `word` already decided by a contraction that began before it
    uint64_t suffix             # o200k: bytes of `word` that belong to such a contraction
    size_t group                # digits since the last boundary that the scan ends with: at most 3
    stage_position stages[MOST_STAGES]  # where each stage of a splitter is
    joins_before joins          # what the words so far leave to a scanner of register_joins()
    const cut_table *cuts       # where pretokens are cut too, or NULL; see cuts.h
    cut_before cut

cdef ScannedPattern number_of(pattern) except *
cdef void scan_start(Scanner *scanner, ScannedPattern pattern, const uint8_t *text, size_t size) noexcept nogil
cdef size_t scan_block(Scanner *scanner, size_t *ends) noexcept nogil
cdef bint splits_at_every_space(ScannedPattern pattern) noexcept nogil
cdef size_t scan_cut(ScannedPattern pattern, const uint8_t *text, size_t size, size_t at) noexcept nogil
