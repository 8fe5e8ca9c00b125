"""Positions of special tokens in a text: the leftmost, and of those that begin there the longest, as in tokenizers."""

from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp


cdef class SpecialTokens:
    """Byte strings that split the text before anything else does, and the ids that an encoder gives them.

    Raises ValueError for an empty or repeated name. A special token may contain another.
    """

    def __cinit__(self, names=(), ids=None):
        self.names = tuple(name.encode() if isinstance(name, str) else bytes(name) for name in names)
        if b"" in self.names:
            raise ValueError("a special token is empty; give it at least one byte or leave it out")
        if len({*self.names}) < len(self.names):
            name = max(self.names, key=self.names.count)
            raise ValueError(f"the special token {name.decode(errors='replace')!r} is given twice; give it once")
        self.ids = () if ids is None else tuple(ids)
        if ids is not None and len(self.ids) != len(self.names):
            raise ValueError(f"{len(self.names)} special tokens with {len(self.ids)} ids; give each its own")
        self.numbers = <uint32_t *> calloc(max(1, len(self.names)), sizeof(uint32_t))
        if self.numbers == NULL:
            raise MemoryError
        for index, number in enumerate(self.ids):
            self.numbers[index] = number
        self.longest = max(map(len, self.names), default=0)
        self.end_in_symbols = all(name.isascii() and not name[len(name) - 1 :].isalnum() for name in self.names)
        self.needles = <Needle *> calloc(max(1, len(self.names)), sizeof(Needle))
        if self.needles == NULL:
            raise MemoryError
        order = sorted(range(len(self.names)), key=self.names.__getitem__)
        for needle, index in enumerate(order):
            self.needles[needle].text = <const uint8_t *> <const char *> (<bytes> self.names[index])
            self.needles[needle].size = len(self.names[index])
            self.needles[needle].index = index
        leads = [self.names[index][0] for index in order]
        for byte in range(257):
            self.first[byte] = sum(lead < byte for lead in leads)
        self.lead_count = len({*leads})
        for index, lead in enumerate(sorted({*leads})[:FEW_LEADS]):
            self.leads[index] = lead

    def __dealloc__(self):
        free(self.needles)
        free(self.numbers)

    def __len__(self):
        return len(self.names)

    cdef Hit find(self, const uint8_t *text, size_t size, size_t at) noexcept nogil:
        cdef Hit hit
        cdef int needle
        while self.longest:
            at = self.next_lead(text, size, at)
            if at == size:
                break
            needle = self.longest_at(text + at, size - at)
            if needle >= 0:
                hit.begin, hit.end = at, at + self.needles[needle].size
                hit.index = self.needles[needle].index
                return hit
            at += 1
        hit.begin, hit.end, hit.index = size, size, -1
        return hit

    cdef size_t next_lead(self, const uint8_t *text, size_t size, size_t at) noexcept nogil:
        """The first position from `at` on with a byte that begins a special token; `size` for none."""
        cdef const void *found
        cdef size_t end, nearest
        cdef int k
        if self.lead_count > FEW_LEADS:
            while at < size and self.first[text[at]] == self.first[text[at] + 1]:
                at += 1
            return at
        while at < size:
            end = nearest = min(size, at + LEAD_BLOCK)  # block by block, or one rare lead would scan all of the text
            for k in range(self.lead_count):
                found = memchr(text + at, self.leads[k], nearest - at)
                if found != NULL:
                    nearest = <const uint8_t *> found - text
            if nearest < end:
                return nearest
            at = end
        return size

    cdef int longest_at(self, const uint8_t *text, size_t size) noexcept nogil:
        """The index, among the needles, of the longest with which a text begins; -1 for none.

        With each byte of the text fewer of them are left, which lie side by side, as they are sorted.
        """
        cdef int begin = self.first[text[0]], end = self.first[text[0] + 1], found = -1
        cdef size_t depth = 1
        while begin < end:
            if self.needles[begin].size == depth:
                found = begin
                begin += 1
            if depth == size:
                break
            begin = self.first_from(begin, end, depth, text[depth])
            end = self.first_from(begin, end, depth, text[depth] + 1)
            depth += 1
        return found

    cdef int first_from(self, int begin, int end, size_t depth, int byte) noexcept nogil:
        """The first of needles[begin:end], which have equal bytes before `depth`, with this byte or a greater one."""
        cdef int middle
        while begin < end:
            middle = begin + (end - begin) // 2
            if self.needles[middle].text[depth] < byte:
                begin = middle + 1
            else:
                end = middle
        return begin

    cdef bint straddles(self, const uint8_t *text, size_t size, size_t at) noexcept nogil:
        """True if a special token has `at` inside it, so that a cut there would change the tokens found."""
        cdef size_t begin = at - self.longest + 1 if at >= self.longest else 0
        cdef int needle
        while begin < at and self.longest:
            needle = self.longest_at(text + begin, size - begin)
            if needle >= 0 and begin + self.needles[needle].size > at:
                return True
            begin += 1
        return False

    cdef bint ends_at(self, const uint8_t *text, size_t at) noexcept nogil:
        """True if a special token may end here: the text before ends as one does."""
        cdef size_t i
        cdef Needle *needle
        for i in range(<size_t> self.first[256]):
            needle = &self.needles[i]
            if needle.size <= at and memcmp(text + at - needle.size, needle.text, needle.size) == 0:
                return True
        return False

    def search(self, const uint8_t[::1] text not None):
        """The first special token in `text`, as bytes, or None."""
        cdef Hit hit
        if text.shape[0] == 0:
            return None
        with nogil:
            hit = self.find(&text[0], text.shape[0], 0)
        return None if hit.index < 0 else self.names[hit.index]

    def partition(self, const uint8_t[::1] text not None):
        """`text` as a list of (piece, index): index is the special token's index in `names`, or -1 for ordinary text.

        Empty ordinary pieces are left out; the pieces joined are the text.
        """
        cdef size_t at = 0, size = text.shape[0]
        cdef Hit hit
        cdef list pieces = []
        data = bytes(text)
        while at < size:
            hit = self.find(&text[0], size, at)
            if hit.begin > at:
                pieces.append((data[at : hit.begin], -1))
            if hit.index >= 0:
                pieces.append((data[hit.begin : hit.end], hit.index))
            at = hit.end
        return pieces


