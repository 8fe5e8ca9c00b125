# The symbols: those that merging starts from, and one for each merge. A symbol is a number; here are the bytes it
# stands for.

ctypedef struct SymbolTable:
    size_t count                # how many there are
    size_t most                 # how many there will be at most
    size_t room                 # how many the arrays have room for
    uint8_t *bytes              # of all symbols, one after another
    size_t bytes_size, bytes_room
    size_t *begin               # where the bytes of each symbol begin
    uint32_t *size              # how many bytes each has
    uint64_t *head              # the first eight as a big-endian number, zeros where there are fewer
    uint32_t *words             # how many words each has (see superwords.pxi)
    uint32_t *width             # number of cells of each in a word (see words.pxi)
    size_t widest               # the most of these


cdef uint8_t *reserve_symbol(SymbolTable *symbols, size_t size) except NULL nogil:
    """Room for one more symbol of `size` bytes; where these go."""
    cdef size_t room
    if symbols.bytes_size + size > symbols.bytes_room:
        room = (symbols.bytes_size + size) * 2
        symbols.bytes = <uint8_t *> checked_realloc(symbols.bytes, room)
        symbols.bytes_room = room
    if symbols.count == symbols.room:
        room = min(symbols.most, symbols.count * 2 + 512)
        symbols.begin = <size_t *> checked_realloc(symbols.begin, room * sizeof(size_t))
        symbols.size = <uint32_t *> checked_realloc(symbols.size, room * sizeof(uint32_t))
        symbols.head = <uint64_t *> checked_realloc(symbols.head, room * sizeof(uint64_t))
        symbols.words = <uint32_t *> checked_realloc(symbols.words, room * sizeof(uint32_t))
        symbols.width = <uint32_t *> checked_realloc(symbols.width, room * sizeof(uint32_t))
        symbols.room = room
    return symbols.bytes + symbols.bytes_size


cdef void add_symbol(SymbolTable *symbols, size_t size) noexcept nogil:
    """The symbol whose `size` bytes have been put where reserve_symbol() says."""
    cdef const uint8_t *token = symbols.bytes + symbols.bytes_size
    cdef uint64_t head = 0
    cdef size_t i
    for i in range(8):
        head = head << 8 | (token[i] if i < size else 0)
    symbols.begin[symbols.count] = symbols.bytes_size
    symbols.size[symbols.count] = <uint32_t> size
    symbols.head[symbols.count] = head
    symbols.words[symbols.count] = words_in(token, size)
    symbols.width[symbols.count] = 1
    symbols.bytes_size += size
    symbols.count += 1


cdef int join_symbols(SymbolTable *symbols, uint32_t left, uint32_t right) except -1 nogil:
    """A new symbol of two."""
    cdef size_t size = symbols.size[left], both = size + symbols.size[right]
    cdef uint8_t *token = reserve_symbol(symbols, both)
    memcpy(token, symbols.bytes + symbols.begin[left], size)
    memcpy(token + size, symbols.bytes + symbols.begin[right], both - size)
    add_symbol(symbols, both)
    symbols.width[symbols.count - 1] = symbols.width[left] + symbols.width[right]
    symbols.widest = max(symbols.widest, <size_t> symbols.width[symbols.count - 1])
    return 0


cdef inline int compare_symbols(const SymbolTable *symbols, uint32_t a, uint32_t b) noexcept nogil:
    """The order of the bytes of two symbols: above, below or at 0, as memcmp()."""
    cdef int order
    if a == b:
        return 0
    if symbols.head[a] != symbols.head[b]:
        return 1 if symbols.head[a] > symbols.head[b] else -1
    order = memcmp(
        symbols.bytes + symbols.begin[a], symbols.bytes + symbols.begin[b], min(symbols.size[a], symbols.size[b])
    )
    if order:
        return order
    return (symbols.size[a] > symbols.size[b]) - (symbols.size[a] < symbols.size[b])


cdef void free_symbols(SymbolTable *symbols) noexcept nogil:
    free(symbols.bytes)
    free(symbols.begin)
    free(symbols.size)
    free(symbols.head)
    free(symbols.words)
    free(symbols.width)
