"""Exercises of chapter 2: byte-pair encoding. Fill in the bodies, then run `python grade.py 2`."""

import regex  # like re, and knows \p{L}

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def count_pairs(words: dict[tuple[bytes, ...], int]) -> dict[tuple[bytes, bytes], int]:
    """Count each pair of neighbours in words (tuples of symbols) with the number of times that each word occurs."""


def apply_merge(word: tuple[bytes, ...], pair: tuple[bytes, bytes]) -> tuple[bytes, ...]:
    """A word in which each occurrence of a pair, from the left, has become one symbol."""


def train_bpe(
    input_path: str, vocab_size: int, special_tokens: list[str]
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Train byte-level BPE on a file of UTF-8, of which every byte counts (text mode turns \\r\\n into \\n).

    Split the text at the special tokens, cut the rest by PATTERN, and count the pieces. Then merge the most frequent
    pair, of several the greatest (max of pairs of bytes), until the vocabulary has vocab_size tokens: 256 bytes, the
    special tokens and the merges; or until there is no pair left.

    Returns the vocabulary, {id: token} with the ids 0, 1, 2, … in an order of your choice, and the merges in theirs.
    """


class Tokenizer:
    """A vocabulary and its merges, ready to encode and decode.

    Special tokens are in the vocabulary already. Where one begins with another, the longer one is looked for first.
    """

    def __init__(
        self, vocab: dict[int, bytes], merges: list[tuple[bytes, bytes]], special_tokens: list[str] | None = None
    ) -> None:
        pass

    def encode(self, text: str) -> list[int]:
        """The ids of a text. A special token in it becomes its own id."""

    def decode(self, ids: list[int]) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
