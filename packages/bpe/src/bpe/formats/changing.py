"""A tokenizer with more added tokens, or with fewer merges: all else that it has stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bpe import encoding, formats
from bpe.formats import Pair, TokenizerData, Words
from bpe.native.checks import integer

NewTokens = Iterable[str] | Mapping[str, int]


def with_tokens(data: TokenizerData, tokens: NewTokens, *, special: bool) -> TokenizerData:
    """Return a tokenizer that has these added tokens too.

    As in transformers, a token that is an added one already keeps its id, and becomes special if it is to be; one that
    the file of the vocabulary spells as an ordinary token gets the id of that; the others get the ids after the
    largest, or from a mapping. Raises as Tokenizer.add_tokens().
    """
    if isinstance(tokens, str):
        raise TypeError(f"expected a list of tokens or {{token: id}}, got the str {tokens!r}: put it into a list")
    vocab, added, specials = dict(data.vocab), dict(data.added_tokens), dict(data.special_tokens)
    ordinary = {_spelled(data, token): number for token, number in formats.ordinary_ids(data).items()}
    normalized = set(data.normalized)
    for token in tokens:
        if not isinstance(token, str):
            raise TypeError(f"expected a str as an added token, got {token!r}")
        if not token:
            raise ValueError("an added token is empty; give it at least one character or leave it out")
        is_new = token not in added and token not in specials
        present = specials.get(token, added.get(token, ordinary.get(token)))
        number = max(vocab) + 1 if present is None else present
        if isinstance(tokens, Mapping):
            if present not in (None, tokens[token]):
                raise ValueError(f"the token {token!r} has the id {present} already, not {tokens[token]}")
            number = tokens[token]
        if present is None:
            if number in vocab:
                raise ValueError(f"the id {number} for {token!r} is that of {vocab[number]!r}; give another one")
            vocab[number] = token.encode()
        if token not in specials:
            added.pop(token, None)
            (specials if special else added)[token] = number
        # transformers looks for ordinary added tokens in the normalized text, and for special ones before
        if is_new and not special and data.normalizer is not None:
            normalized.add(token)
        elif special:
            normalized.discard(token)
    formats.check_ids(vocab)
    return data._replace(
        vocab=vocab, added_tokens=added, special_tokens=specials, normalized=frozenset(normalized), name=None
    )


def _spelled(data: TokenizerData, token: bytes) -> str:
    """A token of the vocabulary as its file spells it; a lone byte among characters equals no str."""
    return encoding.words.spelled_by(data.words if data.characters is None else Words(False, metaspace="always"), token)


def with_vocab_size(data: TokenizerData, vocab_size: int, merges: Iterable[Pair]) -> TokenizerData:
    """Return a tokenizer without the tokens of its last merges, given also where it merges by rank.

    Ids above the id of a token that goes move down, as in a training to the smaller size. Raises as
    Tokenizer.with_vocab_size().
    """
    if data.characters is not None and data.characters.late:
        raise ValueError("a vocabulary with tokens that merge late cannot be cut: train a smaller one")
    ids = formats.ordinary_ids(data)
    merges = list(merges)
    merged = list(dict.fromkeys(left + right for left, right in merges if left + right in ids))
    least, size = len(data.vocab) - len(merged), integer("vocab_size", vocab_size)
    if not least <= size <= len(data.vocab):
        raise ValueError(f"expected vocab_size from {least:,} (without merges) to {len(data.vocab):,}, got {size:,}")
    gone = set(merged[size - least :])
    gone_ids = {ids[token] for token in gone}
    new_id: dict[int, int] = {}
    shift = 0
    for number in sorted(data.vocab):
        shift += number in gone_ids
        new_id[number] = number - shift

    def moved(numbers: Mapping[str, int]) -> dict[str, int]:
        return {text: new_id[number] for text, number in numbers.items()}

    changes: dict[str, Any] = {
        "vocab": {new_id[number]: token for number, token in data.vocab.items() if number not in gone_ids},
        "special_tokens": moved(data.special_tokens),
        "added_tokens": moved(data.added_tokens),
        "unspelled": frozenset(new_id[number] for number in data.unspelled),
        "name": data.name if not gone else None,
    }
    if data.merges is not None:
        changes["merges"] = [pair for pair in merges if not gone.intersection((*pair, pair[0] + pair[1]))]
    if data.characters is not None:
        byte_ids = tuple(new_id[number] for number in data.characters.byte_ids)
        changes["characters"] = data.characters._replace(byte_ids=byte_ids)
    if data.words is not None and data.words.unk >= 0:
        changes["words"] = data.words._replace(unk=new_id[data.words.unk])
    return data._replace(**changes)
