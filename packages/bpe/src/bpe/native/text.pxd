from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

cdef extern from "native/utf8.h" nogil:
    const size_t LONE "UTF8_LONE"   # instead of a size: there is a surrogate
    enum:
        SLACK "UTF8_SLACK"          # bytes that a conversion may write beyond its last

cdef class TextBuffer:
    cdef object owner
    cdef Py_buffer buffer
    cdef const uint8_t *bytes   # UTF-8 in memory that never changes, `size` bytes; NULL where the text is converted:
    cdef const uint8_t *units   # `size` code points of `width` bytes each
    cdef readonly size_t size
    cdef int width              # 0: bytes of UTF-8, which are copied
    cdef size_t convert(self, size_t at, size_t count, uint8_t *to) noexcept nogil

cdef bint never_changes(buffer)
cdef size_t convert_units(const uint8_t *units, int width, size_t count, uint8_t *to) noexcept nogil
cdef size_t room_for(size_t units) noexcept nogil
cdef object lone_surrogate()
cdef int raise_lone_surrogate() except -1 nogil
