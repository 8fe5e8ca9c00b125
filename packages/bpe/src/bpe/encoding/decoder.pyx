"""Decoding: ids to bytes, from one buffer that holds every token.

An id's span in that buffer is looked up in a table; where a vocabulary numbers a few tokens far beyond the others, the
table ends before them and they are searched for.
"""

cimport cython

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromSize_t
from cpython.ref cimport Py_INCREF
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from bpe.native.lazy_imports import numpy as np
from bpe.native.memory cimport checked_malloc

cdef extern from "Python.h":
    bint PyLong_CheckExact(object)
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1
    object PyNumber_Index(object)

cdef enum:
    COPY = 16                   # bytes that are copied without asking how many are wanted
    RELEASE = 2048              # ids from which on the GIL is released: below it the releasing would cost more

cdef uint32_t UNKNOWN = <uint32_t> -1

ctypedef struct Span:
    uint32_t begin
    uint32_t size               # UNKNOWN: no token has this id

cdef class IdArray:
    """Ids as uint32: a copy that no other thread can change."""

    cdef uint32_t *all
    cdef size_t size
    cdef uint32_t *owned        # the same, or NULL where `array` owns them
    cdef object array

    def __dealloc__(self):
        free(self.owned)


cdef class Decoder:
    """The bytes of every id of a vocabulary, {id: bytes}; ids from 0 to 2**32 - 1."""

    cdef uint8_t *text
    cdef Span *spans            # of the ids below `dense`, then of those in `far`
    cdef size_t dense, count
    cdef uint32_t *far          # the ids from `dense` on, ascending
    cdef size_t far_size
    cdef list tokens            # the bytes object of each span, or None
    cdef readonly object largest

    def __cinit__(self, vocab):
        cdef size_t number, i, at = 0, total = 0, used = 0
        cdef bytes token
        ids = sorted(vocab)
        self.largest = max(ids, default=-1)
        for i, number in enumerate(ids):
            if number < 8 * (i + 1) + 1024:
                self.dense, used = number + 1, i + 1
        self.far_size = len(ids) - used
        self.count = self.dense + self.far_size
        for token in vocab.values():
            total += len(token)
        if total >= UNKNOWN:
            raise ValueError(f"the tokens are {total:,} bytes in all; the most is {UNKNOWN - 1:,}")
        self.text = <uint8_t *> checked_malloc(total + COPY)
        memset(self.text + total, 0, COPY)
        self.spans = <Span *> checked_malloc(max(<size_t> 1, self.count) * sizeof(Span))
        memset(self.spans, 0xFF, self.count * sizeof(Span))
        self.far = <uint32_t *> checked_malloc(max(<size_t> 1, self.far_size) * sizeof(uint32_t))
        self.tokens = [None] * self.count
        for i in range(<size_t> len(ids)):
            number, token = ids[i], vocab[ids[i]]
            if i >= used:
                self.far[i - used] = <uint32_t> number
                number = self.dense + i - used
            self.spans[number].begin, self.spans[number].size = <uint32_t> at, <uint32_t> len(token)
            self.tokens[number] = token
            memcpy(self.text + at, PyBytes_AS_STRING(token), len(token))
            at += len(token)

    def __dealloc__(self):
        free(self.text)
        free(self.spans)
        free(self.far)

    # Ids

    cdef IdArray read(self, tokens):
        """The ids of any iterable. TypeError for no integer, OverflowError for one below 0 or of over 32 bits."""
        if PyObject_CheckBuffer(tokens):
            return self.read_buffer(tokens)
        if isinstance(tokens, str):
            raise TypeError("ids are integers, not the characters of a str")
        return self.read_list(tokens if type(tokens) is list else list(tokens))

    cdef IdArray read_list(self, list tokens):
        cdef IdArray numbers = IdArray()
        cdef Py_ssize_t i, size = PyList_GET_SIZE(tokens)
        cdef object token
        numbers.all = numbers.owned = <uint32_t *> checked_malloc(size * sizeof(uint32_t))
        numbers.size = size
        with cython.critical_section(tokens):       # without a GIL another thread could change it
            for i in range(size):
                if i >= PyList_GET_SIZE(tokens):    # an __index__ below may be anyone's code
                    raise RuntimeError("the list of ids changed while it was read")
                token = <object> PyList_GET_ITEM(tokens, i)
                numbers.all[i] = as_id(token)
        return numbers

    cdef IdArray read_buffer(self, tokens):
        """The ids of an array, or of anything else with a buffer, however its items lie."""
        cdef IdArray numbers = IdArray()
        cdef uint32_t[::1] copy
        if isinstance(tokens, np.generic):  # a scalar, whose buffer may be its bytes
            return self.read_list(list(tokens))
        try:
            array = np.asarray(memoryview(tokens))
        except (ValueError, BufferError):   # NumPy has types that no buffer can describe
            return self.read_list(list(tokens))
        if array.ndim != 1:
            raise TypeError(f"ids are an array of one dimension, not of {array.ndim}")
        if array.dtype.kind == "O" or not array.size:
            return self.read_list(list(tokens))
        if array.dtype.kind not in "iu":
            raise TypeError(f"ids are integers, not items of {array.dtype}")
        if array.min() < 0 or array.max() > UNKNOWN:
            raise OverflowError(f"an id is a number from 0 to 4294967295, not {min(array.min(), 0) or array.max()}")
        numbers.array = copy = np.array(array, dtype=np.uint32)
        numbers.all, numbers.size = &copy[0], array.size
        return numbers

    # Their bytes

    cdef inline const Span *find(self, uint32_t number) noexcept nogil:
        """The span of an id; its size is UNKNOWN where there is none (NULL for a far one)."""
        cdef size_t low = 0, high, middle
        if number < self.dense:
            return &self.spans[number]
        high = self.far_size
        while low < high:
            middle = (low + high) // 2
            if self.far[middle] < number:
                low = middle + 1
            else:
                high = middle
        if low < self.far_size and self.far[low] == number:
            return &self.spans[self.dense + low]
        return NULL

    cdef size_t measure(self, const uint32_t *ids, size_t size, size_t *total) noexcept nogil:
        """Write the number of bytes of the ids into `total`; return the index of the first unknown one, or `size`."""
        cdef const Span *span
        cdef size_t i
        total[0] = 0
        for i in range(size):
            span = self.find(ids[i])
            if span == NULL or span.size == UNKNOWN:
                return i
            total[0] += span.size
        return size

    cdef void fill(self, const uint32_t *ids, size_t size, uint8_t *out, size_t total) noexcept nogil:
        cdef const Span *span
        cdef uint8_t *end = out + total
        cdef size_t i
        for i in range(size):
            span = self.find(ids[i])
            if span.size <= COPY and <size_t> (end - out) >= COPY:
                memcpy(out, self.text + span.begin, COPY)
            else:
                memcpy(out, self.text + span.begin, span.size)
            out += span.size

    cdef bytes join(self, IdArray numbers):
        cdef size_t total, wrong
        cdef bytes data
        cdef uint8_t *out
        if numbers.size >= RELEASE:
            with nogil:
                wrong = self.measure(numbers.all, numbers.size, &total)
        else:
            wrong = self.measure(numbers.all, numbers.size, &total)
        if wrong < numbers.size:
            self.refuse(numbers.all[wrong])
        data = PyBytes_FromStringAndSize(NULL, total)
        out = <uint8_t *> PyBytes_AS_STRING(data)
        if numbers.size >= RELEASE:
            with nogil:
                self.fill(numbers.all, numbers.size, out, total)
        else:
            self.fill(numbers.all, numbers.size, out, total)
        return data

    cdef refuse(self, uint32_t number):
        raise KeyError(f"no token has the id {number}; ids go up to {self.largest}")

    def decode(self, tokens):
        """The bytes of the ids, joined. KeyError for an unknown one; see read() for other errors."""
        return self.join(self.read(tokens))

    def decode_each(self, tokens):
        """The bytes of each id, as a list."""
        cdef IdArray numbers = self.read(tokens)
        cdef list pieces = PyList_New(numbers.size)
        cdef const Span *span
        cdef object token
        cdef size_t i
        for i in range(numbers.size):
            span = self.find(numbers.all[i])
            if span == NULL or span.size == UNKNOWN:
                self.refuse(numbers.all[i])
            token = self.tokens[span - self.spans]
            Py_INCREF(token)            # PyList_SET_ITEM takes a reference of its own
            PyList_SET_ITEM(pieces, i, token)
        return pieces

    def decode_rows(self, tokens, const int64_t[::1] ends not None, int64_t[::1] byte_ends not None):
        """The bytes of rows of ids, joined. `ends`: where each row ends; where its bytes end goes to `byte_ends`."""
        cdef IdArray numbers = self.read(tokens)
        cdef bytes data = self.join(numbers)
        cdef size_t row, i = 0
        cdef int64_t at = 0
        with nogil:
            for row in range(<size_t> ends.shape[0]):
                while i < <size_t> ends[row] and i < numbers.size:
                    at += self.find(numbers.all[i]).size
                    i += 1
                byte_ends[row] = at
        return data

    def decode_one(self, token):
        """The bytes of one id."""
        cdef uint32_t number = as_id(token)
        cdef const Span *span = self.find(number)
        if span == NULL or span.size == UNKNOWN:
            self.refuse(number)
        return self.tokens[span - self.spans]

    def decode_with_offsets(self, tokens, bint characters):
        """(bytes, offsets): the byte where each id begins, or the character that it begins at or inside."""
        cdef IdArray numbers = self.read(tokens)
        cdef bytes data = self.join(numbers)
        cdef const uint8_t *text = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef list offsets = PyList_New(numbers.size)
        cdef size_t i, at = 0, end = 0, begun = 0
        cdef object offset
        for i in range(numbers.size):
            end += self.find(numbers.all[i]).size
            if not characters:
                offset = PyLong_FromSize_t(at)
                at = end
            else:                       # PyBytes end in a NUL, so there is a text[at] at the end too
                offset = PyLong_FromSize_t(begun - (1 if begun and text[at] & 0xC0 == 0x80 else 0))
                while at < end:
                    begun += text[at] & 0xC0 != 0x80
                    at += 1
            Py_INCREF(offset)
            PyList_SET_ITEM(offsets, i, offset)
        return data, offsets


cdef inline uint32_t as_id(object token) except? 0xFFFFFFFF:
    cdef int beyond
    cdef long long number
    if not PyLong_CheckExact(token):
        token = PyNumber_Index(token)
    number = PyLong_AsLongLongAndOverflow(token, &beyond)
    if beyond or not 0 <= number < <long long> 0xFFFFFFFF:
        if number == 0xFFFFFFFF:
            raise KeyError("no token has the id 4294967295, the largest there can be")
        raise OverflowError(f"an id is a number from 0 to 4294967295, not {token}")
    return <uint32_t> number
