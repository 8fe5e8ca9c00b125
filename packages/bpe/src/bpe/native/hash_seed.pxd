from libc.stdint cimport uint64_t

cdef uint64_t hash_seed
