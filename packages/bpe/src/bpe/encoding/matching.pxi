# The tables of matches.h, made from symbols and their merges when a long pretoken of such scripts is to be merged.


cdef int make_matches(Ranks ranks) except -1:
    """Make ranks.matches; left NULL where there are too many tokens."""
    cdef Matches *matches = <Matches *> checked_block(sizeof(Matches))
    cdef uint64_t *entries = NULL           # of tables.pairs, in the order of ranks
    cdef uint64_t *wide = NULL              # a bit for each symbol: it is a byte or has such a character
    cdef uint64_t *parts = NULL             # and one: it is a byte or has a tree
    cdef Tree *trees = NULL                 # by symbol
    cdef uint32_t *number_of = NULL         # by symbol
    cdef size_t merges = ranks.symbols if ranks.tables.made == NULL else ranks.merges, count
    try:
        entries = <uint64_t *> checked_block(merges * sizeof(uint64_t))
        wide = <uint64_t *> checked_block((ranks.symbols // 64 + 1) * sizeof(uint64_t))
        parts = <uint64_t *> checked_block((ranks.symbols // 64 + 1) * sizeof(uint64_t))
        trees = <Tree *> checked_block(ranks.symbols * sizeof(Tree))
        number_of = <uint32_t *> checked_block(ranks.symbols * sizeof(uint32_t))
        count = list_merges(ranks, entries, wide, merges)
        find_trees(ranks, entries, count, trees, wide, parts)
        if number_tokens(ranks, matches, entries, count, trees, parts, number_of) and make_tree(ranks, matches):
            ranks.matches = matches
            matches = NULL
    finally:
        free_block(entries, merges * sizeof(uint64_t))
        free_block(wide, (ranks.symbols // 64 + 1) * sizeof(uint64_t))
        free_block(parts, (ranks.symbols // 64 + 1) * sizeof(uint64_t))
        free_block(trees, ranks.symbols * sizeof(Tree))
        free_block(number_of, ranks.symbols * sizeof(uint32_t))
        free_matches(matches)
    return 0


cdef size_t list_merges(Ranks ranks, uint64_t *entries, uint64_t *wide, size_t merges) noexcept:
    """List the merges of bytes and symbols with a character of three bytes or more, and set the bits of these."""
    cdef const MergeTables *tables = &ranks.tables
    cdef uint32_t left, right, merge
    cdef uint64_t entry, high
    cdef size_t i, k, count = 0
    for i in range(ranks.symbols):
        for k in range(0, ranks.size[i], 8):
            high = 0
            memcpy(&high, ranks.text[i] + k, min(<size_t> 8, ranks.size[i] - k))
            if high & high << 1 & high << 2 & 0x8080808080808080:       # bytes from 0xE0 on have the three highest bits
                set_bit(wide, i)
                break
    for i in range(256):
        set_bit(wide, tables.symbol_of_byte[i])
    for i in range(tables.mask + 1):
        if tables.pairs[i] != FREE:
            merge = merge_of_entry(tables, tables.pairs[i])
            left, right = left_of_entry(tables, tables.pairs[i]), right_of_entry(tables, tables.pairs[i])
            if get_bit(wide, left) and get_bit(wide, right):
                entries[merge] = ~tables.pairs[i]
    for i in range(merges):
        entry = entries[i]
        entries[count] = ~entry
        count += entry != 0
    return count


cdef void find_trees(
    Ranks ranks, const uint64_t *entries, size_t count, Tree *trees, const uint64_t *wide, uint64_t *parts
) noexcept:
    """Find the trees of symbols with a character of three bytes whose every merge comes after its parts' merges."""
    cdef const MergeTables *tables = &ranks.tables
    cdef uint32_t left, right, merge, product
    cdef size_t i
    for i in range(256):
        set_bit(parts, tables.symbol_of_byte[i])
    for i in range(count):
        left, right = left_of_entry(tables, entries[i]), right_of_entry(tables, entries[i])
        merge = merge_of_entry(tables, entries[i])
        product = made_by(tables, merge)
        if (
            get_bit(parts, left) and get_bit(parts, right) and get_bit(wide, product)
            and not get_bit(parts, product)
            and ranks.size[product] == ranks.size[left] + ranks.size[right] and ranks.size[product] <= MATCHED_BYTES
            and lead_to(tables, trees, left, right)
        ):
            trees[product].left, trees[product].right, trees[product].rank = left, right, merge + 1
            set_bit(parts, product)


cdef int number_tokens(
    Ranks ranks, Matches *matches, const uint64_t *entries, size_t count, const Tree *trees, const uint64_t *parts,
    uint32_t *number_of
) except -1:
    """Number the bytes and the symbols with trees, and fill matches.pairs, splits, symbol_of and least.

    A merge of such parts that makes another symbol has a number too, in the order of ranks, but no split.
    """
    cdef const MergeTables *tables = &ranks.tables
    cdef MergeTables *pairs = &matches.pairs
    cdef uint32_t left, right, merge, product, number
    cdef size_t i, at, slots = 64
    for i in range(256):
        number_of[tables.symbol_of_byte[i]] = <uint32_t> i
    number = BYTES
    for i in range(count):
        product = made_by(tables, merge_of_entry(tables, entries[i]))
        if trees[product].rank == merge_of_entry(tables, entries[i]) + 1:
            number_of[product] = number
        number += 1
    if number > MOST_NODES // 2:
        return False
    take_pairs(pairs, number, number)
    matches.numbers = number
    while slots < 5 * <size_t> number // 2:
        slots *= 2
    take_tokens(matches, slots)
    memset(matches.least, 0xFF, BYTE_PAIRS * sizeof(uint32_t))
    for i in range(256):
        matches.splits[i].size, matches.symbol_of[i] = 1, tables.symbol_of_byte[i]
    number = BYTES
    for i in range(count):
        left, right = left_of_entry(tables, entries[i]), right_of_entry(tables, entries[i])
        merge = merge_of_entry(tables, entries[i])
        product = made_by(tables, merge)
        if get_bit(parts, left) and get_bit(parts, right) and trees[product].rank in (0, merge + 1):
            add_merge(pairs, number_of[left], number_of[right], number)
            at = byte_pair_at(ranks.text[left][ranks.size[left] - 1], ranks.text[right][0])
            matches.least[at] = min(matches.least[at], number)
            if trees[product].rank:
                matches.splits[number].left, matches.splits[number].right = number_of[left], number_of[right]
                matches.splits[number].size, matches.symbol_of[number] = ranks.size[product], product
        number += 1
    return True


cdef bint make_tree(Ranks ranks, Matches *matches) except -1:
    """Put the tokens into matches.edges and first, shorter ones first; returns False for too many nodes."""
    cdef size_t begins[MATCHED_BYTES + 2]
    cdef uint32_t *order = NULL
    cdef uint32_t symbol, number
    cdef size_t i
    memset(begins, 0, sizeof(begins))
    for i in range(matches.numbers):
        begins[matches.splits[i].size + 1] += 1
    for i in range(MATCHED_BYTES + 1):
        begins[i + 1] += begins[i]
    matches.nodes = matches.numbers
    memset(matches.edges, 0xFF, (matches.edge_mask + 1) * sizeof(uint64_t))
    memset(matches.first, 0xFF, FIRST_CHARACTERS * sizeof(uint32_t))
    order = <uint32_t *> checked_malloc(matches.numbers * sizeof(uint32_t))
    try:
        for i in range(matches.numbers):
            order[begins[matches.splits[i].size]] = <uint32_t> i
            begins[matches.splits[i].size] += 1
        for number in order[:matches.numbers]:
            symbol = matches.symbol_of[number]
            if matches.splits[number].size and not add_match(matches, number, ranks.text[symbol], ranks.size[symbol]):
                return False
    finally:
        free(order)
    return True


cdef int take_tokens(Matches *matches, size_t slots) except -1:
    """Room for the tokens of matches.numbers, and for as many edges as slots."""
    matches.edge_mask, matches.edge_shift = slots - 1, 64 - count_trailing_zeros(slots)
    matches.splits = <Split *> checked_block(matches.numbers * sizeof(Split))
    matches.symbol_of = <uint32_t *> checked_block(matches.numbers * sizeof(uint32_t))
    matches.least = <uint32_t *> checked_block(BYTE_PAIRS * sizeof(uint32_t))
    matches.first = <uint32_t *> checked_block(FIRST_CHARACTERS * sizeof(uint32_t))
    matches.edges = <uint64_t *> checked_block(slots * sizeof(uint64_t))
    matches.token_of = <uint32_t *> checked_block(matches.numbers * sizeof(uint32_t))
    return 0


cdef void free_matches(Matches *matches) noexcept nogil:
    if matches == NULL:
        return
    free_block(matches.edges, (matches.edge_mask + 1) * sizeof(uint64_t))
    free_block(matches.token_of, matches.numbers * sizeof(uint32_t))
    free_block(matches.first, FIRST_CHARACTERS * sizeof(uint32_t))
    free_block(matches.splits, matches.numbers * sizeof(Split))
    free_block(matches.symbol_of, matches.numbers * sizeof(uint32_t))
    free_block(matches.least, BYTE_PAIRS * sizeof(uint32_t))
    free_pairs(&matches.pairs)
    free_block(matches, sizeof(Matches))
