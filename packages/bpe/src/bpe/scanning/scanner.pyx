"""Split patterns as scanners: text to the ends of its pretokens, 64 bytes at a time.

A scanner does not go from character to character. classify() turns 64 bytes into words of 64 bits, one for letters, one
for digits, one for white space and so on; the pattern is then a handful of shifts and masks on these words, whose
result has a bit for each byte that begins a pretoken. (The idea is simdjson's, Langdale and Lemire 2019; gpt2.pxi has
an example.) Characters beyond ASCII are decoded, but only to set their bits in the same words. What masks cannot say
(contractions, long lookahead) is a loop over the few bits that ask for it. Encoding a text that is known takes 1.9 to
5.2 times as long where the same pattern runs as an automaton (`python benchmarks/parts.py masks FILE`, on a Zen 5).

    classify.h      64 bytes to masks
    characters.h    characters beyond ASCII into the same masks, by their classes (classes.h)
    gpt2.pxi cl100k.pxi o200k.pxi deepseek.pxi    masks to beginnings of pretokens; masks.pxi: their operations
    positions.h     bits to positions in the text
    automaton.h     all other patterns: automata that are made while the program runs
    joins.h         SentencePiece-style tokenizers: between characters that no token joins
    cuts.h          the same within the pretokens of scripts without spaces, where they are encoded

cl100k.pxi serves llama3 and the qwens too. All share these terms:

* a mask holds all bytes of a character, a boundary only its first: `inside` holds the others;
* the bytes that follow a mask are that mask shifted up, with the bit that the last word left (`Before`);
* the bytes that come before a mask are that mask shifted down, with a bit of the word ahead;
* to flood a mask from some starts is one addition: the carry runs through the ones.
"""

import os

cimport cython

from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from bpe.native.bytes cimport count_leading_zeros, count_trailing_zeros
from bpe.native.cpu cimport level_of

from bpe.native.lazy_imports import numpy as np

cdef extern from "scanning/positions.h" nogil:
    positions_function choose_positions(int level)

cdef extern from "scanning/characters.h" nogil:
    void fill_byte_masks()
    void need_class_table(int family)
    void after_fork_of_class_tables()
    classify_function choose_classify(int family, int level)
    void mark_characters(
        const uint8_t *text, size_t room, int family, word_masks *word, uint64_t *spill, uint8_t *spill_class
    )
    uint8_t read_class(const uint8_t *text, size_t room, int family, size_t *length)
    size_t decode_character(const uint8_t *text, size_t room, uint32_t *code)
    size_t decode_before(const uint8_t *text, size_t at, uint32_t *code)
    uint8_t category_of(uint32_t code)
    enum:
        CATEGORY_LO     # the last of the five letter categories, which come first,
        CATEGORY_ME     # of the marks, which come next,
        CATEGORY_NO     # and of the numbers, which follow them
        CATEGORY_CS     # the category of bytes that are not UTF-8
        WHITE_SPACE
    enum:
        LETTER, UPPER, LOWER, MARK, DIGIT, SPACE, PUNCTUATION, OTHER
        CLASS       # the bits of these
    enum:
        FAMILY_GPT2, FAMILY_CL100K, FAMILY_MARKS, FAMILY_O200K, FAMILY_DEEPSEEK, FAMILIES

cdef extern from "scanning/automaton.h" nogil:
    ctypedef struct automaton:
        uint32_t class_count, of_bytes
        uint8_t of_byte[256]
        uint16_t *page
        uint8_t *of_code
        uint16_t *table
        uint8_t *cuts
    ctypedef struct splitter:
        uint32_t stages
        automaton stage[MOST_STAGES]
    splitter *splitters[MOST_OWN]
    size_t next_piece(const splitter *s, const uint8_t *text, stage_position *positions, uint32_t stage)
    size_t splitter_cut(const splitter *s, const uint8_t *text, size_t size, size_t at)
    void *copied(const void *source, size_t size)

