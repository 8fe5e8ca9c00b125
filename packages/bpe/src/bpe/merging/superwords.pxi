# The rules for tokens of several words (SuperBPE, Liu et al. 2025, arXiv 2503.13423): a bound on the number of words,
# which are separated by ASCII white space, and no token in which a space follows a colon, as in "Answer: ".

cdef inline bint is_white(uint8_t byte) noexcept nogil:
    return byte == 0x20 or 9 <= byte <= 13


cdef uint32_t words_in(const uint8_t *text, size_t size) noexcept nogil:
    """Number of words in a text; more than any bound where a space follows a colon."""
    cdef uint32_t words = 0
    cdef size_t i
    for i in range(size):
        if i > 0 and text[i - 1] == 0x3A and text[i] == 0x20:
            return <uint32_t> 1 << 30
        words += not is_white(text[i]) and (i == 0 or is_white(text[i - 1]))
    return words


cdef bint may_be_superword(const SymbolTable *symbols, uint32_t left, uint32_t right, size_t most_words) noexcept nogil:
    """True if the token of two symbols keeps the rules."""
    cdef uint8_t last = symbols.bytes[symbols.begin[left] + symbols.size[left] - 1]
    cdef uint8_t first = symbols.bytes[symbols.begin[right]]
    cdef bint one_word = not is_white(last) and not is_white(first)
    if last == 0x3A and first == 0x20:
        return False
    return <size_t> symbols.words[left] + symbols.words[right] - one_word <= most_words
