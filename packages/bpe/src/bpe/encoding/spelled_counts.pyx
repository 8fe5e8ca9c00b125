"""Pretokens counted as the symbols that a list of merges makes of them: where merging goes on in longer pretokens.

SuperBPE's second pretokens are stretches of sentences, most of them different. Each is cut up between two bytes that no
token has side by side: no merge goes on across such a place, so that the pieces, which are words as a rule, merge to the
symbols that they have in the whole, and nearly all of them are in the encoder's cache.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from bpe.counting.pretoken_counts cimport PretokenCounts
from bpe.encoding.cache cimport Cache
from bpe.encoding.encoder cimport Encoder
from bpe.scanning.scanner cimport SCAN_ENDS, ScannedPattern, Scanner, scan_block, scan_start
from bpe.scanning.special_tokens cimport Hit, SpecialTokens

cdef enum:
    PIECES = 1 << 10            # that are encoded together


cdef class SpelledCounts(PretokenCounts):
    """A multiset of pretokens, each an array of symbols (uint32). spell_by() comes first.

    Attributes:
        text_bytes: Bytes of the text that was counted.
    """

    cdef Encoder encoder
    cdef uint8_t beside[1 << 16]    # by two bytes: 1 if a token has them side by side
    cdef readonly size_t text_bytes

    def spell_by(self, Encoder encoder not None, list tokens not None):
        """Set the encoder, whose ids are the symbols, and which has an id for every byte. tokens: those of the ids."""
        cdef const uint8_t[::1] token
        cdef size_t i
        self.encoder = encoder
        for token in tokens:
            for i in range(1, <size_t> token.shape[0]):
                self.beside[<size_t> token[i - 1] << 8 | token[i]] = 1

    def count(self, const uint8_t[::1] text not None, ScannedPattern scanner, SpecialTokens special not None):
        """Count the pretokens of `text` between the special tokens; releases the GIL. `scanner` is a scanner_of()."""
        cdef Cache cache = self.encoder.pool.take()
        try:
            if text.shape[0]:
                with nogil:
                    self.add_spelled(cache, &text[0], text.shape[0], scanner, special)
        finally:
            self.encoder.pool.give(cache)

    def count_pieces(self, pieces):
        """Count an iterable of pretokens (bytes)."""
        cdef Cache cache = self.encoder.pool.take()
        cdef const uint8_t[::1] piece
        try:
            for piece in pieces:
                if piece.shape[0]:
                    self.add_pretoken(cache, &piece[0], 0, piece.shape[0], piece.shape[0])
        finally:
            self.encoder.pool.give(cache)

    cdef int add_spelled(
        self, Cache cache, const uint8_t *text, size_t size, ScannedPattern pattern, SpecialTokens special
    ) except -1 nogil:
        cdef Scanner scanner
        cdef Hit hit
        cdef size_t ends[SCAN_ENDS]
        cdef size_t at = 0, count, begin, i
        while at < size:
            hit = special.find(text, size, at)
            scan_start(&scanner, pattern, text + at, hit.begin - at)
            begin = 0
            while True:
                count = scan_block(&scanner, ends)
                if count == 0:
                    break
                for i in range(count):
                    self.add_pretoken(cache, text + at, begin, ends[i], size - at)
                    begin = ends[i]
            at = hit.end
        return 0

    cdef int add_pretoken(
        self, Cache cache, const uint8_t *text, size_t begin, size_t end, size_t size
    ) except -1 nogil:
        """Count the pretoken text[begin:end]; `size` is the text's."""
        cdef size_t ends[PIECES + 1]
        cdef size_t pieces = 0, i, first = begin, symbols_end
        cache.ids.size = 0
        for i in range(begin + 1, end):
            ends[pieces] = i
            pieces += not self.beside[<size_t> text[i - 1] << 8 | text[i]]
            if pieces == PIECES:
                self.encoder.encode_pretokens(cache, text, ends, pieces, first, size, &cache.ids)
                first, pieces = i, 0
        ends[pieces] = end
        self.encoder.encode_pretokens(cache, text, ends, pieces + 1, first, size, &cache.ids)
        self.text_bytes += end - begin
        symbols_end = cache.ids.size * sizeof(uint32_t)
        self.add(<const uint8_t *> cache.ids.ids, &symbols_end, 1, 0, symbols_end)
        cache.ids.size = 0
        return 0