cdef extern from "scanning/joins.h" nogil:
    ctypedef struct joins:
        uint64_t *bits
        int shift
        bint every_space, crosses
    joins *joins_of[MOST_OWN]
    void add_joins(joins *j, const uint8_t *token, size_t size)
    uint64_t joins_begins(
        const joins *j, const uint8_t *text, size_t size, size_t at, const word_masks *word, joins_before *before
    )
    size_t joins_cut(const joins *j, const uint8_t *text, size_t size, size_t at)

cdef enum:
    BITS_OF_BYTE = 4            # filter bits for each byte of all tokens; most pairs stand in many tokens
    FEWEST_BITS = 16            # log2 of the bits of the smallest filter
    MOST_BITS = 24              # log2 of the bits of the largest filter

MOST_IN_SEQUENCE = MOST_STAGES  # automata of a scanner

SCANNED = {  # by the pattern's name; None is no split at all
    None: PATTERN_NONE,
    "gpt2": PATTERN_GPT2,
    "cl100k": PATTERN_CL100K,
    "o200k": PATTERN_O200K,
    "llama3": PATTERN_LLAMA3,
    "qwen2": PATTERN_QWEN2,
    "qwen3.5": PATTERN_QWEN35,
    "deepseek-v3": PATTERN_DEEPSEEK,
}

cdef classify_function classify_here[FAMILIES]
cdef word_masks blank[FAMILIES]     # 64 spaces
cdef uint8_t[64] _spaces
fill_byte_masks()
memset(_spaces, 32, 64)
for _family in range(FAMILIES):
    classify_here[<int> _family] = choose_classify(_family, level_of(None))
    classify_here[<int> _family](_spaces, &blank[<int> _family])
cdef positions_function positions_here = choose_positions(level_of(None))
cdef object own_guard = object()    # for a critical section, where there is no GIL


include "own_scanners.pxi"


def _after_fork():
    after_fork_of_class_tables()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


cdef ScannedPattern number_of(pattern) except *:
    """The scanner of a named pattern, or of a number that is one. KeyError for other names and numbers."""
    cdef int number
    if not isinstance(pattern, int):
        return SCANNED[pattern]
    number = pattern
    if (
        0 <= number < PATTERN_SPLITTER
        or (0 <= number - PATTERN_SPLITTER < MOST_OWN and splitters[number - PATTERN_SPLITTER] != NULL)
        or (0 <= number - PATTERN_JOINS < MOST_OWN and joins_of[number - PATTERN_JOINS] != NULL)
    ):
        return <ScannedPattern> number
    raise KeyError(pattern)


def categories():
    """A byte for every code point: its general category (numbered in unicode.h), plus 128 for white space."""
    cdef bytearray table = bytearray(0x110000)
    cdef uint8_t[::1] out = table
    cdef uint32_t code
    for code in range(0x110000):
        out[code] = category_of(code)
    return bytes(table)


cdef int *FAMILY_OF = [     # by ScannedPattern, up to PATTERN_DEEPSEEK
    FAMILY_GPT2, FAMILY_GPT2, FAMILY_CL100K, FAMILY_CL100K, FAMILY_CL100K, FAMILY_MARKS, FAMILY_O200K, FAMILY_DEEPSEEK
]


cdef inline int family_of(ScannedPattern pattern) noexcept nogil:
    return FAMILY_OF[<int> pattern] if pattern < PATTERN_SPLITTER else FAMILY_GPT2


cdef void scan_start(Scanner *s, ScannedPattern pattern, const uint8_t *text, size_t size) noexcept nogil:
    scan_start_with(s, pattern, text, size, classify_here[family_of(pattern)], positions_here)


cdef void scan_start_with(
    Scanner *s, ScannedPattern pattern, const uint8_t *text, size_t size, classify_function classify,
    positions_function positions
) noexcept nogil:
    memset(s, 0, sizeof(Scanner))
    s.text = text
    s.size = size
    s.pattern = pattern
    s.family = family_of(pattern)
    s.classify, s.positions = classify, positions
    if pattern >= PATTERN_JOINS:
        pass                            # it reads its words itself
    elif pattern >= PATTERN_SPLITTER:
        s.stages[0].end = size
    elif pattern != PATTERN_NONE:
        need_class_table(s.family)
        read_word(s, 0, &s.ahead)


