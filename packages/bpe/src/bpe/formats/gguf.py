"""The vocabulary in a .gguf file, as llama.cpp, Ollama and LM Studio have it: byte-level BPE, or SentencePiece's.

Only the metadata at the beginning of the file is read:

    GGUF, version, number of tensors, number of values      4 bytes, uint32, uint64, uint64
    values                                                  a key, the type, the value; texts have their size in front
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from bpe.formats import TokenizerData, huggingface, refuse, sentencepiece
from bpe.native.atomic_file import StrPath
from bpe.patterns import PATTERNS

MAGIC = b"GGUF"
MOST_ITEMS = 1 << 26  # of an array or a text: a damaged file shall not fill the memory
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5  # types of tokens, as SentencePiece numbers them

# Names of split patterns in llama.cpp.
_PATTERNS = {
    "gpt-2": "gpt2",
    "llama-bpe": "llama3",
    "llama3": "llama3",
    "llama-v3": "llama3",
    "qwen2": "qwen2",
    "qwen35": "qwen3.5",
    "gpt-4o": "o200k",
    "deepseek-v3": "deepseek-v3",
}
_WHOLE_FIRST = ("llama-bpe", "llama3", "llama-v3")  # a pretoken that is a token is not merged


def read(path: StrPath) -> TokenizerData:
    """Return the tokenizer of a .gguf file. ValueError where it is damaged, has none, or one that is not supported."""
    with open(path, "rb") as file:
        try:
            values = _values(file)
        except (struct.error, EOFError, UnicodeDecodeError, KeyError):
            refuse(path, "not the metadata of a GGUF file, or cut short")
    kind = values.get("tokenizer.ggml.model")
    texts, types = values.get("tokenizer.ggml.tokens"), values.get("tokenizer.ggml.token_type")
    if kind not in ("gpt2", "llama") or not isinstance(texts, list):
        refuse(path, f"its tokenizer is {kind!r}, which is not supported: only gpt2 and llama are")
    if not isinstance(types, list) or len(types) != len(texts):
        types = [1] * len(texts)
    if kind == "llama":
        scores = values.get("tokenizer.ggml.scores") or [0.0] * len(texts)
        pieces = list(zip(texts, scores, types, strict=True))
        while pieces and pieces[-1][2] == _UNUSED:  # fills the vocabulary up to the size of the model
            pieces.pop()
        prefix = bool(values.get("tokenizer.ggml.add_space_prefix", True))
        trims = bool(values.get("tokenizer.ggml.remove_extra_whitespaces", False))
        return sentencepiece.of_pieces(pieces, prefix, trims, path)
    return huggingface.of_file(_as_tokenizer_json(values, texts, types, path), path)


def _as_tokenizer_json(values: dict[str, Any], texts: list[str], types: list[int], path: StrPath) -> dict[str, Any]:
    """Return the content of a tokenizer.json that holds the same vocabulary."""
    name = values.get("tokenizer.ggml.pre", "default")
    if name not in _PATTERNS:
        refuse(path, f"its split pattern is {name!r}, which is not supported: only {', '.join(_PATTERNS)} are")
    splits = [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        for expression in PATTERNS[_PATTERNS[name]]
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return {
        "model": {
            "type": "BPE",
            "vocab": {text: number for number, text in enumerate(texts) if types[number] != _UNUSED},
            "merges": values.get("tokenizer.ggml.merges"),
            "ignore_merges": name in _WHOLE_FIRST,
        },
        "added_tokens": [
            {"id": number, "content": text, "special": types[number] != _USER_DEFINED, "normalized": False}
            for number, text in enumerate(texts)
            if types[number] in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level]},
        "decoder": byte_level,
    }


def _values(file: BinaryIO) -> dict[str, Any]:
    """Return the metadata of a file, but for what is not about its tokenizer."""

    def take(size: int) -> bytes:
        data = file.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def number(form: str) -> Any:
        return struct.unpack(form, take(struct.calcsize(form)))[0]

    def size() -> int:
        count: int = number("<Q")
        if count > MOST_ITEMS:
            raise EOFError
        return count

    def text() -> str:
        return take(size()).decode()

    def value(kind: int) -> Any:
        if kind == _TEXT:
            return text()
        if kind != _ARRAY:
            return number(_NUMBERS[kind])
        item, count = number("<I"), size()
        if item in _NUMBERS:
            form = _NUMBERS[item]
            return list(struct.unpack(f"<{count}{form[1]}", take(count * struct.calcsize(form))))
        return [value(item) for _ in range(count)]

    if take(4) != MAGIC or number("<I") not in (2, 3):
        raise EOFError
    number("<Q")  # of tensors
    values = {}
    for _ in range(size()):
        key, kind = text(), number("<I")
        content = value(kind)
        if key.startswith("tokenizer."):
            values[key] = content
    return values
