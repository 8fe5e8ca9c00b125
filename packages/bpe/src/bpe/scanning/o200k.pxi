"""o200k. With U for [\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}], L for [\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}] and C for
(?i:'s|'t|'re|'ve|'m|'ll|'d):

    [^\\r\\n\\p{L}\\p{N}]?U*L+C?|[^\\r\\n\\p{L}\\p{N}]?U+L*C?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*
    |\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+
"""


cdef uint64_t o200k_begins(Scanner *s) noexcept nogil:
    """A bit for each byte of the current word that begins a pretoken: as in cl100k, except for these.

    * A mark is a letter, unless it follows other characters as part of their run: it is `absorbed` there. A single
      `other` character opens a pretoken of letters, so a mark after it counts as a letter; the same holds after line
      ends that are `taken`.
    * After the first line end, punctuation takes slashes too; these are no other characters then.
    * A contraction belongs to the letters before it (its `suffix`), and none to another contraction's. What
      follows it begins a pretoken: it is neither letters nor other characters to what comes next.
    * Letters are upper, lower or `both` (of no case, and marks). See case_breaks().
    """
    cdef uint64_t upper = s.word.upper, lower = s.word.lower, digit = s.word.digit, mark = s.word.mark
    cdef uint64_t space = s.word.space, line = s.word.line, inside = s.word.inside
    cdef uint64_t other = ~(upper | lower | s.word.letter | mark | digit | space)
    cdef uint64_t follows_digit = following(digit, &s.before.digit)
    cdef uint64_t follows_blank = following(s.word.blank, &s.before.blank)
    cdef uint64_t follows_tab = following(space & ~line, &s.before.tab)
    cdef uint64_t takes = (other << 1 | s.before.other) | s.before.taken | s.before.absorbed
    cdef uint64_t taken = flood(takes & line | s.before.taken & s.word.slash, line | s.word.slash)
    cdef uint64_t absorbed = 0, letter, opens, alone, suffix, begins

    other &= ~taken
    opens = other & ~(other << 1 | s.before.other | s.before.absorbed | follows_blank)
    alone = whole_characters(opens, inside, s.before.alone)
    if mark & (other << 1 | s.before.other | s.before.absorbed):
        absorbed = absorb_marks(s, follows_blank, &other, &taken, &opens, &alone)

    letter = upper | lower | s.word.letter | (mark & ~absorbed)
    suffix = s.suffix
    if suffix or s.word.apostrophe & (letter << 1 | s.before.letter):
        suffix = contraction_suffixes(s, letter)
        letter &= ~suffix
        upper &= ~suffix
        lower &= ~suffix
        other &= ~suffix
        opens &= ~suffix
        alone &= ~suffix

    begins = letter & ~(following(letter, &s.before.letter) | follows_tab | following(alone, &s.before.alone))
    begins |= opens | spaces_begin(s, taken, space, s.ahead.space) | groups_of_three(s, follows_digit)
    begins |= case_breaks(s, upper, lower, letter)
    s.before.other = other >> 63
    s.before.absorbed = absorbed >> 63
    return begins


cdef uint64_t absorb_marks(
    const Scanner *s, uint64_t follows_blank, uint64_t *other, uint64_t *taken, uint64_t *opens, uint64_t *alone
) noexcept nogil:
    """The marks that belong to the other characters before them, and what that makes of all that follows.

    Each run of marks depends on the text to its left, so they are settled from left to right. A mark after an emoji is
    common, but few are in one word.
    """
    cdef uint64_t mark = s.word.mark, line = s.word.line, lines = s.word.line | s.word.slash
    cdef uint64_t absorbed = flood(mark & s.before.absorbed, mark), all_other = other[0] | taken[0] & s.word.slash
    cdef uint64_t follows, waiting
    while True:
        follows = (all_other | absorbed) << 1 | s.before.other | s.before.absorbed | s.before.taken
        taken[0] = flood(follows & line | s.before.taken & s.word.slash, lines)
        other[0] = all_other & ~taken[0]
        follows = (other[0] | absorbed) << 1 | s.before.other | s.before.absorbed
        opens[0] = other[0] & ~(follows | follows_blank)
        alone[0] = whole_characters(opens[0], s.word.inside, s.before.alone)
        follows = (other[0] & ~alone[0]) << 1 | (s.before.other & ~s.before.alone)
        waiting = mark & ~s.word.inside & ~absorbed & follows
        if not waiting:
            return absorbed
        absorbed |= flood(waiting & -waiting, mark)


cdef uint64_t contraction_suffixes(Scanner *s, uint64_t letter) noexcept nogil:
    """The bytes of contractions that belong to the letters before them; what falls into the next word waits there."""
    cdef uint64_t suffix = s.suffix, quotes, bit
    cdef size_t i, length
    s.suffix = 0
    quotes = s.word.apostrophe & ((letter & ~suffix) << 1 | s.before.letter)
    while quotes:
        bit = quotes & -quotes
        quotes ^= bit
        i = count_trailing_zeros(bit)
        if suffix << 1 & bit:
            continue
        length = contraction_length(s.text + s.at + i, s.size - s.at - i, True)
        suffix |= ((<uint64_t> 1 << length) - 1) << i
        if i + length > 64:
            s.suffix = ((<uint64_t> 1 << length) - 1) >> (64 - i)
    return suffix


cdef inline uint64_t case_breaks(Scanner *s, uint64_t upper, uint64_t lower, uint64_t letter) noexcept nogil:
    """The beginnings of pretokens within a run of letters, by `U*L+|U+L*`.

    U* takes upper and both, up to the first lower; L+ takes lower and both, and ends before the next upper: one break.
    Where no lower follows, U* runs to the end of the run of letters and then gives back as much as an L needs: it
    ends with the last both, and upper letters after that are left to U+: the other break, if the run of letters ends
    with these. Only if there is no both either does U+ take it all.
    """
    cdef uint64_t both = letter & ~(upper | lower)
    cdef uint64_t lowered = lower | flood(both & (lower << 1 | s.before.lowered), both)
    cdef uint64_t breaks = upper & following(lowered, &s.before.lowered)
    cdef uint64_t waiting = upper & following(both & ~lowered, &s.before.both), bit
    while waiting:
        bit = waiting & -waiting
        waiting ^= bit
        if ends_its_letters(s, bit, upper, letter):
            breaks |= bit
    return breaks


cdef inline bint ends_its_letters(const Scanner *s, uint64_t bit, uint64_t upper, uint64_t letter) noexcept nogil:
    """True if the run of upper letters that begins at `bit` is the rest of its run of letters."""
    cdef uint64_t after = (upper + bit) & ~upper
    cdef size_t at, length
    cdef uint8_t found
    if after:
        return not (letter & after)
    at = s.at + count_trailing_zeros(bit)
    while at < s.size:
        found = class_at(s, at, &length)
        if found != UPPER:
            return not (found == LETTER or found == LOWER or found == MARK)
        at += length
    return True