cdef size_t scan_block(Scanner *s, size_t *ends) noexcept nogil:
    """Write the ends of the pretokens of the next SCAN_BLOCK bytes; 0 when the text is at its end."""
    cdef size_t count = 0, stop = s.at + SCAN_BLOCK
    if s.at >= s.size:
        return 0
    if PATTERN_SPLITTER <= s.pattern < PATTERN_JOINS:
        return splitter_block(s, ends)
    if s.pattern == PATTERN_NONE:
        s.at = s.size
    while s.at < s.size and (s.at < stop or count == 0):  # 0 would say that the text has ended
        count += write_ends(s, next_begins(s), ends + count)
    if s.at >= s.size:
        ends[count] = s.size
        count += 1
    return count


cdef inline uint64_t next_begins(Scanner *s) noexcept nogil:
    """A bit for each of the 64 bytes at s.at that begins a pretoken."""
    cdef uint64_t begins
    if s.pattern >= PATTERN_JOINS:
        classify_word(s, s.at, &s.word)
        return joins_begins(joins_of[<size_t> s.pattern - PATTERN_JOINS], s.text, s.size, s.at, &s.word, &s.joins)
    s.word = s.ahead
    read_word(s, s.at + 64, &s.ahead)
    if s.family == FAMILY_GPT2:
        begins = gpt2_begins(s)
    elif s.family == FAMILY_O200K:
        begins = o200k_begins(s)
    elif s.family == FAMILY_DEEPSEEK:
        begins = deepseek_begins(s)
    else:
        begins = cl100k_begins(s)
    if s.cuts != NULL:
        begins |= cuts_in_word(s.cuts, s.text + s.at, begins, s.word.high, s.word.inside, s.ahead.inside, &s.cut)
    return begins


cdef inline size_t write_ends(Scanner *s, uint64_t begins, size_t *ends) noexcept nogil:
    """Write where pretokens begin in the 64 bytes at s.at, where those before them end; go on to the next 64 bytes."""
    cdef size_t at = s.at
    if at == 0:
        begins &= ~<uint64_t> 1         # it ends nothing
    if s.size - at < 64:
        begins &= (<uint64_t> 1 << (s.size - at)) - 1
    s.at = at + 64
    return s.positions(begins, at, ends)


cdef size_t splitter_block(Scanner *s, size_t *ends) noexcept nogil:
    """scan_block() of a splitter."""
    cdef const splitter *entry = splitters[<size_t> s.pattern - PATTERN_SPLITTER]
    cdef size_t count = 0, stop = s.at + SCAN_BLOCK
    while s.at < s.size and s.at < stop:
        s.at = next_piece(entry, s.text, s.stages, entry.stages - 1)
        ends[count] = s.at
        count += 1
    return count


cdef bint splits_at_every_space(ScannedPattern pattern) noexcept nogil:
    """True if this is a scanner of register_joins() by which a pretoken begins at every space."""
    return pattern >= PATTERN_JOINS and joins_of[<size_t> pattern - PATTERN_JOINS].every_space


cdef inline void classify_word(Scanner *s, size_t at, word_masks *word) noexcept nogil:
    """Classify the 64 bytes at `at`, which is inside the text. Beyond its end all is white space."""
    cdef uint8_t padded[64]
    if at + 64 <= s.size:
        s.classify(s.text + at, word)
        return
    memset(padded, 32, 64)
    memcpy(padded, s.text + at, s.size - at)
    s.classify(padded, word)


cdef void read_word(Scanner *s, size_t at, word_masks *word) noexcept nogil:
    """Classify the 64 bytes at `at`. Beyond the end of the text all is white space: `(?!\\S)` holds there."""
    if at >= s.size:
        word[0] = blank[s.family]
        return
    classify_word(s, at, word)
    if word.high:
        mark_characters(s.text + at, s.size - at, s.family, word, &s.spill, &s.spill_class)


