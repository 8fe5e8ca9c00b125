"""Exercises of chapter 3: judging a tokenizer. Fill in the bodies, then run `python grade.py 3`.

A tokenizer here is a bpe.Tokenizer: encode(text) gives ids, decode(ids) a text, vocab is {id: token}.
"""


def compression_ratio(tokenizer, text: str) -> float:
    """Bytes of UTF-8 for each token of a text."""


def unused_tokens(tokenizer, text: str) -> list[int]:
    """The ids of the vocabulary, in order, that encoding this text does not give."""


def parts_of_characters(tokenizer) -> list[int]:
    """The ids, in order, whose tokens are no well-formed UTF-8 by themselves."""
