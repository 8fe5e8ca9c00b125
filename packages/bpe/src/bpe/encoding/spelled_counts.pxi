# Pretokens counted as the symbols that a list of merges makes of them: where merging goes on in longer pretokens.
#
# SuperBPE's second pretokens are stretches of sentences, most of them different. Each is cut up between two bytes that
# no token has side by side: no merge goes on at such a border, so that the pieces, which are words as a rule, merge
# to the symbols that they have in the whole, and nearly all of them are in the encoder's cache.

cdef enum:
    PIECES = 1 << 10            # that are encoded together


cdef class SpelledCounts(PretokenCounts):
    """A multiset of pretokens, each an array of symbols (uint32). spell_by() comes first.

    Attributes:
        text_bytes: Bytes of the text that was counted.
    """

    cdef Encoder encoder
    cdef Scratch scratch        # of this encoder
    cdef uint8_t beside[1 << 16]    # by two bytes: 1 if a token has them side by side
    cdef readonly size_t text_bytes

    def spell_by(self, Encoder encoder not None, list tokens not None):
        """Set the encoder. Its ids are the symbols, and every byte has one. tokens: the bytes of each id."""
        cdef const uint8_t[::1] token
        cdef size_t i
        self.encoder, self.scratch = encoder, encoder.cache.take()
        for token in tokens:
            for i in range(1, <size_t> token.shape[0]):
                self.beside[<size_t> token[i - 1] << 8 | token[i]] = 1

    cdef int add(
        self, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size
    ) except -1 nogil:
        """Count the pretokens that end at ends[:count], the first from `begin` on. `text` has `size` bytes."""
        cdef size_t i
        for i in range(count):
            self.text_bytes += ends[i] - begin
            self.add_pieces(text, begin, ends[i], size)
            begin = ends[i]
        return 0

    cdef int add_pieces(self, const uint8_t *text, size_t begin, size_t end, size_t size) except -1 nogil:
        """Count the pretoken text[begin:end], cut up where no merge goes on."""
        cdef size_t ends[PIECES + 1]
        cdef size_t pieces = 0, i, first = begin
        self.scratch.ids.size = 0
        for i in range(begin + 1, end):
            ends[pieces] = i
            pieces += not self.beside[<size_t> text[i - 1] << 8 | text[i]]
            if pieces == PIECES:
                self.encoder.encode_pretokens(self.scratch, text, ends, pieces, first, size, &self.scratch.ids)
                first, pieces = i, 0
        ends[pieces] = end
        self.encoder.encode_pretokens(self.scratch, text, ends, pieces + 1, first, size, &self.scratch.ids)
        first = self.scratch.ids.size * sizeof(uint32_t)
        if first:
            PretokenCounts.add(self, <const uint8_t *> self.scratch.ids.ids, &first, 1, 0, first)
        return 0
