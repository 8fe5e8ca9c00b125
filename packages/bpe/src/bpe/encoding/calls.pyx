"""The calls by which nearly all text comes, compiled from their arguments on: a chat message takes no longer to encode
than a call of Python.

What the encoder does not take as it is goes to the TextEncoder, in Python: texts to be prepared or split by `regex`,
special tokens that are refused, lone surrogates, whatever is wrong.
"""

cimport cython

from bpe.encoding.encoder cimport Encoder
from bpe.scanning.special_tokens cimport Rules

NONE = frozenset()  # the set that calls have by default

cdef object none = NONE


@cython.binding(False)              # a method that is kept by itself is then called without another call in between
cdef class Calls:
    """encode(), encode_ordinary(), encode_to_numpy() and count_tokens() of a tokenizer.

    texts: the tokenizer's bpe.encoding.text_encoder.TextEncoder.
    """

    cdef object texts
    cdef Encoder encoder            # None until the first text, and where it does not take texts as they are
    cdef Rules strict, ordinary     # no special token allowed, and all refused or none

    def __cinit__(self, texts not None):
        self.texts = texts
        self.strict, self.ordinary = texts.policy.rules(NONE, "all"), texts.policy.rules(NONE, ())

    def encode(self, text, *, allowed_special=NONE, disallowed_special="all"):
        """See bpe.Tokenizer.encode()."""
        return self.to_list(text, self.rules(allowed_special, disallowed_special))

    def encode_ordinary(self, text):
        """See bpe.Tokenizer.encode_ordinary()."""
        return self.to_list(text, self.ordinary)

    def encode_to_numpy(self, text, *, allowed_special=NONE, disallowed_special="all"):
        """See bpe.Tokenizer.encode_to_numpy()."""
        return self.to_array(text, self.rules(allowed_special, disallowed_special), False)

    def count_tokens(self, text, *, allowed_special=NONE, disallowed_special="all"):
        """See bpe.Tokenizer.count_tokens()."""
        return len(self.to_array(text, self.rules(allowed_special, disallowed_special), True))

    cdef Rules rules(self, allowed, disallowed):
        if allowed is none:
            if type(disallowed) is str and disallowed == "all":
                return self.strict
            if not disallowed:
                return self.ordinary
        return self.texts.policy.rules(allowed, disallowed)

    cdef object to_list(self, text, Rules rules):
        cdef object ids = None
        if self.encoder is not None or self.has_encoder():
            ids = self.encoder.list_of(text, rules)
        return self.texts.to_array(text, rules, repair=True).tolist() if ids is None else ids

    cdef object to_array(self, text, Rules rules, bint repair):
        cdef object ids = None
        if self.encoder is not None or self.has_encoder():
            ids = self.encoder.array_of(text, rules)
        return self.texts.to_array(text, rules, repair=repair) if ids is None else ids

    cdef bint has_encoder(self) except -1:
        """Make the encoder, if it takes texts as they are."""
        if self.texts.direct:
            self.encoder = self.texts.encoder
        return self.encoder is not None
