"""word_ids() and char_to_token(), beside the Encodings of tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from sentencepiece_samples import shapes, texts
from strategies import corpus

import bpe

SAMPLES = [
    *texts(5, 60),
    "the<|end|>  cat's 12345\n\né e\u0301 <x>\U0001f600世界",
    "",
    "<|end|><|end|>",
    "aé\U0001f468\u200d\U0001f469",
]
SPECIAL = ["<|end|>", "<s>"]


def trained(**changes: Any) -> bpe.Tokenizer:
    data = bpe.train([corpus(3, 300) + " ".join(SAMPLES)], 420, special_tokens=SPECIAL).data
    return bpe.Tokenizer.from_data(data._replace(**changes)).add_tokens(["<x>"])


def stepped(*steps: dict[str, Any]) -> bpe.Tokenizer:
    """A tokenizer whose pre-tokenizer puts a space before every piece, as the default of ByteLevel does."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    return trained(pattern=bpe.patterns.of_steps([*steps, byte_level]))


KINDS: dict[str, bpe.Tokenizer] = {
    "words, spaces added": stepped({"type": "Whitespace"}),
    "words and digits, spaces added": stepped(
        {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": True}
    ),
    "digits, spaces added": stepped({"type": "Digits", "individual_digits": True}),
    "gpt2": trained(),
    "llama3": trained(pattern=bpe.patterns.resolve("llama3")),
    "no split": trained(pattern=bpe.patterns.resolve(None)),
    "NFC": trained(normalizer="NFC"),
    "space in front": trained(add_prefix_space=True),
    "decomposed": trained(normalizer="NFD"),
    **shapes(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_words_and_characters_are_those_of_tokenizers(kind: str, tmp_path: Path) -> None:
    tokenizer = KINDS[kind]
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in SAMPLES:
        expected = peer.encode(text, add_special_tokens=False)
        begins = [begin for begin, _ in expected.offsets]
        assert tokenizer.encode_with_offsets(text, allowed_special="all") == (expected.ids, begins), text
        for size in range(4):
            piece = tokenizer.truncate(text, size, allowed_special="all")
            assert (text.startswith(piece.text), piece.ids) == (True, expected.ids[: len(piece.ids)]), text
        assert tokenizer.word_ids(text, allowed_special="all") == expected.word_ids, text
        indices = [tokenizer.char_to_token(text, char, allowed_special="all") for char in range(len(text))]
        assert indices == [expected.char_to_token(char) for char in range(len(text))], text
    assert tokenizer.char_to_token("a", 1) is tokenizer.char_to_token("a", -1) is None
    with pytest.raises(ValueError, match="disallowed special token"):
        tokenizer.word_ids("".join(tokenizer.special_tokens))


def test_words_of_clip_leave_white_space_out(tmp_path: Path) -> None:
    vocab = {character + end: n for n, character in enumerate("abct") for end in ("",)}
    vocab |= {f"{character}</w>": len(vocab) + n for n, character in enumerate("abct")} | {"at</w>": 8, "<unk>": 9}
    model = {"type": "BPE", "vocab": vocab, "merges": ["a t</w>"], "unk_token": "<unk>", "end_of_word_suffix": "</w>"}
    file = {"version": "1.0", "added_tokens": [], "model": model, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    file |= dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"), None)
    file["decoder"] = {"type": "BPEDecoder", "suffix": "</w>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    tokenizer, peer = (load(str(tmp_path / "tokenizer.json")) for load in (bpe.load, tokenizers.Tokenizer.from_file))
    for text in ("cat  at ab", " b,cat é", "xa"):
        expected = peer.encode(text)
        assert (tokenizer.encode(text), tokenizer.word_ids(text)) == (expected.ids, expected.word_ids), text
        indices = [tokenizer.char_to_token(text, char) for char in range(len(text))]
        assert indices == [expected.char_to_token(char) for char in range(len(text))], text
