"""Training by the names of tokenizers up to 0.23, which tokenizers 1.0 no longer has.

A script that trained with tokenizers runs with its imports changed:

    from bpe.trainers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train(["corpus.txt"], trainers.BpeTrainer(vocab_size=32000, special_tokens=["<|endoftext|>"]))
    tokenizer.save("tokenizer.json")

Merges, vocabulary and ids equal tokenizers 0.23's; the file loads in 0.23 and 1.0, and in bpe.load() if it is
byte-level. Two things differ. Where limit_alphabet drops some of equally common characters, 0.23 drops any of them, and
this the last. Where merging makes a special token, 0.23 prefers it in later ties, and this does not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from bpe import patterns
from bpe.counting.count import count_source
from bpe.encoding import normalizing
from bpe.expressions.properties import white_space
from bpe.merging.alphabet import CodeBatches, batches, count_codes, spell_codes
from bpe.merging.learn import Rule, learn
from bpe.native.atomic_file import StrPath, write_atomically
from bpe.native.lazy_imports import import_lock
from bpe.native.parallel import available_cpus
from bpe.native.printable import PRINTABLE
from bpe.native.progress import reporter
from bpe.scanning.special_tokens import SpecialTokens
from bpe.trainers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from bpe.trainers._component import Component, Regex
from bpe.trainers.trainers import AddedToken, BpeTrainer, refuse_affixes

if TYPE_CHECKING:
    from bpe.counting.records import Records

__all__ = [
    "AddedToken",
    "BpeTrainer",
    "Regex",
    "Tokenizer",
    "decoders",
    "models",
    "normalizers",
    "pre_tokenizers",
    "processors",
    "trainers",
]


class Tokenizer:
    """A pipeline and the model that is trained for it, as tokenizers' Tokenizer.

    Any other method, such as encode(), decode() or enable_padding(), is that of the package tokenizers, if installed,
    for the trained tokenizer.

    Attributes:
        model, normalizer, pre_tokenizer, post_processor, decoder: The parts, or None. A text without a pre_tokenizer is
            one pretoken.

    Example:
        >>> from bpe.trainers import Tokenizer, models, pre_tokenizers, trainers
        >>> tokenizer = Tokenizer(models.BPE())
        >>> tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        >>> tokenizer.train_from_iterator(["low lower lowest"], trainers.BpeTrainer(vocab_size=12))
        >>> tokenizer.token_to_id("Ġlow")
        10
    """

    def __init__(self, model: Component) -> None:
        if model.kind != "BPE":
            raise TypeError(f"expected models.BPE, got {model!r}")
        refuse_affixes(model.options)
        self.model = model
        self.normalizer: Component | None = None
        self.pre_tokenizer: Component | None = None
        self.post_processor: Component | None = None
        self.decoder: Component | None = None
        self._vocab: dict[str, int] = dict(model.options["vocab"] or {})
        self._merges: list[tuple[str, str]] = list(model.options["merges"] or [])
        self._added: list[AddedToken] = []
        self._peer: tuple[str, Any] | None = None

    def train(self, files: StrPath | list[StrPath], trainer: BpeTrainer | None = None) -> None:
        """Train on files of UTF-8; each line, its "\\n" included, is a text of its own.

        Args:
            files: Paths.
            trainer: Settings of the vocabulary; BpeTrainer() if None.

        Raises:
            ValueError: A part of the pipeline is not supported, or a file is not UTF-8.
            OSError: A file cannot be read.
        """
        self._train(_lines([files] if isinstance(files, (str, os.PathLike)) else files), trainer or BpeTrainer())

    def train_from_iterator(
        self, iterator: Iterable[str | Iterable[str]], trainer: BpeTrainer | None = None, length: int | None = None
    ) -> None:
        """Train on texts, or on lists of texts.

        Args:
            iterator: The texts.
            trainer: Settings of the vocabulary; BpeTrainer() if None.
            length: Taken as tokenizers takes it, and not needed.

        Raises:
            TypeError: An item is neither a str nor an iterable of str.
            ValueError: A part of the pipeline is not supported.
        """
        self._train(_strings(iterator), trainer or BpeTrainer())

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """Return the id of each token, as tokenizer.json spells it."""
        return dict(self._vocab)

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """Return the number of tokens."""
        return len(self._vocab)

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, or None."""
        return self._vocab.get(token)

    def id_to_token(self, id: int) -> str | None:
        """Return the token of an id, or None."""
        return next((token for token, number in self._vocab.items() if number == id), None)

    def to_str(self, pretty: bool = False) -> str:
        """Return the content of tokenizer.json."""
        model = {name: value for name, value in self.model.to_json().items() if name != "cache_capacity"}
        file = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": self._vocab[token.content], **vars(token)} for token in self._added],
            "normalizer": _json(self.normalizer),
            "pre_tokenizer": _json(self.pre_tokenizer),
            "post_processor": _json(self.post_processor),
            "decoder": _json(self.decoder),
            "model": {**model, "vocab": self._vocab, "merges": [list(pair) for pair in self._merges]},
        }
        return json.dumps(file, ensure_ascii=False, indent=2 if pretty else None)

    def save(self, path: StrPath, pretty: bool = True) -> None:
        """Write tokenizer.json, atomically."""
        write_atomically(path, self.to_str(pretty).encode())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            with import_lock:
                import tokenizers
        except ImportError:
            raise AttributeError(
                f"{name!r} is a method of the package tokenizers, which is not installed; save() writes a file that "
                "bpe.load() reads if it is byte-level"
            ) from None
        content = self.to_str()
        if self._peer is None or self._peer[0] != content:
            self._peer = content, tokenizers.Tokenizer.from_str(content)
        return getattr(self._peer[1], name)

    def _train(self, texts: Iterator[str], trainer: BpeTrainer) -> None:
        words = _Words(_json(self.normalizer), _json(self.pre_tokenizer))
        with reporter(trainer.show_progress and find_spec("tqdm") is not None) as report:
            records = words.count(texts, report)
            self._vocab, self._merges = _learn(records, words, trainer, report)
        self._added = trainer.added_tokens


