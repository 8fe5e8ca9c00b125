"""Text to ids: where the pretokens end, the ids of those in the cache, and what the others merge to.

    text                       " The quick brown fox"
      |
      |  scan_block            64 bytes at a time to bit masks: a bit is set where a pretoken begins,  scanner.pyx
      |                        or where one without spaces can be cut into pieces                    cuts.h
      v
    ends of pretokens          4 10 16 20                                 up to 4,160 of them at a time
      |
      |  cache_prepare         the key of each pretoken (its bytes in two words); the hash of the key;
      |                        the slot in the cache that the hash names, prefetched                  cache.h
      v
    a batch of 128 keys        " The" " quick" " brown" " fox"
      |
      |  cache_take            keys compared with those in the cache, ids copied                       cache.h
      v
    ids of those found         383 2068 7586                              of nearly all pretokens of most texts
      |
      |  settle                the others of the batch are looked up once more, or merged, 32 side by side
      |    join, filter, probe     bytes to symbols; pairs looked up in the table of merges            lanes.h
      |    merge_lanes             the pair of the lowest rank first, until none merges                lanes.h
      |    cache_keep              the ids into the cache                                              cache.h
      v
    ids of the batch           383 2068 7586 21831                                                     (GPT-2)

Encoder.encode_pretokens(), below, is the loop that this diagram shows. Two rules make it fast:

* No stage waits for memory. Each works on a whole batch, and prefetches what the next stage will read.
* Few branches depend on the text, as the processor could not predict them. Scanning is arithmetic on masks. A pretoken
  that is in the cache takes one comparison of 16 bytes, one store of 16 bytes and one branch on the number of its ids.
  Merging writes each result to the next free position, and moves that position on only where there was a result.

Texts that are not short, and many texts, are encoded by the loop of batch.pxi, long ones in blocks
(blocks.pxi). Bytes and ASCII are encoded where they lie, other texts as they are converted or copied. The
cache is one for all threads.
"""

from typing import Any
import os

cimport cython

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromUnsignedLong
from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock, PyThread_type_lock,
    WAIT_LOCK
)
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from bpe.encoding.normal_forms import in_form
from bpe.encoding.policy import Special
from bpe.encoding.texts import Text
from bpe.native.lazy_imports import import_lock
from bpe.native.lazy_imports import numpy as np

