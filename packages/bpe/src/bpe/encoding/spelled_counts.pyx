"""Pretokens counted as the symbols that a list of merges makes of them: where merging goes on in longer pretokens.

SuperBPE's second pretokens are stretches of sentences, most of them different. Each is cut up between two bytes that
no token has side by side: no merge goes on across such a place, so that the pieces, which are words as a rule, merge
to the symbols that they have in the whole, and nearly all of them are in the encoder's cache.

BoundlessBPE's are runs of words, of which only those that are one symbol each, and that have a letter, can be joined. A
run is cut up at the other words, and what is left of one symbol is not counted.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free

from bpe.counting.pretoken_counts cimport PretokenCounts
from bpe.encoding.cache cimport Scratch
from bpe.encoding.encoder cimport Encoder
from bpe.encoding.ids cimport Ids, free_ids, reserve
from bpe.native.memory cimport checked_malloc
from bpe.scanning.scanner cimport SCAN_ENDS, ScannedPattern, Scanner, scan_block, scan_start

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
    cdef uint32_t *sizes            # of the token of each symbol, in bytes
    cdef uint8_t *is_word           # by symbol: whether its token has a letter
    cdef int word_scanner
    cdef readonly size_t text_bytes

    def __dealloc__(self):
        free(self.sizes)
        free(self.is_word)

    def spell_by(self, Encoder encoder not None, list tokens not None, int word_scanner=-1):
        """Set the encoder, whose ids are the symbols, and which has an id for every byte.

        tokens: those of the ids. word_scanner: That of the words of a run, if pretokens are runs of words; else -1.
        """
        cdef const uint8_t[::1] token
        cdef size_t i
        self.encoder, self.scratch, self.word_scanner = encoder, encoder.cache.take(), word_scanner
        self.sizes = <uint32_t *> checked_malloc(len(tokens) * sizeof(uint32_t))
        self.is_word = <uint8_t *> checked_malloc(len(tokens))
        for number, token in enumerate(tokens):
            self.sizes[number] = <uint32_t> token.shape[0]
            self.is_word[number] = word_scanner >= 0 and has_letter(bytes(token))
            for i in range(1, <size_t> token.shape[0]):
                self.beside[<size_t> token[i - 1] << 8 | token[i]] = 1

    cdef int add(
        self, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size
    ) except -1 nogil:
        """Count the pretokens that end at ends[:count], the first from `begin` on. `text` has `size` bytes."""
        cdef size_t i
        for i in range(count):
            self.text_bytes += ends[i] - begin
            if self.word_scanner >= 0:
                self.add_run(text + begin, ends[i] - begin)
            else:
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
        return self.add_symbols(self.scratch.ids.ids, self.scratch.ids.size)

    cdef int add_run(self, const uint8_t *text, size_t size) except -1 nogil:
        """Count the parts of a run of words that are one symbol each."""
        cdef Scanner scanner
        cdef size_t ends[SCAN_ENDS]
        cdef size_t at = 0, count, i, k, length, spelled
        cdef uint32_t symbol
        cdef Ids words
        words.ids, words.size, words.room, words.mapped = NULL, 0, 0, 0
        scan_start(&scanner, <ScannedPattern> self.word_scanner, text, size)
        try:
            while True:
                count = scan_block(&scanner, ends)
                if count == 0:
                    break
                self.scratch.ids.size = k = 0
                self.encoder.encode_pretokens(self.scratch, text, ends, count, at, size, &self.scratch.ids)
                reserve(&words, count)
                for i in range(count):
                    length, spelled, symbol = ends[i] - at, 0, self.scratch.ids.ids[k]
                    if self.sizes[symbol] == length and self.is_word[symbol]:
                        words.ids[words.size] = symbol
                        words.size += 1
                    else:
                        self.add_symbols(words.ids, words.size)
                        words.size = 0
                    while spelled < length:
                        spelled += self.sizes[self.scratch.ids.ids[k]]
                        k += 1
                    at = ends[i]
            self.add_symbols(words.ids, words.size)
        finally:
            free_ids(&words)
        return 0

    cdef int add_symbols(self, const uint32_t *symbols, size_t count) except -1 nogil:
        cdef size_t end = count * sizeof(uint32_t)
        if count > (self.word_scanner >= 0):    # a run of one word has nothing to join
            PretokenCounts.add(self, <const uint8_t *> symbols, &end, 1, 0, end)
        return 0


def has_letter(token):
    """True if a token is UTF-8 and has a letter."""
    try:
        return any(map(str.isalpha, token.decode()))
    except UnicodeDecodeError:
        return False
