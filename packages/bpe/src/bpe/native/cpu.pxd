cdef int level_of(name) except -1
