"""Split patterns as scanners: text to the ends of its pretokens, 64 bytes at a time.

A scanner never looks at one character after another. `classify` turns 64 bytes into words of 64 bits, one for letters, one
for digits, one for white space…; the pattern is then a handful of shifts and masks on those words, whose result has a bit
for each byte that begins a pretoken. (The idea is simdjson's, Langdale and Lemire 2019.) Characters beyond ASCII are
decoded one by one, but only to set their bits in the same words.

The GPT-2 pattern, `'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+`, says in these terms:

* a pretoken begins wherever the class (letter, digit, white space, other) changes,
* except that a blank directly before a non-space begins that pretoken in its place,
* and that the last character of a run of white space stands alone when something other than white space follows it;
* a contraction (`'s`, `'ll`, …) is a pretoken when its apostrophe begins one: not after an `other` character,
  which would have taken the apostrophe into its run, nor after a blank, which would have joined it.
"""

from libc.string cimport memcpy, memset

import numpy as np

cdef extern from "_bytes.h" nogil:
    int count_trailing_zeros(uint64_t word)

cdef extern from "_classify.h" nogil:
    classify_function choose_classify(int portable)
    size_t decode_character(const uint8_t *text, size_t room, uint8_t *category)
    int has_avx2()
    enum:
        CATEGORY_LO   # the last of the five letter categories, which come first
        CATEGORY_ND   # the first and
        CATEGORY_NO   # the last of the three number categories
        WHITE_SPACE

cdef classify_function classify_here = choose_classify(0)

SCANNED = {None: PATTERN_WHOLE, "gpt2": PATTERN_GPT2}  # by the pattern's name; None is no split at all
VECTORS = "avx2" if has_avx2() else "portable"


def scanner_of(pattern):
    """The number of the compiled scanner that serves a bpe.patterns.Pattern, or -1 where only `regex` does."""
    return SCANNED.get(pattern.name, -1) if pattern.name or not pattern.expressions else -1


cdef void scan_start(Scanner *s, Pattern pattern, const uint8_t *text, size_t size) noexcept nogil:
    memset(s, 0, sizeof(Scanner))
    s.text = text
    s.size = size
    s.pattern = pattern
    s.classify = classify_here
    if pattern != PATTERN_WHOLE:
        read_word(s, 0, &s.ahead)


cdef size_t scan_block(Scanner *s, size_t *ends) noexcept nogil:
    """Write the ends of the pretokens of the next SCAN_BLOCK bytes; 0 when the text is at its end."""
    cdef size_t count = 0, stop = s.at + SCAN_BLOCK
    cdef uint64_t begins
    if s.at >= s.size:
        return 0
    if s.pattern == PATTERN_WHOLE:
        s.at = s.size
    while s.at < s.size and (s.at < stop or count == 0):  # 0 would say that the text has ended
        s.last = s.word
        s.word = s.ahead
        read_word(s, s.at + 64, &s.ahead)
        begins = gpt2_begins(s)
        if s.size - s.at < 64:
            begins &= (<uint64_t>1 << (s.size - s.at)) - 1
        while begins:
            ends[count] = s.at + count_trailing_zeros(begins)
            count += 1
            begins &= begins - 1
        s.at += 64
    if s.at >= s.size:
        ends[count] = s.size
        count += 1
    return count


