"""The calls by which nearly all text comes, from their arguments on in C: a chat message takes no longer to encode than a call of Python.

What is not quick about them is left to bpe.Tokenizer, which inherits them: texts that have to be prepared or split by `regex`,
special tokens other than usual, whatever is wrong.
"""

from bpe.encoding.encoder cimport Encoder
from bpe.scanning.special_tokens cimport Rules

NONE = frozenset()  # the set that calls have by default

cdef object none = NONE


cdef class Calls:
    """Has _to_list() and _to_array() of a text and Rules, and _rules() of the arguments of a call."""

    cdef Encoder encoder        # or None: there is none yet, or it does not take a text as it is
    cdef Rules strict, ordinary

    def _set_rules(self, Rules strict not None, Rules ordinary not None):
        """What calls with no special tokens allowed do: where all the others are refused, and where none is."""
        self.strict, self.ordinary = strict, ordinary

    def _set_encoder(self, Encoder encoder not None):
        """What encodes texts as they are from now on."""
        self.encoder = encoder

    cdef Rules rules(self, allowed, disallowed):
        if allowed is none:
            if type(disallowed) is str and disallowed == "all":
                return self.strict
            if not disallowed:
                return self.ordinary
        return self._rules(allowed, disallowed)

    def encode(self, text, *, allowed_special=NONE, disallowed_special="all"):
        """The ids of a text.

        allowed_special: the special tokens to recognise ("all", or a set of names). disallowed_special: those whose
        presence in the text is an error ("all": all that are not allowed); the text of any other is ordinary text.
        ValueError where a disallowed one is found. In a str a lone surrogate becomes U+FFFD, and a pair one character.

        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)} | {256: b"ab"}, [(b"a", b"b")])
        >>> tokenizer.encode("abc")
        [256, 99]
        """
        return self.to_list(text, self.rules(allowed_special, disallowed_special))

    def encode_ordinary(self, text):
        """The ids of a text in which no special token is recognised."""
        return self.to_list(text, self.ordinary)

    def encode_to_numpy(self, text, *, allowed_special=NONE, disallowed_special="all"):
        """As encode(), to an array of uint32, which is faster. UnicodeEncodeError for a lone surrogate, as in tiktoken."""
        cdef Rules rules = self.rules(allowed_special, disallowed_special)
        cdef object ids = None
        if self.encoder is not None:
            ids = self.encoder.array_of(text, rules)
        return self._to_array(text, rules) if ids is None else ids

    cdef object to_list(self, text, Rules rules):
        cdef object ids = None
        if self.encoder is not None:
            ids = self.encoder.list_of(text, rules)
        return self._to_list(text, rules) if ids is None else ids
