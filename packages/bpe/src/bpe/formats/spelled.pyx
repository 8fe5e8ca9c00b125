"""Lines of base64 (RFC 4648) and a rank, as .tiktoken files have them.

Reading the lines of o200k's file takes 50 ms, in Python with binascii 92 (`python benchmarks/parts.py base64
FILE.tiktoken`, on a Zen 5).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int8_t, uint8_t, uint64_t
from libc.string cimport memchr, memset

cdef enum:
    ZERO = 48                   # the digit

cdef int8_t[256] VALUE           # of six bits by character; -1 of any other
cdef const char *ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
memset(VALUE, -1, sizeof(VALUE))
for number in range(64):
    VALUE[<uint8_t> ALPHABET[number]] = number


def ranks_of_lines(bytes data not None, uint64_t most):
    """{token: rank}, or None where a line is not exactly as it should be, or where a token or a rank stands twice.

    most: the greatest rank there may be.
    """
    cdef dict ranks = {}
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef const uint8_t *end = at + PyBytes_GET_SIZE(data)
    cdef const uint8_t *space
    cdef size_t lines = 0, size, digits, padding
    cdef uint64_t rank, last = 0
    cdef bint ascending = True  # as ranks in files are, and so all different
    cdef bytes token
    while at < end:
        space = <const uint8_t *> memchr(at, b" ", end - at)
        if space == NULL:
            return None
        size = space - at
        if size == 0 or size % 4:
            return None
        padding = (at[size - 1] == b"=") + (at[size - 1] == b"=" and at[size - 2] == b"=")
        token = PyBytes_FromStringAndSize(NULL, size // 4 * 3 - padding)
        if not decode(at, size, <uint8_t *> PyBytes_AS_STRING(token)):
            return None
        at = space + 1
        rank = digits = 0
        while at < end and ZERO <= at[0] <= ZERO + 9 and digits <= 10:
            rank = rank * 10 + (at[0] - ZERO)
            at += 1
            digits += 1
        if digits == 0 or digits > 10 or rank > most or at == end or at[0] != b"\n":
            return None
        at += 1
        ascending = ascending and (lines == 0 or rank > last)
        last = rank
        ranks[token] = rank
        lines += 1
    return ranks if len(ranks) == lines and (ascending or len(set(ranks.values())) == lines) else None


cdef bint decode(const uint8_t *text, size_t size, uint8_t *out) noexcept nogil:
    """Decode `size` characters, a positive multiple of four; returns whether they are base64 without a stray bit."""
    cdef size_t i
    cdef int a, b, c, d
    for i in range(0, size, 4):
        a, b, c, d = VALUE[text[i]], VALUE[text[i + 1]], VALUE[text[i + 2]], VALUE[text[i + 3]]
        if (a | b | c | d) < 0:
            if i + 4 < size or (a | b) < 0 or text[i + 3] != b"=":
                return False
            if text[i + 2] == b"=":
                out[0] = <uint8_t> (a << 2 | b >> 4)
                return not b & 15
            if c < 0:
                return False
            out[0], out[1] = a << 2 | b >> 4, (b & 15) << 4 | c >> 2
            return not c & 3
        out[0], out[1], out[2] = a << 2 | b >> 4, (b & 15) << 4 | c >> 2, (c & 3) << 6 | d
        out += 3
    return True