def _json(part: Component | None) -> dict[str, Any] | None:
    return None if part is None else part.to_json()


def _lines(paths: list[StrPath]) -> Iterator[str]:
    for path in paths:
        with open(path, encoding="utf-8", newline="\n") as file:
            yield from file


def _strings(items: Iterable[str | Iterable[str]]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
            continue
        for text in item:
            if not isinstance(text, str):
                raise TypeError(f"expected a str, got {text!r}")
            yield text


class _Words:
    """The pretokens of a pipeline: counted as bytes, by the compiled scanners where one serves the pre-tokenizer."""

    def __init__(self, normalizer: dict[str, Any] | None, pre_tokenizer: dict[str, Any] | None) -> None:
        normalize = normalizing.normalizer_of(normalizing.checked(_parts(normalizer, "normalizers")))
        changes: list[Callable[[str], str]] = [normalize] if normalizer else []
        steps = _parts(pre_tokenizer, "pretokenizers")
        byte_level = any(step["type"] == "ByteLevel" for step in steps)
        if steps and steps[0]["type"] == "Metaspace":
            changes.append(_metaspace(steps[0]))
            merge = {"pattern": {"String": steps[0]["replacement"]}, "behavior": "MergedWithNext", "invert": False}
            steps = [*([{"type": "Split", **merge}] if steps[0]["split"] else []), *steps[1:]]
        elif steps and steps[0]["type"] == "ByteLevel" and steps[0]["add_prefix_space"]:
            changes.append(lambda text: text if text.startswith(" ") else f" {text}")
            steps[0] = {**steps[0], "add_prefix_space": False}
        if not byte_level:  # the same pieces as bytes
            steps.append({"type": "ByteLevel", "add_prefix_space": False, "use_regex": False})
        self.changes, self.byte_level = changes, byte_level
        before = [step["type"] for step in steps].index("ByteLevel")
        self.dropped: tuple[bytes, ...] = ()  # how the pretokens begin that do not count
        byte_steps = [step for step in steps if step["type"] == "ByteLevel"]
        # Where pieces are given a space in front or become bytes twice, so would those that are dropped after counting.
        if len(byte_steps) > 1 or byte_steps[0]["add_prefix_space"]:
            self.pattern = patterns.of_steps(steps)
        else:
            self.pattern = patterns.of_steps([part for step in steps for part in _isolating(step)])
            if any(step["type"] in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer") for step in steps[:before]):
                # white space, which no character is after ByteLevel
                self.dropped = tuple(chr(code).encode() for a, z in white_space() for code in range(a, z + 1))

    def count(self, texts: Iterator[str], report: Any) -> Records:
        """Return the pretokens of texts and how often each occurs. Texts of no characters are passed over."""
        for change in self.changes:
            texts = map(change, texts)
        return count_source(filter(None, texts), self.pattern, SpecialTokens(()), available_cpus(), report, None)

    def codes(self, records: Records) -> CodeBatches:
        """Yield, for some pretokens at a time: their code points, how many each has, and how often it occurs."""
        printable = np.array([ord(character) for character in PRINTABLE], dtype=np.uint32)
        for pretokens, counts in batches(records):
            if self.dropped:
                rows = [i for i, pretoken in enumerate(pretokens) if not pretoken.startswith(self.dropped)]
                pretokens, counts = [pretokens[i] for i in rows], [counts[i] for i in rows]
            if self.byte_level:  # a pretoken may be part of a character
                codes = printable[np.frombuffer(b"".join(pretokens), dtype=np.uint8)]
                sizes = [len(pretoken) for pretoken in pretokens]
            else:
                texts = [pretoken.decode() for pretoken in pretokens]
                codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")
                sizes = [len(text) for text in texts]
            yield codes, np.array(sizes, dtype=np.int64), np.array(counts, dtype=np.uint64)


def _parts(part: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    if part is None or part["type"] != "Sequence":
        return [] if part is None else [part]
    return [inner for piece in part[key] for inner in _parts(piece, key)]


def _metaspace(step: dict[str, Any]) -> Callable[[str], str]:
    mark, scheme = step["replacement"], step["prepend_scheme"]

    def change(text: str) -> str:
        text = text.replace(" ", mark)
        return text if scheme == "never" or text.startswith(mark) else mark + text

    return change


def _isolating(step: dict[str, Any]) -> list[dict[str, Any]]:
    """Return steps that only isolate matches, which are compiled, for one that drops or moves them.

    The pieces are the same, and pieces of white space, which are dropped after counting.
    """

    def isolate(expression: str) -> dict[str, Any]:
        return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}

    kind, string = step["type"], step.get("pattern", {}).get("String", "")
    if kind == "Whitespace":
        return [isolate(r"[\w\u200c\u200d]+|[^\w\s\u200c\u200d]+")]
    if kind == "WhitespaceSplit":
        return [isolate(r"\s")]
    if kind == "BertPreTokenizer":
        return [isolate(r"\s"), {"type": "Punctuation", "behavior": "Isolated"}]
    if kind == "Split" and len(string) == 1 and not step["invert"]:
        one, others = re.escape(string), f"[^{re.escape(string)}]"
        if step["behavior"] == "MergedWithNext":
            return [isolate(f"{one}{others}*|{others}+")]
        if step["behavior"] == "MergedWithPrevious":
            return [isolate(f"{others}*{one}|{others}+")]
    return [step]


def _learn(
    records: Records, words: _Words, trainer: BpeTrainer, report: Any
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the id of each token, and the merges.

    A symbol is spelled by four bytes a character, so that a bound in characters is one in bytes.
    """
    special = list(dict.fromkeys(token.content for token in trainer.added_tokens))
    total = count_codes(words.codes(records))
    total[[ord(text[0]) for text in trainer.initial_alphabet if text]] = np.iinfo(np.uint64).max
    codes = sorted(np.flatnonzero(total).tolist(), key=lambda code: -int(total[code]))
    alphabet = map(chr, sorted(codes[: trainer.limit_alphabet]))
    first = special + [character for character in alphabet if character not in special]
    symbol_of = {ord(token): i for i, token in enumerate(first) if len(token) == 1}
    spelled = spell_codes(words.codes(records), symbol_of, divide=False)
    longest = 0 if trainer.max_token_length is None else 4 * max(2, trainer.max_token_length - 1)
    rule = Rule(False, max(1, trainer.min_frequency), longest)
    merge_count, repeated = max(0, trainer.vocab_size - len(first)), 0
    while True:  # again, with more merges, where a merge made a special token, which is no new one
        symbols = [token.encode("utf-32-le") for token in first]
        tokens, halves = learn(spelled, symbols, merge_count + repeated, rule, spelled=True, report=report)
        texts = [token.decode("utf-32-le") for token in tokens]
        again = len(texts) - len(set(texts))
        if again == repeated or len(texts) < len(first) + merge_count + repeated:
            break
        repeated = again
    pairs = np.frombuffer(halves, dtype=np.uint32).reshape(-1, 2).tolist()
    vocab = {token: i for i, token in enumerate(dict.fromkeys(texts))}
    return vocab, [(texts[left], texts[right]) for left, right in pairs]