from bpe.counting.pretoken_counts cimport PretokenCounts
from bpe.native.bytes cimport LONG_KEY, count_trailing_zeros, hash_bytes, packed_key, prefetch
from bpe.native.cpu cimport level_of
from bpe.native.hash_seed cimport hash_seed
from bpe.native.heap cimport pop, push
from bpe.native.memory cimport (
    checked_block, checked_malloc, checked_realloc, checked_sparse_block, free_block, free_sparse_block, grown_block
)
from bpe.native.text cimport (
    LONE, SLACK, TextBuffer, convert_units, lone_surrogate, never_changes, raise_lone_surrogate, room_for
)
from bpe.scanning.safe_cut cimport find_safe_cut
from bpe.scanning.scanner cimport (
    PATTERN_SPLITTER, PATTERN_NONE, SCAN_ENDS, ScannedPattern, Scanner, add_token, add_whole_token, cut_table,
    number_of, scan_block, scan_cut, scan_start, splits_at_every_space
)
from bpe.scanning.special_tokens cimport Hit, Rules, SpecialTokens

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    int PyErr_CheckSignals() except -1
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    MOST_WINDOWS = 8            # of a pretoken that is merged together with others
    SHORT_TEXT = 1 << 12        # bytes of a text that is encoded before another thread could make use of the GIL
    SIGNAL_BYTES = 1 << 24      # of a text that are encoded between two looks for a signal
    SHARED_INTS = 1 << 20       # ids below this have one Python int each, which all lists share (see to_list())

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define SHARES_INTS 0
    #else
    #define SHARES_INTS 1
    #endif
    """
    const bint SHARES_INTS


include "ids.pxi"
include "ranks.pxi"
include "tables.pxi"
include "heap.pxi"
include "cache.pxi"


cdef enum Space:                # texts that get a space in front
    NO_SPACE
    FIRST_SPACE                 # the beginning of a text, unless it is a space
    EACH_SPACE                  # that, and what follows a special or added token, unless it begins with a space
    ALWAYS_SPACE                # the same, also where it begins with a space
    TEXT_SPACE                  # as ALWAYS_SPACE, but nothing after an added token; also a text that begins with one


cdef class Encoder:
    """The merges of a vocabulary, ready to encode.

    Args:
        ranks: Symbols and merges.
        ids: The id of each symbol, an array of uint32.
        scanner: A bpe.patterns.scanner_of().
        cache_bytes: The most that its cache may take.
        space: The texts that are given a space in front: "never" any, "first" a text that does not begin with one,
            "each" such a text and what follows a special token, "always" both, even where they begin with a space,
            "text" as "always", but nothing that follows one of added_ids, and also a text that begins with one.
        cuts: True if pretokens may be cut where no token joins two characters, as cuts.h has it: not where merges make
            other bytes than those they join.
        stands_for: {id: ids}, from two to three, of the last ids, side by side: what they stand for is given instead.

    Raises:
        ValueError: There are not as many ids as symbols, or an id stands for more or fewer ids than its symbol has
            bytes.
        KeyError: `scanner` is the number of no scanner.
    """

    cdef Ranks ranks
    cdef uint32_t *ids          # by symbol; NULL where its number is its id
    cdef uint32_t first_beginning   # ids from it on stand for the beginnings of characters; NONE: there are none
    cdef uint32_t *byte_ids     # how many ids each of these stands for, and which, in four numbers
    cdef Space space
    cdef uint8_t *added         # by id, as far as there are any: whether it is an added token
    cdef size_t added_end
    cdef int scanner
    cdef object scanner_number  # which keeps a scanner of its own
    cdef cut_table *cuts        # where pretokens are cut, or NULL
    cdef Cache cache
    cdef PyObject **ints        # by id, for ids below shared_ints: the Python int, once a list wanted it
    cdef size_t shared_ints

    def __cinit__(
        self, *, Ranks ranks not None, ids, scanner, size_t cache_bytes, bint cuts=True, str space="never",
        dict stands_for=None, added_ids=(),
    ):
        cdef const uint32_t[::1] id_array = ids
        cdef size_t i
        cdef bint others = False
        if <size_t> id_array.shape[0] != ranks.symbols:
            raise ValueError(f"{ranks.symbols} symbols with {id_array.shape[0]} ids; give each its own")
        if scanner >= 0:
            number_of(scanner)
        self.space = <Space> ("never", "first", "each", "always", "text").index(space)
        self.added_end = max(added_ids, default=-1) + 1 if self.space == TEXT_SPACE else 0
        self.added = <uint8_t *> calloc(max(1, self.added_end), 1)
        if self.added == NULL:
            raise MemoryError
        for number in added_ids if self.added_end else ():
            self.added[number] = True
        self.first_beginning = NONE
        if stands_for:
            take_beginnings(self, stands_for, ranks, id_array)
        self.ranks, self.scanner, self.scanner_number = ranks, scanner, scanner
        self.cache = Cache(cache_bytes)
        for i in range(ranks.symbols):
            others = others or id_array[i] != i
            self.shared_ints = max(self.shared_ints, min(<size_t> SHARED_INTS, <size_t> id_array[i] + 1))
        if others:
            self.ids = <uint32_t *> checked_malloc(ranks.symbols * sizeof(uint32_t))
            memcpy(self.ids, &id_array[0], ranks.symbols * sizeof(uint32_t))
        if cuts and ranks.all_bytes and PATTERN_NONE < scanner < PATTERN_SPLITTER:
            self.cuts = make_cuts(ranks)

    def __dealloc__(self):
        cdef size_t i
        free(self.ids)
        free(self.byte_ids)
        free_sparse_block(self.cuts, sizeof(cut_table))
        free(self.added)
        if self.ints != NULL:
            for i in range(self.shared_ints):
                Py_XDECREF(self.ints[i])
            free(self.ints)

    @property
    def cache_bytes(self):
        return self.cache.bytes

    # Pretokens to ids

    cdef int encode_pretokens(
        self, Scratch scratch, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size,
        Ids *out
    ) except -1 nogil:
        """Append the ids of the pretokens that end at ends[:count], the first from `begin` on; `size` is the text's."""
        cdef size_t done = 0
        self.cache.enter(scratch)
        try:
            while done < count:
                done += self.encode_batch(scratch, text, ends + done, count - done, begin, size, out)
                begin = ends[done - 1]
                if cache_calls(&self.cache.table):
                    self.cache.step_aside(scratch)
        finally:
            reader_leaves(scratch.reader)
        return 0

    cdef size_t encode_batch(
        self, Scratch scratch, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size,
        Ids *out
    ) except? 0 nogil:
        """encode_pretokens() of the first of them, at most BATCH; returns how many they are."""
        cdef cache_batch batch
        cdef size_t i = 0, length
        cdef uint32_t *to
        cdef const uint8_t *pretoken
        cdef bint settled = False
        count = min(<size_t> BATCH, count)
        cache_prepare(&self.cache.table, text, size, begin, ends, count, &batch)
        while True:
            reserve(out, (count - i) * (INLINE_IDS + 1) + COPIED_IDS)
            to = out.ids + out.size
            i = cache_take(&self.cache.table, text, &batch, i, count, &to, out.ids + out.room)
            out.size = to - out.ids
            if i == count:
                return count
            if not settled:             # once for a batch: all that are missing
                settled = True
                self.settle(scratch, text, &batch, i, count)
                continue
            pretoken, length = text + batch.begins[i], batch.begins[i + 1] - batch.begins[i]
            # either another pretoken has pushed it into another slot, or it is too long for a lane
            if append_ids(&self.cache.table, batch.keys[i], pretoken, out):
                i += 1
                continue
            if length > LONGEST:
                reader_leaves(scratch.reader)   # it is not kept, and may take long
            self.encode_one(scratch, batch.keys[i], pretoken, length, out)
            i += 1
            if length > LONGEST:
                self.cache.enter(scratch)
                return i                # the sets of the rest may have moved

    cdef int settle(
        self, Scratch scratch, const uint8_t *text, cache_batch *batch, size_t i, size_t count
    ) except -1 nogil:
        """Find the pretokens of a batch that are not in their first sets: in their second sets, or by merging them.

        It begins at number i of the batch. batch.sets then names the sets to look in.
        """
        cdef Piece pieces[LANES]
        cdef size_t numbers[LANES]
        cdef size_t missing[BATCH]
        cdef size_t waiting = 0, missed = 0, size, windows, n, k
        cdef const uint8_t *pretoken
        cdef cache_slot *second
        for i in range(i, count):
            missing[missed] = i
            missed += not cache_holds(batch.sets[i], batch.keys[i])
        for n in range(missed):
            if cache_full(batch.sets[missing[n]]):
                prefetch(cache_second_set(&self.cache.table, batch.keys[missing[n]]))
        need_lanes(&scratch.work)
        for n in range(missed):
            i = missing[n]
            if cache_full(batch.sets[i]):
                second = cache_second_set(&self.cache.table, batch.keys[i])
                if cache_holds(second, batch.keys[i]):
                    batch.sets[i] = second
                    continue
            pretoken, size = text + batch.begins[i], batch.begins[i + 1] - batch.begins[i]
            if size <= self.ranks.longest_whole and self.ranks.find_whole(pretoken, size) != NONE:
                continue
            windows = 1 if size <= LANE_BYTES else 1 + (size - WIDE_OVERLAP - 1) // WINDOW_STEP
            if windows > MOST_WINDOWS or not self.ranks.spelled(pretoken, size):
                continue
            if waiting + windows > LANES:
                merge_together(self, scratch, batch, pieces, numbers, waiting)
                waiting = 0
            for k in range(windows):
                pieces[waiting].text = pretoken + k * WINDOW_STEP
                pieces[waiting].size = min(<size_t> LANE_BYTES, size - k * WINDOW_STEP)
                numbers[waiting] = i
                waiting += 1
        merge_together(self, scratch, batch, pieces, numbers, waiting)
        return 0

    cdef int encode_one(
        self, Scratch scratch, packed_key key, const uint8_t *text, size_t size, Ids *out
    ) except -1 nogil:
        """Merge one pretoken of any size, append its ids, and put them into the cache."""
        cdef size_t count, i
        cdef uint32_t *to
        count = self.ranks.merge(&scratch.work, text, size)
        reserve(out, (count if self.first_beginning == NONE else size) + COPIED_IDS)
        to = out.ids + out.size
        for i in range(count):
            to[i] = id_of(self, scratch.work.found[i])
        if self.first_beginning != NONE:
            count = spell_beginnings(self, to, count)
        out.size += count
        if count:
            cache_keep(&self.cache.table, key, cache_set(&self.cache.table, key), text, to, count)
        return 0

    # Text to pretokens

    cdef int encode_text(
        self, Scratch scratch, const uint8_t *text, size_t size, SpecialTokens special, Ids *out, bint begins
    ) except -1 nogil:
        """Append the ids of bytes, special tokens included.

        begins: whether a text begins here; otherwise one goes on that did not end in a special token.
        """
        cdef Hit hit
        cdef size_t at = 0
        cdef bint may_take_space = self.space and begins, is_added
        while at < size:
            hit = special.find(text, size, at)
            is_added = hit.index >= 0 and special.numbers[hit.index] < self.added_end \
                and self.added[special.numbers[hit.index]]
            if may_take_space and (hit.begin > at or is_added):
                at += encode_with_space(self, scratch, text + at, hit.begin - at, out)
            may_take_space = self.space > FIRST_SPACE and not is_added
            self.encode_stretches(scratch, text + at, hit.begin - at, size - at, out)
            if hit.index >= 0:
                reserve(out, 1)
                out.ids[out.size] = special.numbers[hit.index]
                out.size += 1
            at = hit.end
        return 0

    cdef int encode_stretches(
        self, Scratch scratch, const uint8_t *text, size_t size, size_t room, Ids *out
    ) except -1 nogil:
        """Append the ids of bytes without special tokens, stretch by stretch (see cache.pxi); `room` may be read."""
        cdef size_t begin = 0, end, first
        cdef packed_key key
        while begin < size:
            end = size
            if size - begin > LONGEST:
                end = scan_cut(<ScannedPattern> self.scanner, text, size, begin + STRETCH)
            if not LEAST_STRETCH <= end - begin <= LONGEST or self.cache.stretches.ring == NULL:
                self.encode_stretch(scratch, text + begin, end - begin, room - begin, out)
            else:
                key = stretch_key(text + begin, end - begin)
                if not append_ids(&self.cache.stretches, key, text + begin, out):
                    first = out.size
                    self.encode_stretch(scratch, text + begin, end - begin, room - begin, out)
                    self.cache.keep_stretch(key, text + begin, out, first)
            begin = end
        return 0

    cdef int encode_stretch(
        self, Scratch scratch, const uint8_t *text, size_t size, size_t room, Ids *out
    ) except -1 nogil:
        """Append the ids of bytes without special tokens that no other bytes change."""
        cdef Scanner scanner
        cdef size_t ends[SCAN_ENDS]
        cdef size_t begin = 0, count
        scan_start(&scanner, <ScannedPattern> self.scanner, text, size)
        scanner.cuts = self.cuts
        while begin < size:
            count = scan_block(&scanner, ends)
            self.encode_pretokens(scratch, text, ends, count, begin, room, out)
            scratch.unchecked += ends[count - 1] - begin
            begin = ends[count - 1]
            if scratch.unchecked >= SIGNAL_BYTES:
                scratch.unchecked = 0
                check_signals()
        return 0

    # Results

    def encode_pieces(self, pieces):
        """The ids of pretokens that were split by the caller (bytes), as an array of uint32."""
        cdef Scratch scratch = self.cache.take()
        cdef const uint8_t[::1] piece
        cdef size_t end
        try:
            for piece in pieces:
                end = piece.shape[0]
                if end:
                    self.encode_pretokens(scratch, &piece[0], &end, 1, 0, end, &scratch.ids)
            return to_array(&scratch.ids)
        finally:
            self.cache.give(scratch)

    cpdef object encode_array(self, text, Rules rules, bint begins=True):
        """The ids of `text`, str or bytes, as an array of uint32; releases the GIL for the work.

        begins: True if it begins here, so that it may be given a space in front.

        Raises:
            ValueError: The text holds a special token that is refused; the message names it.
            UnicodeError: A str holds a lone surrogate.
            KeyError: A byte has no token.
        """
        return self.ids_of(text, rules, begins, False)

    cdef object ids_of(self, text, Rules rules, bint begins, bint as_list):
        """The ids of a text, as a list or an array; one that is converted, or has several blocks, goes by a Batch."""
        cdef const uint8_t *at
        cdef size_t size
        cdef uint8_t converted[4 * SHORT_TEXT + SLACK]
        cdef TextBuffer buffer = None
        cdef Scratch scratch
        if type(text) is str and PyUnicode_IS_ASCII(text):
            at, size = <const uint8_t *> PyUnicode_DATA(text), PyUnicode_GET_LENGTH(text)
        elif type(text) is bytes:
            at, size = <const uint8_t *> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
        else:
            buffer = TextBuffer(text)
            at, size = buffer.bytes, buffer.size
        if size > (SHORT_TEXT if at == NULL else BLOCK):
            batch = Batch(self, [text], rules, longest=0, continued=[not begins])
            batch.work()
            for error in batch.failures.values():
                raise error
            return (batch.lists() if as_list else batch.arrays())[0]
        if at == NULL:
            at, size = converted, buffer.convert(0, size, converted)
            if size == LONE:
                raise lone_surrogate()
        scratch = self.cache.take()
        try:
            if size <= SHORT_TEXT:
                rules.check(at, size)
                reserve(&scratch.ids, size)
                self.encode_text(scratch, at, size, rules.recognised, &scratch.ids, begins)
            else:
                with nogil:
                    rules.check(at, size)
                    self.cache.prepare(size)
                    reserve(&scratch.ids, size // 4)        # most texts have fewer
                    self.encode_text(scratch, at, size, rules.recognised, &scratch.ids, begins)
            return self.to_list(scratch.ids.ids, scratch.ids.size) if as_list else to_array(&scratch.ids)
        finally:
            self.cache.give(scratch)

    cdef list to_list(self, const uint32_t *ids, size_t size):
        """The ids as a list; equal ids are one Python int.

        By NumPy's tolist(), which makes an int for each id, encoding takes 2.2 to 2.8 times as long (`python
        benchmarks/parts.py lists FILE`, on a Zen 5). Without a GIL each list has ints of its own: threads that refer to
        one int would all write to its count of references.
        """
        cdef size_t i
        cdef list numbers = PyList_New(size)
        cdef uint32_t number
        cdef object item
        if SHARES_INTS and self.ints == NULL:
            self.ints = <PyObject **> calloc(max(<size_t> 1, self.shared_ints), sizeof(PyObject *))
            if self.ints == NULL:
                raise MemoryError
        for i in range(size):
            number = ids[i]
            if SHARES_INTS and number < self.shared_ints and self.ints[number] != NULL:
                item = <object> self.ints[number]
            else:
                item = PyLong_FromUnsignedLong(number)
                if SHARES_INTS and number < self.shared_ints:
                    Py_INCREF(item)
                    self.ints[number] = <PyObject *> item
            Py_INCREF(item)                 # PyList_SET_ITEM steals a reference
            PyList_SET_ITEM(numbers, i, item)
        return numbers


cdef inline uint32_t id_of(Encoder encoder, uint32_t symbol) noexcept nogil:
    return symbol if encoder.ids == NULL else encoder.ids[symbol]


cdef int check_signals() except -1 nogil:
    """Let the handlers of signals run, of Ctrl-C above all, and raise what they raise."""
    with gil:
        return PyErr_CheckSignals()


include "characters.pxi"
include "windows.pxi"
include "blocks.pxi"
include "batch.pxi"
include "calls.pxi"
include "spelled_counts.pxi"
