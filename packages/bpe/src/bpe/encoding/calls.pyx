"""The methods that encode one text, compiled.

For a chat message, handling the arguments in Python would take longer than encoding. These methods go straight to the
compiled Encoder. The TextEncoder, which is Python, serves the rest: tokenizers that change a text before encoding it,
patterns that `regex` has to run, and a str with lone surrogates.
"""

cimport cython

from bpe.encoding.encoder cimport Encoder
from bpe.scanning.special_tokens cimport Rules

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)

NONE = frozenset()  # the default of allowed_special, recognised by identity

cdef object none = NONE


@cython.binding(False)              # methods are then plain C functions, which Python calls directly
cdef class Calls:
    """encode(), encode_ordinary(), encode_to_numpy() and count_tokens() of a tokenizer.

    Args:
        texts: The TextEncoder of the tokenizer.
    """

    cdef object texts
    cdef Encoder encoder            # None before the first text; always None where only the TextEncoder will do
    cdef Rules strict, ordinary     # no special token is recognised: strict refuses all of them, ordinary none

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
        """The rules of these arguments; the usual ones are known without a look-up."""
        if allowed is none:
            if type(disallowed) is str and disallowed == "all":
                return self.strict
            if not disallowed:
                return self.ordinary
        return self.texts.policy.rules(allowed, disallowed)

    cdef object to_list(self, text, Rules rules):
        if self.encoder is not None or self.has_encoder():
            if is_utf8(text):       # no lone surrogate: a short call is a tenth faster without the try
                return self.encoder.list_of(text, rules)
            try:
                return self.encoder.list_of(text, rules)
            except UnicodeError:
                pass                # a lone surrogate, which the TextEncoder repairs
        return self.texts.to_array(text, rules, repair=True).tolist()

    cdef object to_array(self, text, Rules rules, bint repair):
        if self.encoder is not None or self.has_encoder():
            if is_utf8(text):
                return self.encoder.array_of(text, rules)
            try:
                return self.encoder.array_of(text, rules)
            except UnicodeError:
                pass                # a lone surrogate, which the TextEncoder repairs or names the place of
        return self.texts.to_array(text, rules, repair=repair)

    cdef bint has_encoder(self) except -1:
        """Make the encoder, if it takes texts as they are; returns whether there is one."""
        if self.texts.direct:
            encoder = self.texts.encoder
            with cython.critical_section(self):
                if self.encoder is None:        # set once, as other threads read it without a lock
                    self.encoder = encoder
        return self.encoder is not None


cdef inline bint is_utf8(text):
    """Whether a text is bytes, or a str that is its own UTF-8."""
    return type(text) is bytes or (type(text) is str and PyUnicode_IS_ASCII(text))
