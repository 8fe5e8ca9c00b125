"""Files with wrong values: refused by a ValueError, never by an error of Python's own, and never read as another."""

from __future__ import annotations

import base64
import importlib
import json
import random
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sentencepiece_samples import shapes
from test_published_formats import BYTE_RANKS, field, model_of, pieces_with_runs

import bpe
from bpe.formats import sentencepiece


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "fuzz"))
        return importlib.import_module("files")


def gguf_of(values: list[tuple[str, int, bytes]]) -> bytes:
    def text(content: str) -> bytes:
        return struct.pack("<Q", len(content.encode())) + content.encode()

    parts = [text(key) + struct.pack("<I", kind) + value for key, kind, value in values]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + b"".join(parts)


def contents() -> dict[str, bytes]:
    """A small file of each format."""
    pieces = pieces_with_runs([2, 4])

    def texts(items: list[str]) -> bytes:
        sizes = [struct.pack("<Q", len(text.encode())) + text.encode() for text in items]
        return struct.pack("<IQ", 8, len(items)) + b"".join(sizes)

    llama = [
        ("tokenizer.ggml.model", 8, struct.pack("<Q", 5) + b"llama"),
        ("tokenizer.ggml.tokens", 9, texts([text for text, _, _ in pieces])),
        ("tokenizer.ggml.scores", 9, struct.pack(f"<IQ{len(pieces)}f", 6, len(pieces), *(p[1] for p in pieces))),
        ("tokenizer.ggml.token_type", 9, struct.pack(f"<IQ{len(pieces)}i", 5, len(pieces), *(p[2] for p in pieces))),
    ]
    lines = [base64.b64encode(token) + b" %d\n" % rank for token, rank in BYTE_RANKS.items()]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for token, rank in BYTE_RANKS.items()
    ]
    config = {"pattern": r"\w+|\s+|[^\w\s]+", "default_vocab_size": 289, "default_num_special_tokens": 30}
    return {
        "tokenizer.model": model_of([*pieces, ("[R]", 0.0, 4)]),
        "model.gguf": gguf_of(llama),
        "ranks.tiktoken": b"".join(lines),
        "tekken.json": json.dumps({"config": config, "vocab": vocab}).encode(),
    }


def test_changed_files_of_every_format_are_read_or_refused(fuzz: ModuleType, tmp_path: Path) -> None:
    files = contents()
    shapes()["gemma"].to_huggingface(tmp_path / "gemma.json")
    bpe.train(["the cat sat on the mat"] * 2, 262).to_huggingface(tmp_path / "tokenizer.json")
    bpe.train(["the cat sat on the mat"] * 2, 262).save(tmp_path / "saved")
    files |= {name: (tmp_path / name).read_bytes() for name in ("gemma.json", "tokenizer.json", "saved")}
    for name, content in files.items():
        for number in range(40):
            fuzz.attack(name, content, random.Random(f"{name} {number}"), tmp_path)


@pytest.mark.parametrize("kind", ["pair", "tokenizer.json", "tokenizer.model", "tiktoken.model"])
def test_changed_files_of_a_folder_are_read_or_refused(fuzz: ModuleType, tmp_path: Path, kind: str) -> None:
    tokenizer = bpe.train(["the cat sat on the mat"] * 2, 262)
    tokenizer.to_gpt2(tmp_path / "pair")
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")
    flags = {"lstrip": False, "rstrip": True, "single_word": False, "normalized": False, "special": True}
    token = {"content": "<new>", **flags}
    name = {"pair": "GPT2Tokenizer", "tiktoken.model": "TikTokenTokenizer"}.get(kind, "LlamaTokenizer")
    config = {"tokenizer_class": name, "bos_token": token, "add_bos_token": True, "extra_special_tokens": ["<x>"]}
    files = {
        "pair": {file.name: file.read_bytes() for file in (tmp_path / "pair").iterdir()},
        "tokenizer.json": {kind: (tmp_path / "tokenizer.json").read_bytes()},
        "tokenizer.model": {kind: contents()["tokenizer.model"]},
        "tiktoken.model": {kind: contents()["ranks.tiktoken"]},
    }[kind]
    files["tokenizer_config.json"] = json.dumps({**config, "added_tokens_decoder": {"600": token}}).encode()
    (tmp_path / "model").mkdir()
    for file, content in files.items():
        for number in range(20):
            fuzz.attack(file, content, random.Random(f"{file} {number}"), tmp_path / "model", files)


def test_fields_of_a_model_of_the_wrong_kind_are_refused() -> None:
    for data in (b"\x0a\x05\x0a\x03abc\x10\x05", field(1, 5), field(3, 5) + field(1, b"")):
        with pytest.raises(ValueError, match="should be a message"):
            sentencepiece.parse(data, "m.model")
    normalizer = field(2, field(3, 2)) + field(3, field(1, 10**9))
    with pytest.raises(ValueError, match="normalizer"):
        sentencepiece.parse(field(1, field(1, b"a")) + normalizer, "m.model")


def test_nested_arrays_of_a_gguf_file_are_refused(tmp_path: Path) -> None:
    nested = struct.pack("<IQ", 9, 1) * 5000
    (tmp_path / "model.gguf").write_bytes(gguf_of([("tokenizer.x", 9, nested)]))
    with pytest.raises(ValueError, match="cut short"):
        bpe.load(tmp_path / "model.gguf")