cdef class Rules:
    """The rules of a call for special tokens.

    Attributes:
        recognised: Those that get their ids.
        refused: Those that must not be in the text.
        all: Both.
    """

    def __cinit__(self, SpecialTokens recognised not None, SpecialTokens refused not None):
        self.recognised, self.refused = recognised, refused
        self.all = SpecialTokens(dict.fromkeys(recognised.names + refused.names)) if len(refused) else recognised

    cdef int refused_in(self, const uint8_t *text, size_t size) noexcept nogil:
        """The index, in refused.names, of the first refused special token in a text; -1 if there is none."""
        return self.refused.find(text, size, 0).index if self.refused.longest else -1

    cdef object refusal(self, int index):
        """The error for a text that holds this special token."""
        cdef str name = self.refused.names[index].decode()
        return ValueError(
            f"the text holds the disallowed special token {name!r}; to have it encoded as one "
            f"pass allowed_special={{{name!r}}} (or 'all'), to have it encoded as ordinary text "
            f"disallowed_special=() (or a set without it)"
        )

    cdef int check(self, const uint8_t *text, size_t size) except -1 nogil:
        """Raise ValueError, which names the special token, if the text holds one that is refused."""
        cdef int index = self.refused_in(text, size)
        if index >= 0:
            with gil:
                raise self.refusal(index)
        return 0

    def check_text(self, const uint8_t[::1] text not None):
        """Raise ValueError, which names the special token, if the text holds one that is refused."""
        if text.shape[0]:
            self.check(&text[0], text.shape[0])
