from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    HEADER = 12                 # bytes of a record before its pretoken


cdef inline uint64_t count_of(const uint8_t *record) noexcept nogil:
    """Count of the pretoken of a record."""
    cdef uint64_t count
    memcpy(&count, record, 8)
    return count


cdef inline uint32_t size_of(const uint8_t *record) noexcept nogil:
    """Number of bytes of the pretoken of a record."""
    cdef uint32_t size
    memcpy(&size, record + 8, 4)
    return size
