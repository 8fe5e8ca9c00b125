"""Vocabularies of the characters of words in a tokenizer.json: CLIP, GPT-1, tortoise-tts, Aranizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bpe.formats import UTF8_BYTES, Pair, Words, check_id, refuse, sentencepiece
from bpe.formats.gpt2 import encode_text, to_printable
from bpe.formats.templates import flag, parts_of
from bpe.native.atomic_file import StrPath

TEXT_BYTES = {to_printable(bytes([byte])) for byte in UTF8_BYTES}


def read_characters(
    model: Any, added: dict[str, int], path: StrPath
) -> tuple[dict[int, bytes], Sequence[Pair], bool, frozenset[int]]:
    """As _read_model(), of a model whose tokens are text."""
    vocab, merge_list = checked_model(model, path)
    for text, number in vocab.items():
        check_id(number, path, text)
    if len({*vocab.values(), *added.values()}) < len(vocab | added):
        refuse(path, "two tokens have the same id")
    for text in added.keys() & vocab.keys():
        if added[text] != vocab[text]:
            refuse(path, f"{text!r} has the id {vocab[text]} in the vocabulary and {added[text]} as an added token")
    tokens = {text: encode_text(text, path) for text in vocab | added}
    by_id = {check_id(number, path, text): tokens[text] for text, number in (vocab | added).items()}
    return by_id, sentencepiece.read_merges(merge_list, tokens, path), True, frozenset()


def read_words(file: dict[str, Any], path: StrPath) -> Words | None:
    """Return the options of a model with unknown characters or marked ends of words; None for other models."""
    model = file["model"]
    pre_steps = parts_of(file.get("pre_tokenizer"), "pretokenizers", path)
    byte_level = any(step["type"] == "ByteLevel" for step in pre_steps)
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or model.get("byte_fallback") is True:
        return None
    suffix, unk, vocab = model.get("end_of_word_suffix") or "", model.get("unk_token"), model.get("vocab")
    if not isinstance(vocab, dict):
        return None
    for option in ("end_of_word_suffix", "unk_token"):
        if model.get(option) is not None and not isinstance(model[option], str):
            refuse(path, f'"{option}" is {str(model[option])[:80]}: it should be a text')
        encode_text(model.get(option) or "", path)
    if byte_level and not suffix and (unk is None or vocab.keys() >= TEXT_BYTES):
        return None
    if unk is not None and unk not in vocab:
        refuse(path, f"the unk_token {unk!r} is not in the vocabulary")
    byte_steps = [step for step in pre_steps if step["type"] == "ByteLevel"]
    if len(byte_steps) > 1 or any(
        flag(step, "add_prefix_space", True, path) for step in byte_steps if step != pre_steps[0]
    ):
        refuse(path, "ByteLevel twice, or with add_prefix_space after other steps, is not supported for words")
    steps = parts_of(file.get("decoder"), "decoders", path)
    kinds, decoded = [step["type"] for step in steps], ""
    if kinds == ["BPEDecoder"]:
        decoded = steps[0].get("suffix", "</w>")
    elif byte_level and steps[1:] == suffix_to_space(suffix):
        kinds, decoded = kinds[:1], suffix
    metaspace = ""
    if not byte_level and [step["type"] for step in pre_steps] == ["Metaspace"]:
        metaspace = _read_metaspace(pre_steps[0], steps, vocab, suffix, path)
        kinds = ["Fuse"]
    if kinds not in ([["ByteLevel"]] if byte_level else [[], ["Fuse"], ["BPEDecoder"]]) or not isinstance(decoded, str):
        refuse(path, f"the decoder {', '.join(kinds) or 'none'} is not supported for a vocabulary of words")
    if decoded and any(decoded in text.removesuffix(decoded) for text in vocab):
        refuse(path, f"a token with {decoded!r} elsewhere than at its end")
    number = -1 if unk is None else check_id(vocab[unk], path, unk)
    fuse = flag(model, "fuse_unk", False, path)
    return Words(byte_level, suffix, number, fuse, "" if kinds else " ", decoded, metaspace)


def metaspace_step(words: Words) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": sentencepiece.MARK, "prepend_scheme": words.metaspace, "split": True}


def _read_metaspace(
    step: dict[str, Any], decoder: list[dict[str, Any]], vocab: dict[str, Any], suffix: str, path: StrPath
) -> str:
    """Return where a Metaspace step of a vocabulary of words puts a space: "always" or "never"."""
    scheme = sentencepiece.scheme_of(step, path)
    is_inverse = [s["type"] for s in decoder] == ["Metaspace"] and sentencepiece.scheme_of(decoder[0], path) == scheme
    if not flag(step, "split", True, path) or scheme == "first" or suffix or not is_inverse:
        refuse(
            path, "Metaspace without byte_fallback is supported with its own decoder, split at spaces, and not 'first'"
        )
    if any(sentencepiece.MARK in text[1:] or " " in text for text in vocab):
        refuse(path, f"a token with a space, or with {sentencepiece.MARK} elsewhere than at its beginning")
    return scheme


def suffix_to_space(suffix: str) -> list[dict[str, Any]]:
    """The steps after ByteLevel that decode the end of each word to a space, but for the last, as transformers does."""
    return [
        {"type": "Replace", "pattern": {"String": suffix}, "content": " "},
        {"type": "Strip", "content": " ", "start": 0, "stop": 1},
    ]


def checked_model(model: Any, path: StrPath) -> tuple[dict[str, Any], list[Any]]:
    """The vocabulary and the merges of a model, as its file has them. ValueError where it is no BPE read here."""
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        use = {"Unigram": "tokenizers or sentencepiece", "WordPiece": "tokenizers", "WordLevel": "tokenizers"}.get(
            str(kind)
        )
        refuse(
            path, f"the model is {kind!r}, which is not supported: only BPE is{f'; use {use} for it' if use else ''}"
        )
    for key in ("dropout", "continuing_subword_prefix"):
        if model.get(key):
            refuse(path, f'the model has "{key}": {model[key]!r}, which is not supported')
    vocab, merge_list = model.get("vocab"), model.get("merges")
    if not isinstance(vocab, dict) or not isinstance(merge_list, list):
        refuse(path, 'the model has no "vocab" of tokens and ids or no list of "merges"')
    return vocab, merge_list
