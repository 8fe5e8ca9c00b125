"""Safe cuts: positions where a text can be cut, and its parts counted or encoded apart with the same result."""

from bpe.scanning.scanner cimport PATTERN_JOINS, PATTERN_NONE, ScannedPattern, number_of, scan_cut

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef enum:
    SIGNAL_BYTES = 1 << 24      # of a text that are searched between two looks for a signal


def safe_cut(const uint8_t[::1] text not None, size_t at, int scanner, SpecialTokens special not None):
    """The first position from `at` on where `text` can be cut without changing counts or ids, or its length.

    That is a position where a pretoken surely ends (see scan_cut) and which no special token has inside it. Whatever
    may follow the text changes none of this, as long as the position is `special.longest` bytes from its end. A scanner
    of register_joins() has no cut right after a special token either: a space may have to be put there. Where no
    position can be told from the text around it (no split, or a pattern that no scanner serves: -1), a special token
    begins there, which splits the text before any pattern does.

    Raises:
        KeyError: `scanner` is the number of no scanner.
    """
    cdef size_t size = text.shape[0]
    if scanner >= 0:
        number_of(scanner)
    if size == 0:
        return 0
    with nogil:
        at = find_safe_cut(&text[0], size, at, scanner, special)
    return at


cdef size_t find_safe_cut(
    const uint8_t *text, size_t size, size_t at, int scanner, SpecialTokens special
) except? <size_t> -1 nogil:
    """safe_cut() of a text of `size` bytes."""
    cdef bint unscanned = scanner < 0 or scanner == PATTERN_NONE
    # What begins in the last bytes of a part is searched again with the next one: a character or a special token may
    # go on there.
    cdef size_t again = special.longest if unscanned else 4
    cdef size_t step = SIGNAL_BYTES + again, stop
    while at < size:
        stop = at + step if size - at > step else size
        if unscanned:
            at = special.find(text, stop, at if at else 1).begin
        else:
            at = scan_cut(<ScannedPattern> scanner, text, stop, at)
        if at >= size:
            return size
        if at == stop:
            at -= again
            with gil:
                PyErr_CheckSignals()
        elif special.straddles(text, size, at) or (scanner >= PATTERN_JOINS and special.ends_at(text, at)):
            at += 1
        else:
            return at
    return size
