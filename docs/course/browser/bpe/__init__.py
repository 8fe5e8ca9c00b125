"""The names of bpe that chapter 2's grader uses, by bpe's reference: in a browser there is nothing compiled."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from bpe import reference


class Tokenizer:
    """Merges and special tokens, with the names of bpe.Tokenizer."""

    def __init__(self, vocab: dict[int, bytes], merges: list[tuple[bytes, bytes]], special_tokens: list[str]) -> None:
        ids = {token: number for number, token in vocab.items()}
        self.merges, self.special_tokens = merges, {name: ids[name.encode()] for name in special_tokens}
        self.vocab = {number: vocab[number] for number in vocab if number not in self.special_tokens.values()}
        ranks = reference.rank_merges(merges)
        self._pretoken: Callable[[bytes], list[int]] = cache(
            lambda pretoken: reference.encode_pretoken_by_merges(pretoken, ranks, ids)
        )

    def encode(self, text: str, *, allowed_special: str = "") -> list[int]:
        """Return the ids of a text, its special tokens as such if allowed_special is "all"."""
        special_tokens = self.special_tokens if allowed_special == "all" else None
        return reference.encode(text.encode(), self._pretoken, pattern="gpt2", special_tokens=special_tokens)

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the ids of a text without special tokens."""
        return self.encode(text)


def train(
    source: Path | Iterable[str], vocab_size: int, *, special_tokens: Iterable[str] = ("<|endoftext|>",)
) -> Tokenizer:
    """Train on a file or on texts, as bpe.train does."""
    special_tokens = list(special_tokens)
    texts = [source.read_bytes().decode()] if isinstance(source, Path) else source
    counts = reference.count_pretokens((text.encode() for text in texts), "gpt2", special_tokens)
    return Tokenizer(*reference.train(counts, vocab_size, special_tokens=special_tokens), special_tokens)
