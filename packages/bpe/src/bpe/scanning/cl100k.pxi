"""cl100k, llama3, qwen2 and qwen3.5. In llama3's words:

    (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*
    |\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+

cl100k has `\\s+$` before the white space, qwen2 has `\\p{N}` for the numbers, and to qwen3.5 marks are letters.
"""


cdef uint64_t cl100k_begins(Scanner *s) noexcept nogil:
    """A bit for each byte of the current word that begins a pretoken. Tab: white space that is no line end.

    * A run of letters begins one, unless it is joined to the character before it, which then begins the pretoken: a
      tab, which in that place is always the last of its run, or a single `other` character (`alone`).
    * A run of other characters begins one, unless a blank before it does so in its place.
    * White space: see spaces_begin(). The line ends after other characters are `taken` by these.
    * Digits: each, or every third.
    * A contraction's apostrophe is an `other` that is alone. All it needs is an end after the contraction.
    """
    cdef uint64_t letter = s.word.letter, digit = s.word.digit, space = s.word.space, line = s.word.line
    cdef uint64_t other = ~(letter | digit | space)
    cdef uint64_t follows_letter = following(letter, &s.before.letter)
    cdef uint64_t follows_digit = following(digit, &s.before.digit)
    cdef uint64_t follows_blank = following(s.word.blank, &s.before.blank)
    cdef uint64_t follows_tab = following(space & ~line, &s.before.tab)
    cdef uint64_t follows_other = following(other, &s.before.other)
    cdef uint64_t opens = other & ~(follows_other | follows_blank)
    cdef uint64_t alone = whole_characters(opens, s.word.inside, s.before.alone)
    cdef uint64_t follows_alone = following(alone, &s.before.alone)
    cdef uint64_t taken = flood(line & (follows_other | s.before.taken), line)
    cdef uint64_t begins, quotes

    begins = opens | (letter & ~(follows_letter | follows_tab | follows_alone))
    begins |= spaces_begin(s, taken, space, s.ahead.space)
    if s.pattern == PATTERN_CL100K or s.pattern == PATTERN_LLAMA3:
        begins |= groups_of_three(s, follows_digit)
    else:
        begins |= digit & ~s.word.inside

    quotes = s.word.apostrophe & opens & preceding(letter, s.ahead.letter)
    if quotes or s.added:
        begins = contractions(s, begins, quotes, True)
    return begins


cdef inline uint64_t spaces_begin(Scanner *s, uint64_t taken, uint64_t stop, uint64_t stop_ahead) noexcept nogil:
    """The positions at which white space begins a pretoken, by `…[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`.

    taken: the line ends that belong to what stands before them; the rest of the run of white space begins afresh.
    stop: white space, and whatever else a piece of text ends before, so that (?!\\S) holds. Of each run, or rest:

    * its first character begins a pretoken;
    * so do the tabs after its last line end, except that cl100k takes white space at the end of the text whole. Whether
      another line end follows those tabs may take any distance to see, but few positions ask;
    * so does its last character, if it is a tab and the piece does not end there: it may be joined to what follows.
    """
    cdef uint64_t space = s.word.space, line = s.word.line, tab = space & ~line
    cdef uint64_t follows_space = following(space, &s.before.space)
    cdef uint64_t follows_line = following(line, &s.before.line)
    cdef uint64_t follows_taken = following(taken, &s.before.taken)
    cdef uint64_t last = tab & ~preceding(stop, stop_ahead)
    cdef uint64_t last_ahead = s.ahead.space & ~s.ahead.line & ~(stop_ahead >> 1)
    cdef uint64_t begins = (space & ~follows_space & ~taken) | (tab & follows_taken) | first_bytes(s, last, last_ahead)
    cdef uint64_t waiting = tab & follows_line & ~follows_taken, bit
    while waiting:
        bit = waiting & -waiting
        waiting ^= bit
        if ends_its_lines(s, bit, tab):
            begins |= bit
    return begins


cdef inline bint ends_its_lines(const Scanner *s, uint64_t bit, uint64_t tab) noexcept nogil:
    """True if the run of tabs that begins at `bit`, after a line end, is the rest of its run of white space."""
    cdef uint64_t after = (tab + bit) & ~tab
    cdef size_t at, length
    if after:
        return not (s.word.line & after)
    at = s.at + count_trailing_zeros(bit)
    while at < s.size:
        if s.text[at] == 10 or s.text[at] == 13:
            return False
        if class_at(s, at, &length) != SPACE:
            return True
        at += length
    return s.pattern != PATTERN_CL100K
