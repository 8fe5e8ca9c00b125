"""A text, str or bytes, as the bytes of its UTF-8.

An ASCII str is its own UTF-8, and so are bytes: they are read where they lie. Any other str is converted here (utf8.h),
a stretch at a time and several times as fast as Python does, and nothing is kept: Python's own conversion stays with
the str, and takes as much memory again for as long as that lives.

Memory that somebody else may write to while it is read (arrays, columns of Arrow, mapped files) is copied a stretch at
a time in the same way. A cache that read it twice could remember, for one pretoken, the ids of another.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from bpe.native.cpu cimport level_of

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)

cdef extern from "native/utf8.h" nogil:
    ctypedef size_t (*utf8_function)(const void *units, size_t count, uint8_t *to) noexcept nogil
    utf8_function choose_utf8(int width, int level)

cdef utf8_function utf8_of_width[5]
utf8_of_width[0] = copy_bytes
for _width in (1, 2, 4):
    utf8_of_width[<int> _width] = choose_utf8(_width, level_of(None))


cdef class TextBuffer:
    """Something with text in it, held while it is read: a str, or whatever buffer_of() takes."""

    def __cinit__(self, text):
        self.owner = text
        if type(text) is bytes:
            self.bytes, self.size = <const uint8_t *> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
        elif isinstance(text, str):
            self.size = PyUnicode_GET_LENGTH(text)
            if PyUnicode_IS_ASCII(text):
                self.bytes = <const uint8_t *> PyUnicode_DATA(text)
            else:
                self.width, self.units = PyUnicode_KIND(text), <const uint8_t *> PyUnicode_DATA(text)
        else:
            view = buffer_of(text)
            PyObject_GetBuffer(view, &self.buffer, PyBUF_SIMPLE)
            self.units, self.size = <const uint8_t *> self.buffer.buf, self.buffer.len
            if never_changes(view):
                self.bytes = self.units

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)      # of one that was never filled, nothing

    cdef size_t convert(self, size_t at, size_t count, uint8_t *to) noexcept nogil:
        """The UTF-8 of `count` units from number `at` on; LONE where there is a surrogate among them."""
        return convert_units(self.units + at * (self.width + (self.width == 0)), self.width, count, to)


def buffer_of(text):
    """A buffer of bytes along one axis, as one that lies in memory without gaps. TypeError for what has no buffer."""
    if type(text) is bytes:
        return text
    try:
        view = memoryview(text)
    except TypeError:
        raise TypeError(f"a text is a str or bytes, not {type(text).__name__}") from None
    if view.ndim != 1 or view.format not in ("B", "b", "c"):
        raise TypeError(
            f"the bytes of a text lie along one axis: this buffer has {view.ndim} of format {view.format!r}"
        )
    return view.cast("B") if view.contiguous else bytes(view)


cdef bint never_changes(buffer):
    """True for bytes and views of them; a view that may not be written to can be of an array that others write to."""
    return type(buffer) is bytes or type(buffer.obj) is bytes


cdef size_t copy_bytes(const void *units, size_t count, uint8_t *to) noexcept nogil:
    """The conversion of bytes that are UTF-8 already."""
    memcpy(to, units, count)
    return count


cdef size_t convert_units(const uint8_t *units, int width, size_t count, uint8_t *to) noexcept nogil:
    return utf8_of_width[width](units, count, to)


cdef size_t room_for(size_t units) noexcept nogil:
    """The bytes that a conversion wants of `to`."""
    return 4 * units + SLACK


cdef object lone_surrogate():
    """The error for a str with a lone surrogate."""
    return UnicodeError("the text has a lone surrogate, which has no UTF-8")


cdef int raise_lone_surrogate() except -1 nogil:
    with gil:
        raise lone_surrogate()


def utf8(str text not None, *, level=None):
    """The UTF-8 of a str as bytes, or None where it has a surrogate: the conversion alone, for tests and benchmarks."""
    cdef TextBuffer read = TextBuffer(text)
    cdef uint8_t *to
    cdef size_t size
    if read.bytes != NULL:
        return PyBytes_FromStringAndSize(<const char *> read.bytes, read.size)
    to = <uint8_t *> malloc(room_for(read.size))
    if to == NULL:
        raise MemoryError
    try:
        size = choose_utf8(read.width, level_of(level))(read.units, read.size, to)
        return None if size == LONE else PyBytes_FromStringAndSize(<const char *> to, size)
    finally:
        free(to)
