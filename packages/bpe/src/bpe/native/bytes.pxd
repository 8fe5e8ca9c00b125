from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t


cdef extern from "native/bytes.h" nogil:
    enum:
        PACKED
    const uint64_t LONG_KEY
    ctypedef struct packed_key:
        uint64_t low, high

    int count_trailing_zeros(uint64_t word)
    int count_leading_zeros(uint64_t word)
    uint64_t hash_pair(uint64_t a, uint64_t b, uint64_t seed)
    uint64_t hash_bytes(const uint8_t *at, size_t size, uint64_t seed)
    packed_key pack_key(const uint8_t *at, size_t size, size_t room)
    void unpack_key(packed_key key, uint8_t *to)
    void prefetch(const void *address)
    void prefetch_far(const void *address)
