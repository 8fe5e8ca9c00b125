"""Text to pretokens, pretokens to ids.

Pretokens are looked up in a cache (cache.pyx), 128 at a time so that the slots of all are on their way before the first is
looked at; most of any text is there. What is not is merged (ranks.pyx).

Bytes and ASCII are encoded where they lie, any other str in blocks as they are converted (scanning/blocks.pyx).

The cache belongs to one thread at a time. An Encoder keeps those that are not in use, hands one to each call, and lets them grow
until all together take what it was given.
"""

from bpe.native.lazy_imports import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromUnsignedLong
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from bpe.scanning.blocks cimport Block, Blocks, Room
from bpe.native.bytes cimport packed_key, prefetch
from bpe.encoding.cache cimport (
    BATCH, IN_RING, INLINE, MANY, SLOT_BYTES, Cache, cache_batch, cache_crowded, cache_entry, cache_first, cache_hold,
    cache_matches, cache_prepare, cache_second, cache_slot, cache_take, choose_fetch
)
from bpe.native.cpu cimport level_of
from bpe.native.memory cimport (
    BLOCKS_LAZY, block_with_pages, checked_malloc, checked_realloc, free_block, trim_block
)
from bpe.encoding.ranks cimport LANES, LANE_BYTES, Lane, Ranks, Piece, need_lanes
from bpe.scanning.scanner cimport SCAN_ENDS, Pattern, Scanner, scan_block, scan_start
from bpe.scanning.special_tokens cimport Hit, Rules, SpecialTokens
from bpe.native.text cimport LONE, SLACK, Text

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    int PyErr_CheckSignals() except -1

cdef extern from "numpy/arrayobject.h":
    ctypedef struct PyArrayObject
    enum:
        NPY_UINT32
    int _import_array() except -1
    object PyArray_SimpleNew(int dimensions, Py_ssize_t *shape, int dtype)
    object PyArray_SimpleNewFromData(int dimensions, Py_ssize_t *shape, int dtype, void *data)
    int PyArray_SetBaseObject(PyArrayObject *array, object base) except -1
    void *PyArray_DATA(PyArrayObject *array)

cdef enum:
    FEWEST = 1 << 12            # slots of a new cache
    CHEAP = 24                  # bytes of a pretoken that is merged about as soon as it is put into a cache
    TEXT_A_SLOT = 32            # bytes of a text for which a cache has a slot before it begins, up to
    MOST_AHEAD = 1 << 19        # slots: a cache that comes to need more, whatever the text, grows
    FEWEST_KEPT = 1 << 10       # of one that is thrown away after use, where the bound leaves no more
    SHORT_TEXT = 1 << 12        # bytes of a text that is encoded before another thread could make use of the GIL
    MOST_SPARE = 4 * SHORT_TEXT # ids for which memory is kept from one call to the next
    UNHEARD = 1 << 24           # bytes or code points of a text that are encoded before a signal is heard
    LONG_TEXT = 1 << 20         # bytes of a text whose ids get pages of their own
    MOST_KEPT = 1 << 26         # bytes of such pages that are kept for another text when nobody looks at the ids any more
    SHARED = 1 << 20            # ids below this have one Python int each, which all lists share


cdef Ids kept                   # see let_go(); under the GIL, as all that looks at it


