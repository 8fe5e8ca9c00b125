"""Lines of base64 (RFC 4648) and a rank, as .tiktoken files have them.

By binascii, line by line, a first load of o200k's file takes two fifths longer (docs/design/performance/bpe.md).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int8_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

cdef int8_t[256] VALUE           # of six bits by character; -1 of any other
cdef const char *ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
memset(VALUE, -1, sizeof(VALUE))
for number in range(64):
    VALUE[<uint8_t> ALPHABET[number]] = number


def ranks_of_lines(bytes data not None, uint64_t most):
    """{token: rank}; None where a line is not base64, a space and a rank, or where a token stands twice.

    A rank is greater than the one before it, and not above `most`.
    """
    cdef dict ranks = {}
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(data)      # a zero follows the bytes, and ends a line
    cdef const uint8_t *end = at + len(data)
    cdef bytes room = PyBytes_FromStringAndSize(NULL, len(data) + 3)
    cdef uint8_t *token = <uint8_t *> PyBytes_AS_STRING(room)
    cdef size_t lines = 0, size, count, padding
    cdef uint32_t group
    cdef uint64_t rank, least = 0
    while at < end:
        size = count = group = rank = padding = 0
        while VALUE[at[0]] >= 0 or (count % 4 > 1 and at[0] == b"="):
            if at[0] == b"=":
                padding += 1
            elif padding:
                return None
            group = group << 6 | <uint32_t> max(VALUE[at[0]], 0)
            at, count = at + 1, count + 1
            if count % 4 == 0:
                token[size], token[size + 1], token[size + 2] = group >> 16, group >> 8, group
                size += 3
        if count == 0 or count % 4 or at[0] != b" ":
            return None
        count = 0
        at += 1
        while b"0" <= at[0] <= b"9" and count < 10:
            rank = rank * 10 + (at[0] - <uint8_t> b"0")
            at, count = at + 1, count + 1
        if count == 0 or at[0] != b"\n" or not least <= rank <= most:
            return None
        at, lines, least = at + 1, lines + 1, rank + 1
        ranks[PyBytes_FromStringAndSize(<const char *> token, size - padding)] = rank
    return ranks if len(ranks) == lines else None
