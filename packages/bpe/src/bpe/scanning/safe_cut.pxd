from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from bpe.scanning.special_tokens cimport SpecialTokens

cdef size_t find_safe_cut(
    const uint8_t *text, size_t size, size_t at, int scanner, SpecialTokens special
) except? <size_t> -1 nogil
