"""Encoding one text: the base class of bpe.Encoding, compiled.

For a chat message, handling the arguments in Python would take longer than encoding: a call of 20 bytes takes 0.15 µs
here and 0.28 through a method in Python. These methods go straight to the compiled Encoder. The TextEncoder, which is
Python, serves the rest: tokenizers that change a text before encoding it, patterns that `regex` has to run, and a str
with lone surrogates.
"""

import functools

cimport cython

from bpe.encoding.normal_forms import in_form

from bpe.encoding.encoder cimport Encoder
from bpe.scanning.special_tokens cimport Rules

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)

NONE = frozenset()  # the default of allowed_special, recognised by identity

cdef object none = NONE


def compiled(declaration):
    """Decorator for a method that EncodeMethods has under the same name: that one, documented by this declaration."""
    return functools.update_wrapper(vars(EncodeMethods)[declaration.__name__], declaration, updated=())


@cython.embedsignature(False)
cdef class EncodeMethods:
    """encode(), encode_ordinary() and encode_to_numpy() of bpe.Encoding, where their docstrings are."""

    cdef readonly object _texts     # the TextEncoder
    cdef Encoder encoder            # None before the first text; always None where only the TextEncoder will do
    cdef str form                   # the normal form that it takes texts in, or None: see TextEncoder
    cdef bint alone
    cdef Rules strict, ordinary     # no special token is recognised: strict refuses all of them, ordinary none

    def _use(self, texts not None):
        """Encode by this TextEncoder: the last step of every constructor."""
        self._texts, self.encoder, self.form = texts, None, texts.form
        self.alone = texts.alone
        self.strict, self.ordinary = texts.policy.rules(NONE, "all"), texts.policy.rules(NONE, ())

    def encode(self, text, *, allowed_special=NONE, disallowed_special="all"):
        check(self)
        return self.to_list(text, self.rules(allowed_special, disallowed_special))

    def encode_ordinary(self, text):
        check(self)
        return self.to_list(text, self.ordinary)

    def encode_to_numpy(self, text, *, allowed_special=NONE, disallowed_special="all"):
        check(self)
        return self.to_array(text, self.rules(allowed_special, disallowed_special), False)

    def _count(self, text, allowed, disallowed):
        """Number of ids of encode(), without the list."""
        check(self)
        return len(self.to_array(text, self.rules(allowed, disallowed), True))

    cdef Rules rules(self, allowed, disallowed):
        """The rules of these arguments; the usual ones without a look-up."""
        if allowed is none:
            if type(disallowed) is str and disallowed == "all":
                return self.strict
            if not disallowed:
                return self.ordinary
        return self._texts.policy.rules(allowed, disallowed)

    cdef object to_list(self, text, Rules rules):
        cdef object ready = self.ready(text, rules)
        if ready is not None:
            if is_utf8(ready):      # no lone surrogate: a short call is a tenth faster without the try
                return self.encoder.list_of(ready, rules)
            try:
                return self.encoder.list_of(ready, rules)
            except UnicodeError:
                pass                # a lone surrogate, which the TextEncoder repairs
        return self._texts.to_array(text, rules, repair=True).tolist()

    cdef object to_array(self, text, Rules rules, bint repair):
        cdef object ready = self.ready(text, rules)
        if ready is not None:
            if is_utf8(ready):
                return self.encoder.encode_array(ready, rules)
            try:
                return self.encoder.encode_array(ready, rules)
            except UnicodeError:
                pass                # a lone surrogate, which the TextEncoder repairs or names the place of
        return self._texts.to_array(text, rules, repair=repair)

    cdef object ready(self, text, Rules rules):
        """The text as the encoder takes it; None where there is no encoder for it."""
        if self.encoder is None and not self.has_encoder():
            return None
        return text if self.form is None else in_form(text, self.form, rules.all, self.alone)

    cdef bint has_encoder(self) except -1:
        """Make the encoder, if it takes texts as they are or in a normal form. True if there is one."""
        if self._texts.direct or self.form is not None:
            encoder = self._texts.encoder
            with cython.critical_section(self):
                if self.encoder is None:        # set once, as other threads read it without a lock
                    self.encoder = encoder
        return self.encoder is not None


cdef inline bint is_utf8(text):
    """True for bytes and for a str that is its own UTF-8."""
    return type(text) is bytes or (type(text) is str and PyUnicode_IS_ASCII(text))


cdef inline int check(object self) except -1:
    """TypeError for a method that was called with another object as self, which Cython lets through."""
    if not isinstance(self, EncodeMethods) or (<EncodeMethods> self)._texts is None:
        raise TypeError(f"expected an initialized bpe.Encoding, got {type(self).__name__}")
    return 0
