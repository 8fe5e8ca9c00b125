from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

cdef extern from "_classify.h" nogil:
    ctypedef struct classes:
        uint64_t letter, digit, space, blank, apostrophe, high
    ctypedef void (*classify_function)(const uint8_t *text, classes *found) noexcept nogil

cdef enum:
    SCAN_BLOCK = 4096           # bytes scanned by one call of scan_block()
    SCAN_ENDS = SCAN_BLOCK + 1  # the most ends one call can write

cdef enum Pattern:
    PATTERN_WHOLE               # no split: the whole text is one pretoken
    PATTERN_GPT2

# One word: what is known of 64 consecutive bytes. Every byte of a character carries its character's class.
ctypedef struct Word:
    uint64_t letter, digit, space, blank, apostrophe
    uint64_t inside             # bytes of a well-formed character other than its first

ctypedef struct Scanner:
    const uint8_t *text
    size_t size
    size_t at                   # where the next word to scan begins
    Pattern pattern
    classify_function classify
    Word last, word, ahead      # the words before, at and after `at`
    uint64_t spill              # bytes of `ahead` that belong to a character begun in `word`
    uint8_t spill_category
    uint64_t cleared, added     # boundaries of `word` already decided by a contraction that began in `last`

cdef void scan_start(Scanner *scanner, Pattern pattern, const uint8_t *text, size_t size) noexcept nogil
cdef size_t scan_block(Scanner *scanner, size_t *ends) noexcept nogil
cdef size_t scan_cut(Pattern pattern, const uint8_t *text, size_t size, size_t at) noexcept nogil
