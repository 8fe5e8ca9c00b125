"""A small tokenizer, text to encode with it, and tokens to train on."""

import gzip
import json
import random

import numpy as np

END = "<|endoftext|>"


def tokenizer():
    import bpe

    vocab = {i: bytes([i]) for i in range(256)} | {256: b"th", 257: b"the", 258: b" a"}
    merges = [(b"t", b"h"), (b"th", b"e"), (b" ", b"a")]
    return bpe.Tokenizer(vocab, merges, special_tokens=[END, "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"])


def stories(count, seed=0, words=30):
    """Documents of some hundred bytes, each unlike the others, in several scripts."""
    draw = random.Random(seed)
    vocabulary = ["the", "a", "they", "ran", "été", "水", "\n", "then", "othello", "end.", "🙂", "12"]
    return [f"{i} " + " ".join(draw.choices(vocabulary, k=draw.randrange(1, 2 * words))) for i in range(count)]


def as_text(documents):
    return END.join(documents).encode()


def as_json_lines(documents):
    return "".join(json.dumps({"meta": i, "text": text}) + "\n" for i, text in enumerate(documents)).encode()


def as_gzip(data):
    return gzip.compress(data, 1)


def read_back(tokenizer, tokens):
    """The documents of a token file, and that each is followed by end-of-text."""
    text = tokenizer.decode_bytes(tokens.ids[:].tolist()).decode()
    assert text.endswith(END)
    return text.removesuffix(END).split(END)


def restored(infill, ids):
    """The ids of one document of lm.data.infill, without the marks and in the order of its text."""
    places = [np.flatnonzero(ids == mark) for mark in (infill.prefix_id, infill.suffix_id, infill.middle_id)]
    if not any(len(place) for place in places):
        return ids
    (prefix,), (suffix,), (middle,) = places
    assert 0 == prefix < suffix < middle
    return np.concatenate([ids[1:suffix], ids[middle + 1 :], ids[suffix + 1 : middle]])
