# Scanners that are made while the program runs: by automata, and between characters that no token joins.


class OwnScanner(int):
    """Number of a scanner made while the program runs, which is unmade with the last reference to its number.

    Whoever scans keeps this object: a copy of the number as a plain int does not keep the scanner.
    """

    def __del__(self):
        cdef size_t i = <size_t> <int> self
        with cython.critical_section(own_guard):
            if i >= PATTERN_JOINS:
                free_joins(joins_of[i - PATTERN_JOINS])
                joins_of[i - PATTERN_JOINS] = NULL
            else:
                free_splitter(splitters[i - PATTERN_SPLITTER])
                splitters[i - PATTERN_SPLITTER] = NULL

    def __reduce__(self):
        raise TypeError("the number of a scanner has no meaning in another process: pickle the pattern")


cdef object put(void **table, void *entry, int first):
    """The number of an entry put into a table, whose number 0 is the scanner `first`."""
    cdef int i
    with cython.critical_section(own_guard):
        for i in range(MOST_OWN):
            if table[i] == NULL:
                number = OwnScanner(first + i)
                table[i] = entry
                return number
    raise ValueError(f"{MOST_OWN:,} split patterns of their own are in use: let go of tokenizers that are not needed")


def register_splitter(stages):
    """The number of a new scanner that splits by automata, one after another.

    stages: for each (class_count, of_bytes, of_byte, page, of_code, table, cuts), as automaton.h has them.
    """
    cdef splitter *entry
    cdef automaton *stage
    cdef const uint8_t[::1] of_byte, page, of_code, table, cuts
    cdef uint32_t i
    if not 0 < len(stages) <= MOST_STAGES:
        raise ValueError(f"{len(stages)} automata in sequence; expected 1 to {MOST_STAGES}")
    entry = <splitter *> calloc(1, sizeof(splitter))
    if entry == NULL:
        raise MemoryError
    try:
        entry.stages = len(stages)
        for i in range(entry.stages):
            stage = &entry.stage[i]
            stage.class_count, stage.of_bytes, of_byte, page, of_code, table, cuts = stages[i]
            memcpy(stage.of_byte, &of_byte[0], 256)
            stage.page = <uint16_t *> copied(&page[0], page.shape[0])
            stage.of_code = <uint8_t *> copied(&of_code[0], of_code.shape[0])
            stage.table = <uint16_t *> copied(&table[0], table.shape[0])
            stage.cuts = <uint8_t *> copied(&cuts[0], cuts.shape[0])
            if not (stage.page and stage.of_code and stage.table and stage.cuts):
                raise MemoryError
        number = put(<void **> splitters, entry, PATTERN_SPLITTER)
        entry = NULL
        return number
    finally:
        free_splitter(entry)


def register_joins(tokens, bint every_space):
    """The number of a scanner that splits where no token joins two characters, and at every space if `every_space`."""
    cdef joins *entry
    cdef size_t bits = FEWEST_BITS
    while bits < MOST_BITS and (<size_t> 1 << bits) < BITS_OF_BYTE * sum(map(len, tokens)):
        bits += 1
    entry = <joins *> calloc(1, sizeof(joins))
    if entry == NULL:
        raise MemoryError
    try:
        entry.bits = <uint64_t *> calloc((<size_t> 1 << bits) // 8, 1)
        if entry.bits == NULL:
            raise MemoryError
        entry.shift, entry.every_space = 64 - bits, every_space
        for token in tokens:
            add_joins(entry, <const uint8_t *> <const char *> (<bytes> token), len(token))
        number = put(<void **> joins_of, entry, PATTERN_JOINS)
        entry = NULL
        return number
    finally:
        free_joins(entry)


cdef void free_splitter(splitter *entry) noexcept nogil:
    cdef uint32_t i
    if entry == NULL:
        return
    for i in range(entry.stages):
        free(entry.stage[i].page)
        free(entry.stage[i].of_code)
        free(entry.stage[i].table)
        free(entry.stage[i].cuts)
    free(entry)


cdef void free_joins(joins *entry) noexcept nogil:
    if entry != NULL:
        free(entry.bits)
        free(entry)