cdef inline uint8_t class_at(const Scanner *s, size_t at, size_t *length) noexcept nogil:
    """The class and the length of the character at `at`, for the rare lookahead that goes past a word."""
    return read_class(s.text + at, s.size - at, s.family, length) & CLASS


include "masks.pxi"
include "gpt2.pxi"
include "cl100k.pxi"
include "o200k.pxi"
include "deepseek.pxi"


cdef size_t scan_cut(ScannedPattern pattern, const uint8_t *text, size_t size, size_t at) noexcept nogil:
    """The first position from `at` on where the text may be cut without changing a pretoken; `size` if there is none.

    For every pattern here, that is where words end, in any script, with spaces or without:

    * after a letter or a number, before a character that is neither, and no mark and no apostrophe: only marks and
      o200k's contractions ever follow letters in a pretoken, and only numbers follow numbers;
    * after anything but white space, before white space that is no line end: all it can ever follow in a pretoken is
      white space.

    So a pretoken ends there, and what follows is matched afresh. What comes before is matched as it would be at the end
    of a text: the only expressions that look beyond their match are for white space, which does not reach the cut, and
    o200k's for letters, which sees that they end. None of this depends on what may be added to the text later:
    a character cut off by its end is never taken for another.
    """
    cdef uint8_t before, after
    cdef uint32_t code
    if pattern == PATTERN_NONE:
        return size
    if pattern >= PATTERN_JOINS:
        return joins_cut(joins_of[<size_t> pattern - PATTERN_JOINS], text, size, at)
    if pattern >= PATTERN_SPLITTER:
        return splitter_cut(splitters[<size_t> pattern - PATTERN_SPLITTER], text, size, at)
    at = at if at > 0 else 1
    while at < size:
        if text[at] & 0xc0 != 0x80 and text[at] != 39:      # a character begins, and it is no apostrophe
            decode_character(text + at, size - at, &code)
            after = category_of(code)
            if after > CATEGORY_NO and after != CATEGORY_CS:
                decode_before(text, at, &code)
                before = category_of(code)
                if before <= CATEGORY_LO or CATEGORY_ME < before <= CATEGORY_NO:
                    return at
                if after & WHITE_SPACE and not before & WHITE_SPACE and text[at] != 10 and text[at] != 13:
                    return at
        at += 1
    return size


def boundaries(const uint8_t[::1] text not None, pattern="gpt2", *, level=None):
    """The ends of the pretokens of `text` under the compiled scanner of a named pattern: an array of uint64.

    level: the SIMD level, by default the process's. KeyError where no scanner serves the pattern.
    """
    cdef Scanner scanner
    cdef size_t size = text.shape[0], count
    cdef size_t ends[SCAN_ENDS]
    cdef ScannedPattern number = number_of(pattern)
    cdef int simd
    blocks = [np.empty(0, dtype=np.uint64)]
    if size == 0:
        return blocks[0]
    simd = level_of(level)
    scan_start_with(
        &scanner, number, &text[0], size, choose_classify(family_of(number), simd), choose_positions(simd)
    )
    while True:
        with nogil:
            count = scan_block(&scanner, ends)
        if count == 0:
            return np.concatenate(blocks)
        blocks.append(np.array(<uint64_t[:count]> <uint64_t *> ends))


def split(const uint8_t[::1] text not None, pattern="gpt2", *, level=None):
    """The pretokens of `text` as a list of bytes; see boundaries()."""
    cdef bytes data = bytes(text)
    cdef list pieces = []
    begin = 0
    for end in boundaries(text, pattern, level=level).tolist():
        pieces.append(data[begin:end])
        begin = end
    return pieces


def cut(const uint8_t[::1] text not None, size_t at, pattern="gpt2"):
    """The first position from `at` on where cutting `text` changes no pretoken; its length if there is none."""
    cdef ScannedPattern number = number_of(pattern)
    if text.shape[0] == 0:
        return 0
    return scan_cut(number, &text[0], text.shape[0], at)
