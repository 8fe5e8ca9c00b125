"""Vocabularies of the characters of words in a tokenizer.json: CLIP, GPT-1, tortoise-tts, Aranizer."""

from __future__ import annotations

from typing import Any

from bpe.expressions.step_options import checked, step
from bpe.formats import UTF8_BYTES, Words, check_id, refuse
from bpe.formats.vocabularies import to_printable
from bpe.native.atomic_file import StrPath
from bpe.native.printable import SPACE_MARK

READERS = {"Unigram": "tokenizers or sentencepiece", "WordPiece": "tokenizers", "WordLevel": "tokenizers"}
TEXT_BYTES = {to_printable(bytes([byte])) for byte in UTF8_BYTES}


def read_words(
    model: dict[str, Any], pre_steps: list[dict[str, Any]], decoders: list[dict[str, Any]], path: StrPath
) -> Words | None:
    """Return the options of a model with unknown characters or marked ends of words; None for other models."""
    byte_steps = [one for one in pre_steps if one["type"] == "ByteLevel"]
    byte_level = bool(byte_steps)
    suffix, unk, vocab = model["end_of_word_suffix"] or "", model["unk_token"], model["vocab"]
    if model["byte_fallback"] or (byte_level and not suffix and (unk is None or vocab.keys() >= TEXT_BYTES)):
        return None
    if unk is not None and unk not in vocab:
        refuse(path, f"the unk_token {unk!r} is not in the vocabulary")
    if len(byte_steps) > 1 or any(one["add_prefix_space"] for one in byte_steps if one != pre_steps[0]):
        refuse(path, "ByteLevel twice, or with add_prefix_space after other steps, is not supported for words")
    kinds, decoded = [one["type"] for one in decoders], ""
    if kinds == ["BPEDecoder"]:
        decoded = decoders[0]["suffix"]
    elif byte_level and decoders[1:] == suffix_to_space(suffix):
        kinds, decoded = kinds[:1], suffix
    metaspace = ""
    if not byte_level and [one["type"] for one in pre_steps] == ["Metaspace"]:
        metaspace = _read_metaspace(pre_steps[0], decoders, vocab, suffix, path)
        kinds = ["Fuse"]
    if kinds not in ([["ByteLevel"]] if byte_level else [[], ["Fuse"], ["BPEDecoder"]]):
        refuse(path, f"the decoder {', '.join(kinds) or 'none'} is not supported for a vocabulary of words")
    if decoded and any(decoded in text.removesuffix(decoded) for text in vocab):
        refuse(path, f"a token with {decoded!r} elsewhere than at its end")
    number = -1 if unk is None else check_id(vocab[unk], path, unk)
    return Words(byte_level, suffix, number, model["fuse_unk"], "" if kinds else " ", decoded, metaspace)


def metaspace_step(words: Words) -> dict[str, Any]:
    """The step that is both the pre-tokenizer and the decoder of words that begin at spaces."""
    return step("decoders", "Metaspace", prepend_scheme=words.metaspace)


def _read_metaspace(
    metaspace: dict[str, Any], decoders: list[dict[str, Any]], vocab: dict[str, Any], suffix: str, path: StrPath
) -> str:
    """Return where a Metaspace step of a vocabulary of words puts a space: "always" or "never"."""
    scheme: str = metaspace["prepend_scheme"]
    is_inverse = [(one["type"], one.get("prepend_scheme")) for one in decoders] == [("Metaspace", scheme)]
    if not metaspace["split"] or scheme == "first" or suffix or not is_inverse:
        refuse(
            path, "Metaspace without byte_fallback is supported with its own decoder, split at spaces, and not 'first'"
        )
    if any(SPACE_MARK in text[1:] or " " in text for text in vocab):
        refuse(path, f"a token with a space, or with {SPACE_MARK} elsewhere than at its beginning")
    return scheme


def suffix_to_space(suffix: str) -> list[dict[str, Any]]:
    """The steps after ByteLevel that decode the end of each word to a space, but for the last, as transformers does."""
    return [step("decoders", "Replace", pattern={"String": suffix}, content=" "), step("decoders", "Strip", stop=1)]


def checked_model(model: Any, path: StrPath) -> dict[str, Any]:
    """The model of a file with all of its options. ValueError where it is no BPE read here."""
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        remedy = f"; use {READERS[kind]} for it" if isinstance(kind, str) and kind in READERS else ""
        refuse(path, f"the model is {kind!r}, which is not supported: only BPE is{remedy}")
    try:
        options = checked("models", {"type": "BPE", **model})
    except ValueError as error:
        refuse(path, str(error))
    for key in ("dropout", "continuing_subword_prefix"):
        if options[key]:
            refuse(path, f'the model has "{key}": {options[key]!r}, which is not supported')
    return options
