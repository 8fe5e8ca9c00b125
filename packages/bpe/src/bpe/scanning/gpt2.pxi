"""gpt2 (r50k, p50k): `'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+`.

    text                              I t ' s   2 a m .
    letter                            1 1 . 1 . . 1 1 .
    digit                             . . . . . 1 . . .
    space                             . . . . 1 . . . .
    the class changes                 1 . 1 1 1 1 1 . 1
    a blank begins what follows it    1 . 1 1 1 . 1 . 1
    's is a contraction               1 . 1 . 1 . 1 . 1      It|'s| 2|am|.
"""


cdef uint64_t gpt2_begins(Scanner *s) noexcept nogil:
    """A bit for each byte of the current word that begins a pretoken.

    * A pretoken begins wherever the class (letter, digit, white space, other) changes,
    * except that a blank directly before a non-space begins that pretoken in its place,
    * and that the last character of a run of white space stands alone when something other than white space follows it.
    * A contraction (`'s`, `'ll`, …) is a pretoken when its apostrophe begins one: not after an `other` character,
      which would have taken the apostrophe into its run, nor after a blank, which would have joined it.
    """
    cdef uint64_t letter = s.word.letter, digit = s.word.digit, space = s.word.space, blank = s.word.blank
    cdef uint64_t follows_letter = following(letter, &s.before.letter)
    cdef uint64_t follows_digit = following(digit, &s.before.digit)
    cdef uint64_t follows_space = following(space, &s.before.space)
    cdef uint64_t follows_blank = following(blank, &s.before.blank)
    cdef uint64_t then_space = preceding(space, s.ahead.space)
    cdef uint64_t begins = (letter ^ follows_letter) | (digit ^ follows_digit) | (space ^ follows_space)
    cdef uint64_t quotes, first = s.at == 0

    begins = (begins & ~(follows_blank & ~space)) | (blank & ~then_space)
    begins |= first_bytes(s, space & ~then_space & ~blank, s.ahead.space & ~(s.ahead.space >> 1) & ~s.ahead.blank)

    quotes = s.word.apostrophe & ~follows_blank & (follows_letter | follows_digit | follows_space | first)
    if quotes or s.cleared or s.added:
        begins = contractions(s, begins, quotes, False)
    return begins
