"""Every peer that this package is measured beside, in one place: how each trains, encodes and decodes.

A peer is imported when it is used. The tables name, for each candidate, the package it needs and what makes it ready.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import bpe

SPECIAL = "<|endoftext|>"
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

Tokens = Iterable[bytes]
Later = Callable[[], Tokens]  # the tokens, made comparable when time and memory have been taken
Call = Callable[[Any], Any]

# Encoding


class Encoder(NamedTuple):
    """A tokenizer, loaded: what encodes one text, and what encodes a list of them on some threads."""

    one: Call
    many: Callable[[list[Any], int], Any]


def processor() -> str:
    """The name of the processor, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "a processor without a name"


def ours_to_array(name: str) -> Encoder:
    result = bpe.load(name)
    return Encoder(
        lambda text: result.encode_to_numpy(text, disallowed_special=()),
        lambda texts, threads: result.encode_batch_to_numpy(texts, num_threads=threads, disallowed_special=()),
    )


def ours_to_list(name: str) -> Encoder:
    result = bpe.load(name)
    return Encoder(
        result.encode_ordinary, lambda texts, threads: result.encode_ordinary_batch(texts, num_threads=threads)
    )


def gigatoken_to_array(name: str) -> Encoder:
    import gigatoken

    result = (
        gigatoken.Tokenizer.from_tiktoken(name) if name.endswith(".tiktoken") else gigatoken.Tokenizer(as_json(name))
    )
    return Encoder(result.encode, lambda texts, threads: result.encode_batch(texts, parallel=threads > 1))


def gigatoken_to_list(name: str) -> Encoder:
    import gigatoken

    result = (
        gigatoken.Tokenizer.from_tiktoken(name) if name.endswith(".tiktoken") else gigatoken.Tokenizer(as_json(name))
    )
    return Encoder(
        lambda text: result.encode(text).tolist(),
        lambda texts, threads: result.encode_batch_list(texts, parallel=threads > 1),
    )


def fastokens_to_array(name: str) -> Encoder:
    import fastokens

    result = fastokens.Tokenizer.from_file(as_json(name))
    return Encoder(result.encode_ordinary, lambda texts, _: result.encode_batch(texts))


def tokie_to_array(name: str) -> Encoder:
    import tokie

    result = tokie.Tokenizer.from_json(as_json(name))
    return Encoder(
        lambda text: result.encode(text).ids, lambda texts, _: [results.ids for results in result.encode_batch(texts)]
    )


def tokenizers_to_list(name: str) -> Encoder:
    from tokenizers import Tokenizer

    result = Tokenizer.from_file(as_json(name))
    return Encoder(
        lambda text: result.encode(text, add_special_tokens=False).ids,
        lambda texts, _: [results.ids for results in result.encode_batch(texts, add_special_tokens=False)],
    )


def ranks_of(name: str) -> tuple[dict[bytes, int], str]:
    """Ranks and split pattern, as tiktoken wants them; of a merge list the ids, where they follow the merges."""
    tokenizer = bpe.load(name)
    special = set(tokenizer.special_tokens.values())
    expression = tokenizer.data.pattern.expressions[0].replace(r"\s+(?!\s|\S)|", "")
    return {token: number for number, token in tokenizer.vocab.items() if number not in special}, expression


def tiktoken_of(name: str) -> Any:
    import tiktoken
    from tiktoken_ext import openai_public

    tokenizer = bpe.load(name)
    ranks, expression = ranks_of(name)
    if tokenizer.pattern == "gpt2":
        expression = openai_public.r50k_pat_str  # the same in other words, which tiktoken is faster with
    special = dict(tokenizer.special_tokens)
    return tiktoken.Encoding("benchmark", pat_str=expression, mergeable_ranks=ranks, special_tokens=special)


def tiktoken_to_list(name: str) -> Encoder:
    result = tiktoken_of(name)
    return Encoder(
        result.encode_ordinary, lambda texts, threads: result.encode_ordinary_batch(texts, num_threads=threads)
    )


def riptoken_to_list(name: str) -> Encoder:
    import riptoken

    ranks, expression = ranks_of(name)
    result = riptoken.CoreBPE(ranks, {}, expression)
    return Encoder(result.encode_ordinary, lambda texts, _: result.encode_ordinary_batch(texts))


# candidate: its package, how to load the tokenizer of a name or path
ENCODERS: dict[str, tuple[str, Callable[[str], Encoder]]] = {
    "bpe, str to array": ("bpe", ours_to_array),
    "bpe, bytes to array": ("bpe", ours_to_array),
    "bpe, str to list": ("bpe", ours_to_list),
    "gigatoken": ("gigatoken", gigatoken_to_array),
    "gigatoken, to list": ("gigatoken", gigatoken_to_list),
    "fastokens": ("fastokens", fastokens_to_array),
    "tokie": ("tokie", tokie_to_array),
    "riptoken": ("riptoken", riptoken_to_list),
    "tiktoken": ("tiktoken", tiktoken_to_list),
    "tokenizers": ("tokenizers", tokenizers_to_list),
}


def as_json(name: str) -> str:
    """The tokenizer as a tokenizer.json that every peer reads: one for ranks, in a temporary file without gaps between
    ids.
    """
    if name.endswith(".json"):
        return name
    path = Path(tempfile.gettempdir(), f"groundup-bench-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json")
    if not path.exists():
        bpe.load(name).to_huggingface(path)
        data = json.loads(path.read_text())
        vocab = data["model"]["vocab"]
        vocab |= {token["content"]: token["id"] for token in data["added_tokens"]}
        prefix = set(vocab.values())
        vocab |= {f"<|unused{number}|>": number for number in range(max(prefix)) if number not in prefix}
        path.write_text(json.dumps(data, ensure_ascii=False))
    return str(path)