def test_counts_of_special_tokens_are_bounded(tmp_path: Path) -> None:
    """They would fill the memory with placeholders."""
    content = json.loads(contents()["tekken.json"])
    for special, size, token in ((2**31, 2**31, "<s>"), (300, 289, "<s>"), (30, 289, "\ud800"), (30, 289, None)):
        content["config"] |= {"default_num_special_tokens": special, "default_vocab_size": size}
        content["special_tokens"] = [{"rank": 0, "token_str": token}]
        (tmp_path / "tekken.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=r"tekken\.json: "):
            bpe.load(tmp_path / "tekken.json")
    (tmp_path / "tekken.json").unlink()
    (tmp_path / "tiktoken.model").write_bytes(contents()["ranks.tiktoken"])
    tokens = {"2147483647": {"content": "[EOS]", "special": True}}
    config = {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": tokens}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="2147483647"):
        bpe.load(tmp_path)


def with_settings(model: bytes, trainer: bytes) -> bytes:
    return model + field(2, field(3, 2) + field(35, 1) + trainer)


def test_settings_of_sentencepiece_that_are_not_followed_are_refused(tmp_path: Path) -> None:
    pieces = pieces_with_runs([2])
    with pytest.raises(ValueError, match="treat_whitespace_as_suffix"):
        sentencepiece.parse(with_settings(model_of(pieces), field(24, 1)), "m.model")
    for text, trims in (("  ", False), ("a b", True), ("▁x", True)):
        with pytest.raises(ValueError, match=r"user-defined piece.*space"):
            sentencepiece.of_pieces([*pieces, (text, 0.0, 4)], True, trims, "m.model")
    sentencepiece.of_pieces([*pieces, ("▁x", 0.0, 4)], True, False, "m.model")
    with pytest.raises(ValueError, match="stands twice"):
        sentencepiece.of_pieces([*pieces, pieces[-1]], True, False, "m.model")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"dropout": 1.0}, "dropout"),
        ({"end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
        ({"continuing_subword_prefix": "##"}, "continuing_subword_prefix"),
        ({"ignore_merges": True}, "ignore_merges"),
    ],
)
def test_settings_beside_byte_fallback_that_are_not_followed_are_refused(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    path = tmp_path / "tokenizer.json"
    shapes()["gemma"].to_huggingface(path)
    file = json.loads(path.read_text())
    file["model"] |= change
    path.write_text(json.dumps(file))
    with pytest.raises(ValueError, match=named):
        bpe.load(path)
    for key in change:
        file["model"][key] = None
    file["normalizer"] = {"type": "NFC"}
    path.write_text(json.dumps(file))
    with pytest.raises(ValueError, match="writes spaces"):
        bpe.load(path)


def test_an_added_token_is_decoded_as_what_it_is_found_by(tmp_path: Path) -> None:
    """As transformers adds them to Llama 2 and Phi-3: normalized, so with a space in front."""
    tokenizers = pytest.importorskip("tokenizers")
    normalizes = tuple(map(int, tokenizers.__version__.split(".")[:2])) >= (0, 23)  # 0.22 decodes them as written
    path = tmp_path / "tokenizer.json"
    for name in ("llama-2", "gemma"):
        shapes()[name].to_huggingface(path)
        file = json.loads(path.read_text())
        size = 1 + max(file["model"]["vocab"].values())
        options = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
        file["added_tokens"] += [
            {"id": size, "content": "<new>", **options, "normalized": True},
            {"id": size + 1, "content": "a b", **options, "normalized": True},
            {"id": size + 2, "content": "<raw>", **options, "normalized": False},
        ]
        path.write_text(json.dumps(file))
        tokenizer, peer = bpe.load(path), tokenizers.Tokenizer.from_file(str(path))
        tokenizer.save(tmp_path / "saved.bpe")
        tokenizer.to_huggingface(tmp_path / "again.json")
        for again in (tokenizer, bpe.load(tmp_path / "saved.bpe"), bpe.load(tmp_path / "again.json")):
            for text in ("say <new> and<new>x", "<new>", "a b a b <raw> x<raw>", " <new>  <new>"):
                ids = peer.encode(text, add_special_tokens=False).ids
                assert again.encode(text, allowed_special="all") == ids, text
                if normalizes:
                    assert again.decode(ids) == peer.decode(ids, skip_special_tokens=False), text
                stream = again.decode_stream()
                assert "".join(map(stream.step, ids)) + stream.finish() == again.decode(ids)


def test_an_untrusted_segment_gives_no_special_token_of_one_character(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocab = {text: number for number, text in enumerate(["<unk>", "a", "b", " ", "ab"])}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    file: dict[str, Any] = {
        "added_tokens": [
            {"id": 5, "content": "§", **flags, "special": True},
            {"id": 6, "content": "☃", **flags, "single_word": True, "special": False},
        ],
        "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]], "unk_token": "<unk>"},
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file))
    tokenizer, peer = bpe.load(path), tokenizers.Tokenizer.from_file(str(path))
    for text in ("a § b", "§", "ab☃a", "☃ a", "ab ☃"):
        assert tokenizer.encode(text, allowed_special="all") == peer.encode(text).ids, text
        assert 5 not in tokenizer.encode_segments([(text, False)])
    peer.encode_special_tokens = True
    assert tokenizer.encode_segments([("a § b", False)]) == peer.encode("a § b").ids == [1, 3, 0, 3, 2]
    assert tokenizer.encode_ordinary("a § b") == [1, 3, 0, 3, 2]


def test_a_text_without_ids_is_a_piece(tmp_path: Path) -> None:
    file = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "decoder": {"type": "Fuse"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    tokenizer = bpe.load(tmp_path / "tokenizer.json")
    assert tokenizer.split("  ", 9) == [("  ", [])]
    assert tokenizer.truncate("  ", 9) == ("  ", [])
    assert "".join(str(piece.text) for piece in tokenizer.split(" a b ", 1)) == " a b "
