"""Operations on masks that the families of patterns share; see scanner.pyx for the terms."""


cdef inline uint64_t following(uint64_t mask, uint64_t *before) noexcept nogil:
    """The bytes that follow a byte of the mask. Once a word: `before` is read, and left as the next word needs it."""
    cdef uint64_t moved = mask << 1 | before[0]
    before[0] = mask >> 63
    return moved


cdef inline uint64_t preceding(uint64_t mask, uint64_t ahead) noexcept nogil:
    """The bytes that come before a byte of the mask; `ahead` is the mask of the next word."""
    return mask >> 1 | ahead << 63


cdef inline uint64_t flood(uint64_t starts, uint64_t through) noexcept nogil:
    """The bytes of `through` from each of `starts`, which are among them, to the end of the run."""
    return ((through + starts) ^ through | starts) & through


cdef inline uint64_t whole_characters(uint64_t firsts, uint64_t inside, uint64_t before) noexcept nogil:
    """All bytes of the characters that begin at `firsts`; `before` is 1 if the byte before the word is of one."""
    return firsts | flood((firsts << 1 | before) & inside, inside)


cdef inline uint64_t first_bytes(const Scanner *s, uint64_t here, uint64_t there) noexcept nogil:
    """Marks on last bytes of characters, moved to their first bytes.

    here: in `word`. there: in `ahead`; only a character that begins in `word` counts.
    """
    cdef uint64_t across = s.ahead.inside & ~(s.ahead.inside + 1)      # what `ahead` has of that character
    there &= across ^ across >> 1
    if not (here & s.word.inside or there):
        return here
    return first_bytes_moved(s, here, there)


cdef uint64_t first_bytes_moved(const Scanner *s, uint64_t here, uint64_t there) noexcept nogil:
    cdef uint64_t move_here, move_there
    cdef int step
    for step in range(3):
        move_here = here & s.word.inside
        move_there = there & s.ahead.inside
        here = (here ^ move_here) | move_here >> 1 | move_there << 63
        there = (there ^ move_there) | move_there >> 1
    return here


cdef inline uint64_t groups_of_three(Scanner *s, uint64_t follows_digit) noexcept nogil:
    """The beginnings of `\\p{N}{1,3}`: at the first character of a run of digits and at every third from there on."""
    cdef uint64_t digit = s.word.digit, begins = 0, fresh, third, in_last
    if not digit:
        return 0
    if digit & s.word.inside:
        return groups_of_wide_digits(s, follows_digit)
    fresh = digit & ~follows_digit
    if digit & follows_digit & 1:
        in_last = (<uint64_t> 2 << (3 - s.group)) - 1       # what completes the group, and the digit after it
        if digit & in_last == in_last:
            fresh |= <uint64_t> 1 << (3 - s.group)
    third = digit & digit << 1 & digit << 2                 # may be the fourth of four
    while fresh:
        begins |= fresh
        fresh = fresh << 3 & third
    if digit >> 63:
        s.group = count_leading_zeros(begins) + 1
    return begins


cdef uint64_t groups_of_wide_digits(Scanner *s, uint64_t follows_digit) noexcept nogil:
    """As groups_of_three(), one character at a time: some have several bytes."""
    cdef uint64_t firsts = s.word.digit & ~s.word.inside, begins = 0, bit
    while firsts:
        bit = firsts & -firsts
        firsts ^= bit
        if not (follows_digit & bit) or s.group == 3:
            begins |= bit
            s.group = 0
        s.group += 1
    return begins


cdef uint64_t contractions(Scanner *s, uint64_t begins, uint64_t quotes, bint any_case) noexcept nogil:
    """Join each contraction to one pretoken, and end it; what falls into the next word waits there."""
    cdef uint64_t cleared = s.cleared, added = s.added, inner, after
    cdef size_t i, length
    s.cleared = s.added = 0
    while quotes:
        i = count_trailing_zeros(quotes)
        quotes &= quotes - 1
        length = contraction_length(s.text + s.at + i, s.size - s.at - i, any_case)
        if length:
            inner = ((<uint64_t> 1 << length) - 1) & ~<uint64_t> 1
            after = <uint64_t> 1 << length
            cleared |= inner << i
            added |= after << i
            if i > 60:
                s.cleared |= inner >> (64 - i)
                s.added |= after >> (64 - i)
    return (begins & ~cleared) | added


cdef inline size_t contraction_length(const uint8_t *text, size_t room, bint any_case) noexcept nogil:
    """The bytes of the contraction that text[0], an apostrophe, begins: 's 'd 'm 't, 'll 've 're; 0 for anything else.

    Case is Unicode's, where U+017F, the long s, is another s.
    """
    cdef uint8_t fold = 0x20 if any_case else 0, first, second
    if room < 2:
        return 0
    first = text[1] | fold
    if first == b"s" or first == b"d" or first == b"m" or first == b"t":
        return 2
    if room < 3:
        return 0
    second = text[2] | fold
    if first == b"l" and second == b"l" or (first == b"v" or first == b"r") and second == b"e":
        return 3
    if any_case and text[1] == 0xc5 and text[2] == 0xbf:
        return 3
    return 0
