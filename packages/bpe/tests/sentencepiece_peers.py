"""Tokenizers of the shapes that SentencePiece-style ones are published in, trained by tokenizers."""

from __future__ import annotations

import json

import tokenizers
from sentencepiece_samples import WORDS
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def trained(kind: str) -> tokenizers.Tokenizer:
    """A tokenizer of a published shape, trained by tokenizers."""
    result = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if kind == "llama-2":
        result.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif kind == "gemma":
        result.normalizer = normalizers.Replace(" ", "▁")
        result.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        _, scheme, split = kind.split("-")
        result.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split == "split")
    if kind != "gemma":
        steps.append(decoders.Strip(" ", 1, 0))
    result.decoder = decoders.Sequence(steps)
    # Trained on words, so that it has no token across a space, as the published ones have none.
    words = tokenizers.Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<unk>", "<s>", "</s>", *BYTE_TOKENS], show_progress=False
    )
    words.train_from_iterator([" ".join(WORDS[:-1] * 3 + WORDS[:6] * 9)], trainer)
    file, model = json.loads(result.to_str()), json.loads(words.to_str())["model"]
    file["model"]["vocab"], file["model"]["merges"] = model["vocab"], model["merges"]
    file["added_tokens"] = [
        {"id": number, "content": name, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for number, name in enumerate(["<unk>", "<s>", "</s>"])
    ]
    return tokenizers.Tokenizer.from_str(json.dumps(file))


KINDS = ["llama-2", "gemma", "metaspace-always-split", "metaspace-first-whole", "metaspace-never-whole"]
