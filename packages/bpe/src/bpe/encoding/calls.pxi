# Encoding one text: the base class of bpe.Tokenizer, compiled.
#
# For a chat message, handling the arguments in Python would take longer than encoding: a call of 20 bytes takes 0.15 µs
# here and 0.28 through a method in Python. These methods go straight to the compiled Encoder. The TextEncoder, which is
# Python, serves the rest: tokenizers that change a text before encoding it, patterns that `regex` has to run, and a str
# with lone surrogates.

NO_NAMES = frozenset()  # the default of allowed_special, recognised by identity

cdef object none = NO_NAMES


@cython.embedsignature(False)
@cython.annotation_typing(False)
cdef class EncodeMethods:
    """The methods of bpe.Tokenizer that encode one text."""

    cdef readonly object _text_encoder
    cdef Encoder encoder            # None before the first text; always None where only the TextEncoder will do
    cdef str form                   # the normal form that it expects of texts, "" for any: see TextEncoder
    cdef bint alone
    cdef Rules strict, ordinary     # no special token is recognised: strict refuses all of them, ordinary none

    def _use(self, text_encoder not None):
        """Encode by this TextEncoder: the last step of every constructor."""
        self._text_encoder, self.encoder = text_encoder, None
        self.form, self.alone = text_encoder.form, text_encoder.alone
        self.strict = text_encoder.policy.rules(NO_NAMES, "all")
        self.ordinary = text_encoder.policy.rules(NO_NAMES, ())

    def encode(
        self, text: Text, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> list[int]:
        """Encode a text.

        Args:
            text: str, or UTF-8 as bytes. In a str a lone surrogate becomes U+FFFD, and a pair of them one character.
            allowed_special: the special tokens to recognise: "all", or a collection of their names.
            disallowed_special: those whose presence in the text is an error: "all" that are not allowed, or a
                collection of names. Any other special token is ordinary text.

        Returns:
            The ids, a list of ints.

        Raises:
            ValueError: the text holds a disallowed special token.

        Example:
            >>> tokenizer.encode("low lower")
            [258, 260, 114]
            >>> tokenizer.encode("low<|endoftext|>", allowed_special="all")
            [258, 256]
        """
        check(self)
        return self.ids(text, self.rules(allowed_special, disallowed_special), True)

    def encode_ordinary(self, text: Text) -> list[int]:
        """Encode a text without recognising special tokens, as encode(text, disallowed_special=()).

        Example:
            >>> len(tokenizer.encode_ordinary("<|endoftext|>"))
            13
        """
        check(self)
        return self.ids(text, self.ordinary, True)

    def encode_to_numpy(
        self, text: Text, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Encode a text to an array, which takes less time and memory than a list.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.

        Returns:
            The ids, an array of uint32, of shape (ids,).

        Raises:
            ValueError: the text holds a disallowed special token.
            UnicodeEncodeError: a str holds a lone surrogate, which is not repaired here, as in tiktoken.

        Example:
            >>> tokenizer.encode_to_numpy("lower")
            array([259, 114], dtype=uint32)
        """
        check(self)
        return self.ids(text, self.rules(allowed_special, disallowed_special), False, False)

    def _count(self, text, allowed, disallowed):
        """Number of ids of encode(), without the list."""
        check(self)
        return len(self.ids(text, self.rules(allowed, disallowed), False))

    cdef Rules rules(self, allowed, disallowed):
        """The rules of these arguments; the usual ones without a look-up."""
        if allowed is none:
            if type(disallowed) is str and disallowed == "all":
                return self.strict
            if not disallowed:
                return self.ordinary
        return self._text_encoder.policy.rules(allowed, disallowed)

    cdef object ids(self, text, Rules rules, bint as_list, bint repair=True):
        """The ids as a list or an array. repair: a lone surrogate becomes U+FFFD; otherwise it is refused."""
        cdef object ready = self.ready(text, rules)
        if ready is not None:
            if is_utf8(ready):      # no lone surrogate: a short call is a tenth faster without the try
                return self.encoder.ids_of(ready, rules, True, as_list)
            try:
                return self.encoder.ids_of(ready, rules, True, as_list)
            except UnicodeError:
                pass                # a lone surrogate, which the TextEncoder repairs or names the position of
        array = self._text_encoder.to_array(text, rules, repair=repair)
        return array.tolist() if as_list else array

    cdef object ready(self, text, Rules rules):
        """The text as the encoder takes it; None where there is no encoder for it."""
        if self.encoder is None and not self.has_encoder():
            return None
        if not self.alone and (not self.form or (type(text) is str and PyUnicode_IS_ASCII(text))):
            return text                 # ASCII is in every form
        return in_form(text, self.form, rules.all, self.alone)

    cdef bint has_encoder(self) except -1:
        """Make the encoder, if it takes texts. True if there is one."""
        if self.form is not None:
            encoder = self._text_encoder.encoder
            with cython.critical_section(self):
                if self.encoder is None:        # set once, as other threads read it without a lock
                    self.encoder = encoder
        return self.encoder is not None


cdef inline bint is_utf8(text):
    """True for bytes and for a str that is its own UTF-8."""
    return type(text) is bytes or (type(text) is str and PyUnicode_IS_ASCII(text))


cdef inline int check(object self) except -1:
    """TypeError for a method that was called with another object as self, which Cython lets through."""
    if not isinstance(self, EncodeMethods) or (<EncodeMethods> self)._text_encoder is None:
        raise TypeError(f"expected an initialized bpe.Tokenizer, got {type(self).__name__}")
    return 0