cdef void read_word(Scanner *s, size_t at, Word *word) noexcept nogil:
    """Classify the 64 bytes at `at`. Beyond the end of the text all is white space: `(?!\\S)` holds there."""
    cdef classes found
    cdef uint8_t padded[64]
    cdef uint64_t high, spill, bits
    cdef uint8_t category
    cdef size_t i, length
    if at + 64 <= s.size:
        s.classify(s.text + at, &found)
    else:
        memset(padded, 32, 64)
        if at < s.size:
            memcpy(padded, s.text + at, s.size - at)
        s.classify(padded, &found)
    word.letter = found.letter
    word.digit = found.digit
    word.space = found.space
    word.blank = found.blank
    word.apostrophe = found.apostrophe
    word.inside = s.spill
    high = found.high
    if not high:
        return
    if s.spill:
        mark(word, s.spill_category, s.spill)
        high &= ~s.spill
    spill = 0
    while high:
        i = count_trailing_zeros(high)
        length = decode_character(s.text + at + i, s.size - at - i, &category)
        bits = ((<uint64_t>1 << length) - 1) << i
        mark(word, category, bits)
        word.inside |= bits & (bits - (<uint64_t>1 << i))
        high &= ~bits
        if i + length > 64:
            spill = (<uint64_t>1 << (i + length - 64)) - 1
            s.spill_category = category
    s.spill = spill


cdef inline void mark(Word *word, uint8_t category, uint64_t bits) noexcept nogil:
    if category <= CATEGORY_LO:
        word.letter |= bits
    elif category & WHITE_SPACE:
        word.space |= bits
    elif CATEGORY_ND <= category <= CATEGORY_NO:
        word.digit |= bits


cdef uint64_t gpt2_begins(Scanner *s) noexcept nogil:
    """A bit for each byte of the current word that begins a pretoken (byte 0 of the text excepted)."""
    cdef Word w = s.word
    cdef uint64_t before_letter = w.letter << 1 | s.last.letter >> 63
    cdef uint64_t before_digit = w.digit << 1 | s.last.digit >> 63
    cdef uint64_t before_space = w.space << 1 | s.last.space >> 63
    cdef uint64_t before_blank = w.blank << 1 | s.last.blank >> 63
    cdef uint64_t then_space = w.space >> 1 | s.ahead.space << 63
    cdef uint64_t begins = (w.letter ^ before_letter) | (w.digit ^ before_digit) | (w.space ^ before_space)
    cdef uint64_t last_space = w.space & ~then_space & ~w.blank
    cdef uint64_t quotes, first = s.at == 0

    begins = (begins & ~(before_blank & ~w.space)) | (w.blank & ~then_space)
    if (last_space & w.inside) or (s.ahead.space & s.ahead.inside & 1):
        last_space = first_bytes(s, last_space)
    begins |= last_space

    quotes = w.apostrophe & ~before_blank & (before_letter | before_digit | before_space | first)
    if quotes or s.cleared or s.added:
        begins = contractions(s, begins, quotes)
    return begins & ~first


cdef uint64_t first_bytes(Scanner *s, uint64_t last_bytes) noexcept nogil:
    """Move the mark on a white-space character's last byte to its first (it has up to three), from `ahead` back too."""
    cdef uint64_t here = last_bytes, there = s.ahead.space & ~s.ahead.blank & ~(s.ahead.space >> 1) & 3
    cdef uint64_t move_here, move_there
    cdef int step
    for step in range(2):
        move_here = here & s.word.inside
        move_there = there & s.ahead.inside
        here = (here ^ move_here) | move_here >> 1 | move_there << 63
        there = (there ^ move_there) | move_there >> 1
    return here


cdef uint64_t contractions(Scanner *s, uint64_t begins, uint64_t quotes) noexcept nogil:
    """Join each contraction to one pretoken, and end it; what falls into the next word waits there."""
    cdef uint64_t cleared = s.cleared, added = s.added, inner, after
    cdef size_t i, length
    s.cleared = s.added = 0
    while quotes:
        i = count_trailing_zeros(quotes)
        quotes &= quotes - 1
        length = contraction_length(s.text + s.at + i, s.size - s.at - i)
        if length:
            inner = ((<uint64_t>1 << length) - 1) & ~<uint64_t>1
            after = <uint64_t>1 << length
            cleared |= inner << i
            added |= after << i
            if i > 60:
                s.cleared |= inner >> (64 - i)
                s.added |= after >> (64 - i)
    return (begins & ~cleared) | added


