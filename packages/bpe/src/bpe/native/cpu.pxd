cdef extern from "native/cpu.h" nogil:
    enum:
        LEVEL_PORTABLE, LEVEL_AVX2, LEVEL_AVX512

cdef int level_of(name) except -1