# Decoding: the same peers, given a tokenizer.json


def gigatoken_of(path: str) -> Any:
    import gigatoken

    return gigatoken.Tokenizer(path)


def tokenizers_to_text(path: str) -> Call:
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(path)
    return lambda ids: loaded.decode(ids, skip_special_tokens=False)


# candidate: its package, how to make what decodes, whether it is given an array
DECODERS: dict[str, tuple[str, Callable[[str], Call], bool]] = {
    "bpe, array to bytes": ("bpe", lambda path: bpe.load(path).decode_bytes, True),
    "bpe, list to bytes": ("bpe", lambda path: bpe.load(path).decode_bytes, False),
    "bpe, list to str": ("bpe", lambda path: bpe.load(path).decode, False),
    "tiktoken, list to bytes": ("tiktoken", lambda path: tiktoken_of(path).decode_bytes, False),
    "tiktoken, list to str": ("tiktoken", lambda path: tiktoken_of(path).decode, False),
    "gigatoken, list": ("gigatoken", lambda path: gigatoken_of(path).decode, False),
    "gigatoken, array": ("gigatoken", lambda path: gigatoken_of(path).decode, True),
    "tokenizers, list to str": ("tokenizers", tokenizers_to_text, False),
}


# Training


def documents(path: str) -> list[str]:
    """The text between special tokens, for peers that would read a file by its lines and so cut runs of line ends."""
    return Path(path).read_text(encoding="utf-8", errors="replace").split(SPECIAL)


def printable_to_bytes(vocab: Iterable[str]) -> list[bytes]:
    """Tokens spelled as GPT-2 spells them, without the special one."""
    from bpe.formats.vocabularies import from_printable

    return [token for text in vocab if text != SPECIAL and (token := from_printable(text)) is not None]


def train_ours(path: str, size: int, tie_break: str) -> Callable[[], Later]:
    def run() -> Later:
        tokenizer = bpe.train(path, size, tie_break=tie_break)
        _ = tokenizer.merges  # which others make in the same call, and ours when they are asked for
        return tokenizer.token_byte_values

    return run


def train_gigabpe(path: str, size: int) -> Callable[[], Later]:
    import gigabpe

    def run() -> Later:
        vocab, _ = gigabpe.train_bpe([path], size, special_tokens=[SPECIAL])
        return lambda: printable_to_bytes(vocab)

    return run


def train_gigatoken(path: str, size: int) -> Callable[[], Later]:
    import gigatoken

    def run() -> Later:
        vocab, _ = gigatoken.train_bpe(gigatoken.TextFileSource([path]), size, [SPECIAL])
        return lambda: [token for token in vocab.values() if token != SPECIAL.encode()]

    return run


def train_tokenizers(path: str, size: int) -> Callable[[], Later]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    def run() -> Later:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=[SPECIAL], initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(documents(path), trainer)
        return lambda: printable_to_bytes(tokenizer.get_vocab())

    return run


def train_rustbpe(path: str, size: int) -> Callable[[], Later]:
    import rustbpe

    def run() -> Later:
        tokenizer = rustbpe.Tokenizer()
        tokenizer.train_from_iterator(iter(documents(path)), size - 1, pattern=GPT2)
        return lambda: [bytes(token) for token, _ in tokenizer.get_mergeable_ranks()]

    return run


def train_bpeasy(path: str, size: int) -> Callable[[], Later]:
    import bpeasy

    def run() -> Later:
        results = bpeasy.train_bpe(iter(documents(path)), GPT2, 1 << 20, size - 1)
        return lambda: [bytes(token) for token in results]

    return run


def train_sentencepiece(path: str, size: int) -> Callable[[], Later]:
    import sentencepiece

    def run() -> Later:
        with tempfile.TemporaryDirectory() as folder:
            sentencepiece.SentencePieceTrainer.train(
                input=path, model_prefix=f"{folder}/model", model_type="bpe", vocab_size=size, byte_fallback=True,
                character_coverage=0.9995, num_threads=os.cpu_count(), minloglevel=2, max_sentence_length=1 << 20,
            )  # fmt: skip
            lines = Path(folder, "model.vocab").read_text(encoding="utf-8").splitlines()
        return lambda: [line.split("\t")[0].encode() for line in lines]

    return run


# candidate: its package, how to train on the file of a path to a vocabulary of a size
TRAINERS: dict[str, tuple[str, Callable[[str, int], Callable[[], Later]]]] = {
    "bpe": ("bpe", lambda path, size: train_ours(path, size, "bytes")),
    "bpe, tie_break huggingface": ("bpe", lambda path, size: train_ours(path, size, "huggingface")),
    "bpe, tie_break ids": ("bpe", lambda path, size: train_ours(path, size, "ids")),
    "gigabpe": ("gigabpe", train_gigabpe),
    "gigatoken": ("gigatoken", train_gigatoken),
    "rustbpe": ("rustbpe", train_rustbpe),
    "tokenizers": ("tokenizers", train_tokenizers),
    "bpeasy": ("bpeasy", train_bpeasy),
    "sentencepiece": ("sentencepiece", train_sentencepiece),
}
