# Two things that only SentencePiece-style tokenizers do: put a space in front of a text, and give the ids of the bytes
# of a character that has no token.

cdef const char *MARK = b"\xe2\x96\x81"     # the ▁ of its files, which is a space


cdef Py_ssize_t encode_with_space(
    Encoder encoder, Scratch scratch, const uint8_t *text, size_t size, Ids *out
) except -1 nogil:
    """Append the ids of the first pretoken of a text with a space in front, where it is given one.

    Returns how many bytes of the text that was: none where there is no space, or it is a pretoken of its own.
    """
    cdef Scanner scanner
    cdef size_t ends[SCAN_ENDS]
    cdef uint8_t room[256]
    cdef uint8_t *spaced = room
    cdef size_t end = 0
    cdef bint has_space = size and (text[0] == 32 or (size >= 3 and memcmp(text, MARK, 3) == 0))
    if has_space and encoder.space < ALWAYS_SPACE:
        return 0
    if size and not (has_space and splits_at_every_space(<ScannedPattern> encoder.scanner)):
        scan_start(&scanner, <ScannedPattern> encoder.scanner, text, size)
        scan_block(&scanner, ends)
        end = ends[0]
    if end >= sizeof(room):
        spaced = <uint8_t *> checked_malloc(end + 1)
    spaced[0] = 32
    memcpy(spaced + 1, text, end)
    ends[0] = end + 1
    try:
        encoder.encode_pretokens(scratch, spaced, ends, 1, 0, end + 1, out)
    finally:
        if spaced != room:
            free(spaced)
    return end


cdef int take_beginnings(Encoder encoder, dict stands_for, Ranks ranks, const uint32_t[::1] id_of_symbol) except -1:
    """Note which ids stand for the beginnings of characters. ValueError where one has more or fewer ids than bytes."""
    cdef size_t i, k
    encoder.first_beginning = min(stands_for)
    encoder.byte_ids = <uint32_t *> checked_malloc(4 * len(stands_for) * sizeof(uint32_t))
    for i in range(<size_t> len(stands_for)):
        spelled = stands_for[encoder.first_beginning + i]
        if not 2 <= len(spelled) <= 3:
            raise ValueError(f"expected two or three ids that an id stands for, got {len(spelled)}")
        encoder.byte_ids[4 * i] = len(spelled)
        for k in range(<size_t> len(spelled)):
            encoder.byte_ids[4 * i + 1 + k] = spelled[k]
    for i in range(ranks.symbols):          # spell_beginnings() has room for one id for each byte
        if id_of_symbol[i] >= encoder.first_beginning:
            spelled = stands_for.get(id_of_symbol[i], ())
            if ranks.size[i] != <size_t> len(spelled):
                raise ValueError(f"id {id_of_symbol[i]} of {ranks.size[i]} bytes stands for {len(spelled)} ids")
    return 0


cdef size_t spell_beginnings(Encoder encoder, uint32_t *ids, size_t count) noexcept nogil:
    """Replace each id that stands for the beginning of a character by its bytes' ids; returns their new number.

    There is room for as many ids as there are bytes, and such an id stands for one id for each byte of its symbol.
    """
    cdef size_t i = count, more = 0, k
    cdef const uint32_t *spelled
    for k in range(count):
        if ids[k] >= encoder.first_beginning:
            more += encoder.byte_ids[4 * (ids[k] - encoder.first_beginning)] - 1
    count += more
    while more:                         # from the end, where what moves finds room
        i -= 1
        if ids[i] < encoder.first_beginning:
            ids[i + more] = ids[i]
            continue
        spelled = &encoder.byte_ids[4 * (ids[i] - encoder.first_beginning)]
        more -= spelled[0] - 1
        for k in range(spelled[0]):
            ids[i + more + k] = spelled[1 + k]
    return count