cdef class Encoder:
    """The merges of a vocabulary, ready to encode.

    ranks: symbols and merges. ids: the id of each symbol. scanner: a bpe.scanning.scanner.scanner_of(). cache_bytes: the most that all
    caches together may take. level: the SIMD level, by default that of the process.
    """

    def __cinit__(self, *, Ranks ranks not None, ids, int scanner, size_t cache_bytes, level=None):
        cdef const uint32_t[::1] id_array = np.ascontiguousarray(ids, dtype=np.uint32)
        _import_array()     # not before an encoder is wanted: see bpe.native.lazy_imports
        if <size_t> id_array.shape[0] != ranks.symbols:
            raise ValueError(f"{ranks.symbols} symbols with {id_array.shape[0]} ids; give each its own")
        self.ranks, self.scanner = ranks, scanner
        self.fetch = choose_fetch(level_of(level))
        self.idle = []
        self.sharers = 1
        self.cache_bytes = self.cache_left = cache_bytes
        self.id_of = <uint32_t *> checked_malloc(ranks.symbols * sizeof(uint32_t))
        if ranks.symbols:
            memcpy(self.id_of, &id_array[0], ranks.symbols * sizeof(uint32_t))

    def __dealloc__(self):
        cdef size_t i
        free(self.id_of)
        free_ids(&self.spare)
        if self.numbers != NULL:
            for i in range(SHARED):
                Py_XDECREF(self.numbers[i])
            free(self.numbers)

    # Pretokens to ids

    cdef int add(
        self, Cache cache, const uint8_t *text, const size_t *ends, size_t count, size_t begin, size_t size, Ids *out
    ) except -1 nogil:
        """Append the ids of the pretokens that end at ends[:count], the first from `begin` on."""
        cdef cache_batch batch
        cdef size_t done = 0, i, wanted, found
        cdef uint32_t *to
        cdef const cache_slot *slot
        cdef bint merged
        while done < count:
            wanted = min(<size_t> BATCH, count - done)
            cache_prepare(&cache.table, text, size, begin, ends + done, wanted, &batch, self.fetch)
            begin = ends[done + wanted - 1]
            done += wanted
            i = 0
            merged = False
            while True:
                reserve(out, (wanted - i) * (INLINE + 1) + MANY)
                to = out.ids + out.size
                i = cache_take(&cache.table, text, &batch, i, wanted, &to, out.ids + out.room)
                out.size = to - out.ids
                if i == wanted:
                    break
                if not merged:
                    merged = True
                    self.settle(cache, text, &batch, i, wanted)
                    continue
                slot = cache.look_again(batch.keys[i], text + batch.begins[i])
                if slot != NULL:
                    add_slot(cache, slot, out)
                else:
                    self.merge(cache, batch.keys[i], text + batch.begins[i], batch.begins[i + 1] - batch.begins[i], out)
                i += 1
            cache.judge(wanted)
            cache.met += begin - batch.begins[0]
            cache.coming -= min(cache.coming, begin - batch.begins[0])
            if cache.wants_more():
                self.let_grow(cache, cache.factor())
        return 0

    cdef int settle(
        self, Cache cache, const uint8_t *text, cache_batch *batch, size_t i, size_t count
    ) except -1 nogil:
        """Find the pretokens of a batch, from number i on, that are not in their first sets: in the second, or by merging.

        The sets of the batch are then those to look in.
        """
        cdef Piece pieces[LANES]
        cdef size_t which[LANES]
        cdef size_t missing[BATCH]
        cdef size_t found = 0, missed = 0, size, n
        cdef cache_slot *second
        for i in range(i, count):
            missing[missed] = i
            missed += not cache_first(batch, i)
        for n in range(missed):
            if cache_crowded(batch.sets[missing[n]]):
                prefetch(cache_second(&cache.table, batch.keys[missing[n]]))
        need_lanes(&cache.work)
        for n in range(missed):
            i = missing[n]
            if cache_crowded(batch.sets[i]):
                second = cache_second(&cache.table, batch.keys[i])
                if cache_matches(second, batch.keys[i]) or cache_matches(second + 1, batch.keys[i]):
                    batch.sets[i] = second
                    continue
            size = batch.begins[i + 1] - batch.begins[i]
            if self.ranks.longest_whole < size <= LANE_BYTES and self.ranks.spelled(text + batch.begins[i], size):
                pieces[found].text, pieces[found].size = text + batch.begins[i], size
                which[found] = i
                found += 1
                if found == LANES:
                    self.settle_together(cache, batch, pieces, which, found)
                    found = 0
        self.settle_together(cache, batch, pieces, which, found)
        return 0

    cdef void settle_together(
        self, Cache cache, cache_batch *batch, const Piece *pieces, const size_t *which, size_t count
    ) noexcept nogil:
        """Merge pretokens of a batch side by side, and put them into the cache, or note them."""
        cdef uint32_t ids[LANE_BYTES + MANY]
        cdef Lane *lane
        cdef size_t k, i, n
        self.ranks.merge_pieces(cache.work.lanes, pieces, count)
        for k in range(count):
            lane = &cache.work.lanes[k]
            for i in range(0, lane.count, 4):   # by fours, as few have more, and nobody could foretell how many they have
                for n in range(i, i + 4):
                    ids[n] = self.id_of[lane.symbols[n]]
            i = which[k]
            if pieces[k].size <= CHEAP:
                cache.missed += 1
                if cache.sparing and not cache.met_before(batch.keys[i]) and cache_hold(batch, i, ids, lane.count):
                    continue
            batch.sets[i] = cache.keep(batch.keys[i], batch.sets[i], pieces[k].text, ids, lane.count)

    cdef int merge(self, Cache cache, packed_key key, const uint8_t *text, size_t size, Ids *out) except -1 nogil:
        """Merge one pretoken, append its ids to `out`, and put them into the cache."""
        cdef size_t count = self.ranks.merge(&cache.work, text, size), i
        cdef uint32_t *to
        reserve(out, count + MANY)
        to = out.ids + out.size
        for i in range(count):
            to[i] = self.id_of[cache.work.found[i]]
        out.size += count
        cache.keep(key, cache.first(key), text, to, count)
        return 0

    cdef int let_grow(self, Cache cache, size_t factor) except -1 nogil:
        """Let a cache have so many times its slots, a power of two, or as many as what it takes more is left for."""
        cdef size_t now = cache.slots() * SLOT_BYTES
        if factor == 1:
            return 0
        with gil:                           # which is what guards cache_left
            while factor > 1 and ((factor - 1) * now > self.cache_left or factor * now > self.cache_bytes // self.sharers):
                factor //= 2
            cache.full = factor == 1
            self.cache_left -= (factor - 1) * now
        if not cache.full and not cache.grow(factor):
            cache.full = True
            with gil:
                self.cache_left += (factor - 1) * now
        return 0

    # Text to ids

    cdef int add_text(
        self, Cache cache, const uint8_t *text, size_t size, SpecialTokens special, Ids *out
    ) except -1 nogil:
        cdef Scanner scanner
        cdef Hit hit
        cdef size_t ends[SCAN_ENDS]
        cdef size_t at = 0, heard = 0, count, begin
        while at < size:
            if at - heard >= UNHEARD:
                heard = at
                hear_signals()
            hit = special.find(text, size, at)
            scan_start(&scanner, <Pattern> self.scanner, text + at, hit.begin - at)
            begin = 0
            while True:
                count = scan_block(&scanner, ends)
                if count == 0:
                    break
                self.add(cache, text + at, ends, count, begin, size - at, out)
                begin = ends[count - 1]
                if at + begin - heard >= UNHEARD:
                    heard = at + begin
                    hear_signals()
            if hit.index >= 0:
                reserve(out, 1)
                out.ids[out.size] = special.numbers[hit.index]
                out.size += 1
            at = hit.end
        return 0

    # Caches, each of which belongs to one call at a time. All this under the GIL, so that no lock is needed.

    cdef Cache take_cache(self):
        """An idle cache, or a new one: a small one to throw away where the bound leaves no more."""
        cdef Cache cache = self.at_hand
        self.busy += 1
        if cache is not None:
            self.at_hand = None
            return cache
        if self.idle:
            return self.idle.pop()
        if self.cache_left < FEWEST * SLOT_BYTES:
            self.sharers = max(self.sharers, self.busy)
            return Cache(FEWEST_KEPT)
        self.cache_left -= FEWEST * SLOT_BYTES
        return Cache(FEWEST)

    cdef give_cache(self, Cache cache):
        self.busy -= 1
        if cache.slots() == FEWEST_KEPT:
            return
        if cache.slots() > FEWEST and cache.slots() * SLOT_BYTES > self.cache_bytes // self.sharers:
            self.cache_left += cache.slots() * SLOT_BYTES       # it took more than its share, and is forgotten
        elif self.at_hand is None:
            self.at_hand = cache
        else:
            self.idle.append(cache)

    cdef share(self, size_t threads):
        """Leave room for the caches of so many threads."""
        cdef list idle = self.idle
        cdef Cache cache
        if threads > self.sharers:
            if self.at_hand is not None:
                idle.append(self.at_hand)
            self.sharers, self.idle, self.at_hand = threads, [], None
            self.busy += len(idle)
            for cache in idle:
                self.give_cache(cache)

    cdef bint take(self, text, Rules rules, Ids *out) except -1:
        """Append the ids of a text; False where it holds a special token that is refused, or a lone surrogate."""
        cdef const uint8_t *at
        cdef size_t size
        cdef uint8_t converted[4 * SHORT_TEXT + SLACK]
        cdef Text held = None
        cdef Cache cache
        if type(text) is str and PyUnicode_IS_ASCII(text):
            at, size = <const uint8_t *> PyUnicode_DATA(text), PyUnicode_GET_LENGTH(text)
        elif type(text) is bytes:
            at, size = <const uint8_t *> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
        else:
            held = Text(text)
            if held.bytes != NULL:
                at, size = held.bytes, held.size
            elif held.size > SHORT_TEXT:
                return self.take_blocks(held, rules, out)
            else:
                at, size = converted, held.convert(0, held.size, converted)
                if size == LONE:
                    return False
        if size == 0:
            return True
        if rules.refused.longest and rules.refused.find(at, size, 0).index >= 0:
            return False
        cache = self.take_cache()
        try:
            if size < SHORT_TEXT:
                reserve(out, size)
                self.add_text(cache, at, size, rules.recognised, out)
            else:
                reserve_for(out, size)
                with nogil:
                    self.prepare(cache, size)
                    self.add_text(cache, at, size, rules.recognised, out)
        finally:
            self.give_cache(cache)
        return True

    cdef bint take_blocks(self, Text text, Rules rules, Ids *out) except -1:
        """take() of a str that is not ASCII."""
        cdef Blocks blocks = Blocks(text, rules.all, self.scanner, BLOCK)
        cdef Cache cache = self.take_cache()
        cdef Room room
        cdef Block block
        cdef size_t unheard = 0
        room.bytes, room.size = NULL, 0
        try:
            reserve_for(out, most_bytes(text))
            with nogil:
                self.prepare(cache, text.size)
                while True:
                    unheard += BLOCK
                    if unheard >= UNHEARD:
                        unheard = 0
                        hear_signals()
                    blocks.next(&room, &block)
                    if block.size == 0:
                        return True
                    if rules.refused.longest and rules.refused.find(block.bytes, block.size, 0).index >= 0:
                        return False
                    self.add_text(cache, block.bytes, block.size, rules.recognised, out)
        except UnicodeError:
            return False
        finally:
            free(room.bytes)
            self.give_cache(cache)

    cdef int prepare(self, Cache cache, size_t size) except -1 nogil:
        """Let a cache grow to what a text of this size will want at least."""
        cdef size_t factor = 1
        cache.expect(size)
        while factor * cache.slots() < min(size // TEXT_A_SLOT, <size_t> MOST_AHEAD):
            factor *= 2
        return 0 if cache.full else self.let_grow(cache, factor)

    def encode(self, text, Rules rules not None):
        """The ids of `text` as a list; see encode_array()."""
        return self.list_of(text, rules)

    def encode_array(self, text, Rules rules not None):
        """The ids of `text`, str or bytes, as an array of uint32; releases the GIL for the work.

        None where the text holds a special token that is refused, or a lone surrogate. KeyError for a byte that has no token.
        The pattern must be one with a scanner.
        """
        return self.array_of(text, rules)

    cdef object list_of(self, text, Rules rules):
        cdef Ids out = self.borrow()
        try:
            return self.to_list(out.ids, out.size) if self.take(text, rules, &out) else None
        finally:
            self.give_back(&out)

    cdef object array_of(self, text, Rules rules):
        cdef Ids out = self.borrow()
        try:
            return array_of(&out) if self.take(text, rules, &out) else None
        finally:
            self.give_back(&out)

    cdef Ids borrow(self) noexcept:
        """Room for ids, some of it there already if no other call has that. Under the GIL, as give_back()."""
        cdef Ids out = self.spare
        memset(&self.spare, 0, sizeof(Ids))
        return out

    cdef int give_back(self, Ids *out) except -1:
        if out.room <= MOST_SPARE and self.spare.ids == NULL:
            self.spare = out[0]
            self.spare.size = 0
        else:
            let_go(out)
        return 0

    def encode_pieces(self, pieces):
        """The ids of pretokens that were split by the caller (bytes), as an array of uint32."""
        cdef Ids out
        cdef Cache cache = self.take_cache()
        cdef const uint8_t[::1] piece
        cdef size_t end
        memset(&out, 0, sizeof(Ids))
        try:
            for piece in pieces:
                end = piece.shape[0]
                if end:
                    self.add(cache, &piece[0], &end, 1, 0, end, &out)
            return array_of(&out)
        finally:
            self.give_cache(cache)
            free_ids(&out)

    cdef list to_list(self, const uint32_t *ids, size_t size):
        cdef size_t i
        cdef list numbers = PyList_New(size)
        cdef uint32_t number
        cdef object made
        if self.numbers == NULL:
            self.numbers = <PyObject **> calloc(SHARED, sizeof(PyObject *))
            if self.numbers == NULL:
                raise MemoryError
        for i in range(size):
            number = ids[i]
            if number < SHARED and self.numbers[number] != NULL:
                made = <object> self.numbers[number]
            else:
                made = PyLong_FromUnsignedLong(number)
                if number < SHARED:
                    Py_INCREF(made)
                    self.numbers[number] = <PyObject *> made
            Py_INCREF(made)                 # PyList_SET_ITEM takes a reference of its own
            PyList_SET_ITEM(numbers, i, made)
        return numbers


cdef class Numbers:
    """Memory with ids that arrays look into, and that is freed with the last of them."""

    def __dealloc__(self):
        let_go(&self.all)

    cdef object part(self, const uint32_t *ids, Py_ssize_t size):
        """Some of the ids as an array."""
        cdef object array = PyArray_SimpleNewFromData(1, &size, NPY_UINT32, <void *> ids)
        Py_INCREF(self)                     # which PyArray_SetBaseObject takes
        PyArray_SetBaseObject(<PyArrayObject *> array, self)
        return array


cdef object array_of(Ids *out):
    """Ids as an array, which takes the memory of many of them, and copies few."""
    cdef Py_ssize_t size = out.size
    cdef object array
    cdef Numbers numbers
    if size <= MOST_SPARE:
        array = PyArray_SimpleNew(1, &size, NPY_UINT32)
        if size:
            memcpy(PyArray_DATA(<PyArrayObject *> array), out.ids, size * sizeof(uint32_t))
        return array
    numbers = Numbers()
    trim(out)
    numbers.all = out[0]
    memset(out, 0, sizeof(Ids))
    return numbers.part(numbers.all.ids, size)


cdef int hear_signals() except -1 nogil:
    """Let the handlers of what has come be called, of Ctrl-C above all, and raise what they raise."""
    with gil:
        return PyErr_CheckSignals()


cdef size_t most_bytes(Text text) noexcept nogil:
    """The most bytes that the UTF-8 of a text may have."""
    return text.size * (text.width + (text.width < 4)) if text.bytes == NULL else text.size


cdef void free_ids(Ids *out) noexcept nogil:
    if out.pages:
        free_block(out.ids, out.pages)
    else:
        free(out.ids)


cdef int add_slot(Cache cache, const cache_slot *slot, Ids *out) except -1 nogil:
    """Append the ids of a slot, wherever they are."""
    cdef size_t count = slot.count & ~IN_RING
    reserve(out, count)
    if slot.count & IN_RING:
        memcpy(out.ids + out.size, cache_entry(&cache.table, slot), count * sizeof(uint32_t))
    else:
        memcpy(out.ids + out.size, slot.ids, count * sizeof(uint32_t))
    out.size += count
    return 0


cdef int make_room(Ids *out, size_t room) except -1 nogil:
    cdef uint32_t *larger
    if out.pages:
        larger = <uint32_t *> checked_malloc(room * sizeof(uint32_t))
        memcpy(larger, out.ids, out.size * sizeof(uint32_t))
        free_block(out.ids, out.pages)
        out.ids, out.pages = larger, 0
    else:
        out.ids = <uint32_t *> checked_realloc(out.ids, room * sizeof(uint32_t))
    out.room = room
    return 0


cdef int reserve_for(Ids *out, size_t size) except -1:
    """Room for a text of so many bytes. Of a long one no more than an id a byte, where memory is taken only as it is written."""
    cdef size_t bytes = (size + BATCH * (INLINE + 1) + MANY) * sizeof(uint32_t)
    cdef uint32_t *pages
    if BLOCKS_LAZY and size >= LONG_TEXT and out.size == 0:
        pages = <uint32_t *> block_with_pages(bytes, kept.ids, kept.pages)
        memset(&kept, 0, sizeof(Ids))
        if pages != NULL:
            free_ids(out)           # what was kept from a short text
            out.ids, out.pages, out.room = pages, bytes, bytes // sizeof(uint32_t)
            return 0
    return reserve(out, size // 4)      # about as many as most texts have


cdef void let_go(Ids *out) noexcept:
    """Free ids. Pages, which the system is slow to make, are kept for the next long text, those of one array at most."""
    global kept
    if out.pages and out.size:
        trim(out)
    if kept.pages < out.pages <= MOST_KEPT:
        free_ids(&kept)
        kept = out[0]
    else:
        free_ids(out)


cdef void trim(Ids *out) noexcept nogil:
    """Give back the memory that ids, of which there are some, do not fill."""
    cdef void *less
    if out.pages:
        out.pages = trim_block(out.ids, out.pages, out.size * sizeof(uint32_t))
    else:
        less = realloc(out.ids, out.size * sizeof(uint32_t))
        if less == NULL:
            return
        out.ids = <uint32_t *> less
    out.room = out.size
