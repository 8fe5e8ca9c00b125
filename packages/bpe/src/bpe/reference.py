"""The executable specification: every algorithm of this package, slow and obvious.

Every fast path is tested against this file. Nothing here is meant to be run on more than a page of text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from bpe import patterns
from bpe.native.printable import PRINTABLE

Pair = tuple[bytes, bytes]


def pretokenize(text: bytes, pattern: patterns.SplitPattern) -> list[bytes]:
    """The pieces that tokens are made in: the matches of the pattern, and whatever lies between them.

    Joined, the pieces are the text. Bytes that are not UTF-8 are each a character without category (see
    patterns.split).
    """
    return patterns.split(text, patterns.resolve(pattern))


def split_special(text: bytes, special_tokens: Iterable[str | bytes]) -> list[tuple[bytes, bool]]:
    """Text cut at its special tokens: (piece, whether it is special); empty ordinary pieces are left out.

    From left to right; where several special tokens begin at one position, the longest is taken.
    """
    longest_first = sorted({_as_bytes(token) for token in special_tokens}, key=len, reverse=True)
    pieces = []
    start = position = 0
    while position < len(text):
        name = next((token for token in longest_first if text.startswith(token, position)), None)
        if name is None:
            position += 1
            continue
        if start < position:
            pieces.append((text[start:position], False))
        pieces.append((name, True))
        start = position = position + len(name)
    if start < position:
        pieces.append((text[start:position], False))
    return pieces


def count_pretokens(
    texts: Iterable[bytes],
    pattern: patterns.SplitPattern,
    special_tokens: Iterable[str | bytes],
) -> Counter[bytes]:
    """Count each pretoken of the texts. Special tokens split a text before the pattern, and do not count."""
    special_tokens = list(special_tokens)
    counts: Counter[bytes] = Counter()
    for text in texts:
        for piece, is_special in split_special(text, special_tokens):
            if not is_special:
                counts.update(pretokenize(piece, pattern))
    return counts


def train(
    counts: Mapping[bytes, int],
    vocab_size: int,
    *,
    special_tokens: Iterable[str | bytes] = ("<|endoftext|>",),
    tie_break: str = "bytes",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    superwords: tuple[Mapping[bytes, int], int, int | None] | None = None,
) -> tuple[dict[int, bytes], list[Pair]]:
    """(vocab, merges): merge the commonest pair of neighbours, count again, and so on up to vocab_size tokens.

    A pair counts once for every position it stands at, overlapping ones too ("aaa" holds "a","a" twice), times the
    count of its pretoken. Merging goes from left to right ("aaa" becomes "aa","a"). Training stops early when no pair
    left counts min_count (never below 1). A merge whose bytes are a token already gives that token, and vocab does not
    grow.

    tie_break decides among pairs of equal count, and how ids are given:
      "bytes"        the greatest (left bytes, right bytes). Ids: the 256 bytes in order, the special tokens that are
                     not among them, the merges. A token is never longer than max_token_bytes.
      "huggingface"  the smallest (left id, right id). Ids: the special tokens, the 256 bytes in the order of their
                     printable stand-ins, the merges. A merge of two bytes is always allowed, one that makes a
                     longer token only if that is shorter than max_token_bytes: so tokenizers' BpeTrainer reads
                     its max_token_length.
      "ids"          the smallest (left id, right id). Ids: the 256 bytes in order, the merges, the special tokens. A
                     token is never longer than max_token_bytes.
    vocab_size counts every token, special ones too. Raises ValueError where it has no room for these.

    superwords: (the counts of pretokens that a second pattern makes of the same texts, a size of the vocabulary, a
    number of words). At that size, or when no pair is left, merging goes on in these pretokens, encoded by the merges
    so far, as SuperBPE does it (Liu et al. 2025). From then on no token has more words than that, if it is not None, or
    a space after a colon.
    """
    specials = [_as_bytes(token) for token in special_tokens]
    if len(set(specials)) < len(specials):
        raise ValueError(f"special tokens are given twice: {specials}")

    # A token is known by its name, so that the special token "\n" and the byte "\n" stay two tokens where they are two.
    one_byte = [bytes([byte]) for byte in range(256)]
    if tie_break == "bytes":
        names = one_byte + [token for token in specials if token not in one_byte]
        spell = {token: token for token in one_byte}
    elif tie_break == "huggingface":
        spell = {token: PRINTABLE[token[0]].encode() for token in one_byte}
        names = specials + [name for name in sorted(spell.values()) if name not in specials]
    elif tie_break == "ids":
        names = one_byte
        spell = {token: token for token in one_byte}
    else:
        raise ValueError(f"tie_break is 'bytes', 'huggingface' or 'ids', not {tie_break!r}")
    last = [token for token in specials if token not in names]  # these follow the merges ("ids")
    if vocab_size < len(names) + len(last):
        raise ValueError(
            f"vocab_size is {vocab_size}, but the bytes and the special tokens alone are {len(names) + len(last)}"
        )
    ids = {name: number for number, name in enumerate(names)}
    text_of = {number: name for name, number in ids.items()}
    text_of |= {ids[name]: token for token, name in spell.items()}

    words = {pretoken: [ids[spell[bytes([byte])]] for byte in pretoken] for pretoken in counts}
    merges: list[Pair] = []
    max_words = None
    while len(ids) + len(last) < vocab_size:
        best = _best_pair(words, counts, text_of, tie_break, min_count, max_token_bytes, max_words)
        if superwords is not None and (best is None or len(ids) + len(last) >= superwords[1]):
            counts, max_words = superwords[0], superwords[2] or 1 << 32
            encoded = {token: number for number, token in text_of.items()}
            encoded |= {token: ids[name] for token, name in spell.items()}
            words = {chunk: encode_pretoken_by_merges(chunk, rank_merges(merges), encoded) for chunk in counts}
            superwords = None
            continue
        if best is None:
            break
        left, right = best
        merges.append((text_of[left], text_of[right]))
        merged = text_of[left] + text_of[right]
        name = b"".join(spell[bytes([byte])] for byte in merged)
        if name not in ids:
            ids[name] = len(ids)
            text_of[ids[name]] = merged
        words = {pretoken: _merge_pair(word, best, ids[name]) for pretoken, word in words.items()}

    for token in last:
        if token not in ids:
            ids[token] = len(ids)
            text_of[ids[token]] = token
    return text_of, merges


def extend(
    counts: Mapping[bytes, int],
    vocab: Mapping[int, bytes],
    encode_pretoken: Callable[[bytes], list[int]],
    vocab_size: int,
    *,
    tie_break: str = "bytes",
    min_count: int = 1,
    max_token_bytes: int | None = None,
) -> tuple[dict[int, bytes], list[Pair]]:
    """(vocab, the new merges): go on merging, as train() does, from what a tokenizer makes of the pretokens.

    encode_pretoken: its ids of a pretoken. New tokens get the ids after the largest.
    """
    text_of = dict(vocab)
    words = {pretoken: encode_pretoken(pretoken) for pretoken in counts}
    merges = []
    while len(text_of) < vocab_size:
        best = _best_pair(words, counts, text_of, tie_break, min_count, max_token_bytes)
        if best is None:
            break
        left, right = best
        merges.append((text_of[left], text_of[right]))
        new = max(text_of) + 1
        text_of[new] = text_of[left] + text_of[right]
        words = {pretoken: _merge_pair(word, best, new) for pretoken, word in words.items()}
    return text_of, merges


def _best_pair(
    words: Mapping[bytes, list[int]],
    counts: Mapping[bytes, int],
    text_of: Mapping[int, bytes],
    tie_break: str,
    min_count: int,
    max_token_bytes: int | None,
    max_words: int | None = None,
) -> tuple[int, int] | None:
    """The pair to merge next, all pairs counted anew; None where none is left. max_words: as for SuperBPE."""
    pair_counts: Counter[tuple[int, int]] = Counter()
    for pretoken, word in words.items():
        for pair in pairwise(word):
            pair_counts[pair] += counts[pretoken]

    candidates = []
    for (left, right), count in pair_counts.items():
        size = len(text_of[left]) + len(text_of[right])
        if max_token_bytes is None:
            fits = True
        elif tie_break == "huggingface":
            fits = size == 2 or size < max_token_bytes
        else:
            fits = size <= max_token_bytes
        if max_words is not None:
            token = text_of[left] + text_of[right]
            fits = fits and len(token.split()) <= max_words and b": " not in token
        if fits and count >= max(min_count, 1):
            candidates.append((count, (left, right)))
    if not candidates:
        return None
    if tie_break == "bytes":
        return max(candidates, key=lambda c: (c[0], (text_of[c[1][0]], text_of[c[1][1]])))[1]
    return max(candidates, key=lambda c: (c[0], (-c[1][0], -c[1][1])))[1]


def _merge_pair(word: list[int], pair: tuple[int, int], merged: int) -> list[int]:
    result = []
    position = 0
    while position < len(word):
        if tuple(word[position : position + 2]) == pair:
            result.append(merged)
            position += 2
        else:
            result.append(word[position])
            position += 1
    return result


def encode_pretoken_by_merges(
    pretoken: bytes, merges: Mapping[Pair, int], ids: Mapping[bytes, int], *, ignore_merges: bool = False
) -> list[int]:
    """The ids of a pretoken under an explicit merge list, as tokenizers and GPT-2's own encoder have it.

    merges: the rank of each pair, {pair: index in the merge list}. Starting from single bytes, the neighbours of
    lowest rank are merged, the leftmost first, one at a time, until no neighbours are in the list. With ignore_merges
    (tokenizers' ignore_merges) a pretoken that is itself a token is that token, whatever the merges say. Raises
    KeyError for a byte that is not in ids.
    """
    if ignore_merges and pretoken in ids:
        return [ids[pretoken]]
    parts = [bytes([byte]) for byte in pretoken]
    while True:
        ranked = [(merges[pair], index) for index, pair in enumerate(pairwise(parts)) if pair in merges]
        if not ranked:
            return [ids[part] for part in parts]
        _, index = min(ranked)
        parts[index : index + 2] = [parts[index] + parts[index + 1]]


def encode_pretoken_by_ranks(pretoken: bytes, ranks: Mapping[bytes, int], *, ignore_merges: bool = True) -> list[int]:
    """The ids of a pretoken where a token's rank is both its id and its index in the order of merging, as in tiktoken.

    Starting from single bytes, the neighbours which joined are the token of lowest rank are merged, the leftmost first,
    one at a time, until no neighbours joined are a token. With ignore_merges (as in tiktoken) a pretoken that is itself
    a token is that token. Raises KeyError for a byte that is not in ranks.
    """
    if ignore_merges and pretoken in ranks:
        return [ranks[pretoken]]
    parts = [bytes([byte]) for byte in pretoken]
    while True:
        tokens = [left + right for left, right in pairwise(parts)]
        ranked = [(ranks[token], index) for index, token in enumerate(tokens) if token in ranks]
        if not ranked:
            return [ranks[part] for part in parts]
        _, index = min(ranked)
        parts[index : index + 2] = [parts[index] + parts[index + 1]]


def rank_merges(merges: Sequence[Pair]) -> dict[Pair, int]:
    """{pair: its index in the merge list}, as encode_pretoken_by_merges wants it."""
    return {pair: rank for rank, pair in enumerate(merges)}


def encode(
    text: bytes,
    encode_pretoken: Callable[[bytes], list[int]],
    *,
    pattern: patterns.SplitPattern,
    special_tokens: Mapping[str, int] | None = None,
) -> list[int]:
    """The ids of text: special tokens first, then the pattern, then encode_pretoken on every pretoken.

    special_tokens: {name: id} of those that are allowed; the text of any other is ordinary text.
    """
    special_ids = {_as_bytes(name): number for name, number in (special_tokens or {}).items()}
    result = []
    for piece, is_special in split_special(text, special_ids):
        if is_special:
            result.append(special_ids[piece])
        else:
            for pretoken in pretokenize(piece, pattern):
                result.extend(encode_pretoken(pretoken))
    return result


def decode(ids: Iterable[int], vocab: Mapping[int, bytes]) -> bytes:
    """The bytes of the ids, joined. They need not be UTF-8. Raises KeyError for an unknown id."""
    return b"".join(vocab[number] for number in ids)


def _as_bytes(token: str | bytes) -> bytes:
    token = token.encode() if isinstance(token, str) else token
    if not token:
        raise ValueError("a special token is empty")
    return token