cdef inline size_t contraction_length(const uint8_t *text, size_t room) noexcept nogil:
    """2 for 's 'd 'm 't, 3 for 'll 've 're, 0 for anything else; text[0] is an apostrophe."""
    if room >= 2 and (text[1] == b"s" or text[1] == b"d" or text[1] == b"m" or text[1] == b"t"):
        return 2
    if room >= 3 and (
        (text[1] == b"l" and text[2] == b"l") or ((text[1] == b"v" or text[1] == b"r") and text[2] == b"e")
    ):
        return 3
    return 0


cdef size_t scan_cut(Pattern pattern, const uint8_t *text, size_t size, size_t at) noexcept nogil:
    """The first place from `at` on where the text may be cut without changing a pretoken; `size` if there is none.

    For the GPT-2 pattern: before an ASCII white-space character that follows a character other than white space. A
    pretoken always ends there, what comes before ends as it would at the end of the text, and what comes after never
    looks back. UTF-8 is self-synchronising, so the character before is found from its last byte.
    """
    cdef size_t back, length
    cdef uint8_t category
    if pattern == PATTERN_WHOLE:
        return size
    at = at if at > 0 else 1
    while at < size:
        if text[at] == 32 or 9 <= text[at] <= 13:
            if text[at - 1] < 0x80:
                if not (text[at - 1] == 32 or 9 <= text[at - 1] <= 13):
                    return at
            else:
                back = 1
                while back < 4 and back < at and text[at - back] & 0xc0 == 0x80:
                    back += 1
                length = decode_character(text + at - back, back, &category)
                if not (length == back and category & WHITE_SPACE):
                    return at
        at += 1
    return size


def boundaries(const uint8_t[::1] text not None, pattern="gpt2", *, bint portable=False):
    """The ends of the pretokens of `text` under the compiled scanner of a named pattern: an array of uint64.

    `portable` uses the twin of the vector code that every processor can run. KeyError where no scanner serves the pattern.
    """
    cdef Scanner scanner
    cdef size_t size = text.shape[0], count
    cdef size_t ends[SCAN_ENDS]
    cdef Pattern number = SCANNED[pattern]
    blocks = [np.empty(0, dtype=np.uint64)]
    if size == 0:
        return blocks[0]
    scan_start(&scanner, number, &text[0], size)
    if portable:
        scanner.classify = choose_classify(1)
        scanner.spill = 0
        read_word(&scanner, 0, &scanner.ahead)
    while True:
        with nogil:
            count = scan_block(&scanner, ends)
        if count == 0:
            return np.concatenate(blocks)
        blocks.append(np.array(<uint64_t[:count]> <uint64_t *> ends))


def split(const uint8_t[::1] text not None, pattern="gpt2", *, bint portable=False):
    """The pretokens of `text` as a list of bytes; see boundaries()."""
    cdef bytes whole = bytes(text)
    cdef list pieces = []
    begin = 0
    for end in boundaries(text, pattern, portable=portable).tolist():
        pieces.append(whole[begin:end])
        begin = end
    return pieces


def cut(const uint8_t[::1] text not None, size_t at, pattern="gpt2"):
    """The first place from `at` on where `text` can be cut without changing a pretoken; its length if there is none."""
    cdef Pattern number = SCANNED[pattern]
    if text.shape[0] == 0:
        return 0
    return scan_cut(number, &text[0], text.shape[0], at)


def scan_only(const uint8_t[::1] text not None, pattern="gpt2", *, bint portable=False):
    """How many pretokens `text` has: the scanner alone, for benchmarks."""
    cdef Scanner scanner
    cdef size_t total = 0, count
    cdef size_t ends[SCAN_ENDS]
    cdef Pattern number = SCANNED[pattern]
    if text.shape[0] == 0:
        return 0
    with nogil:
        scan_start(&scanner, number, &text[0], text.shape[0])
        if portable:
            scanner.classify = choose_classify(1)
        while True:
            count = scan_block(&scanner, ends)
            if count == 0:
                break
            total += count
    return total
