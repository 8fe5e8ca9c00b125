from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

ctypedef struct Ids:
    uint32_t *ids
    size_t size, room           # ids there are, and that there is room for

cdef class IdMemory:
    cdef Ids owned
    cdef object view(self, const uint32_t *ids, Py_ssize_t size)

cdef void trim(Ids *ids) noexcept nogil
cdef int grow(Ids *ids, size_t room) except -1 nogil
cdef object to_array(Ids *ids)
cdef void free_ids(Ids *ids) noexcept nogil


cdef inline int reserve(Ids *ids, size_t more) except -1 nogil:
    """See that there is room for `more` ids beyond those that there are."""
    if ids.size + more > ids.room:
        grow(ids, max(ids.size + more, ids.room + ids.room // 2, <size_t> 256))
    return 0
