"""The vocabulary in a .gguf file, as llama.cpp, Ollama and LM Studio have it: byte-level BPE, or SentencePiece's.

Only the metadata at the beginning of the file is read:

    GGUF, version, number of tensors, number of values      4 bytes, uint32, uint64, uint64
    values                                                  a key, the type, the value; texts have their size in front
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from bpe.expressions.step_options import step
from bpe.formats import TokenizerData, huggingface, refuse, sentencepiece
from bpe.native.atomic_file import StrPath
from bpe.native.printable import SPACE_MARK
from bpe.patterns import PATTERNS, Pattern

MAGIC = b"GGUF"
MOST_ITEMS = 1 << 26  # of an array or a text: a damaged file shall not fill the memory
MOST_NESTED = 8  # arrays within arrays
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5  # types of tokens, as SentencePiece numbers them

_DIGITS, _CONTRACTIONS = r"\p{N}", "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|%s]+"
_AFTER_WORDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_CHINESE = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    rf"\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_AFTER_WORDS}"
)
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    rf"{_CONTRACTIONS}?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    rf"{_CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_AFTER_WORDS}"
)
_NO_PUNCTUATION = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
(_GPT2,) = PATTERNS["gpt2"]

# The names of split patterns in llama.cpp, and their expressions, which are applied in sequence.
_NAMES: dict[tuple[str, ...], str] = {
    PATTERNS["gpt2"]: "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat "
    "a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion granite-docling",
    PATTERNS["llama3"]: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe "
    "chatglm-bpe glm4 glm5",
    PATTERNS["qwen2"]: "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
    PATTERNS["qwen3.5"]: "qwen35",
    PATTERNS["o200k"]: "gpt-4o llama4 kanana2 talkie minimax-m2",
    PATTERNS["deepseek-v3"]: "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    (_DIGITS, _GPT2): "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
    (_PUNCTUATION % "`", _GPT2, "[0-9][0-9][0-9]"): "falcon",
    (_PUNCTUATION % "", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"): "default",
    (
        "[\r\n]",
        rf"\s?[{_LETTERS}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        _CHINESE,
        r"\p{N}+",
    ): "deepseek-llm",
    ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE, _DIGITS): "deepseek-coder",
    (_TEKKEN,): "tekken",
    (KIMI,): "kimi-k2",
    (_NO_PUNCTUATION,): "poro-chat bloom gpt3-finnish",
    (_NO_PUNCTUATION, _DIGITS): "viking",
    (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_AFTER_WORDS}",
    ): "seed-coder",
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|"
        r"\s+(?!\S)|\s+",
    ): "bailingmoe bailingmoe2 llada-moe",
}
_PATTERNS = {name: expressions for expressions, names in _NAMES.items() for name in names.split()}
# A pretoken that is a token is not merged.
_WHOLE_FIRST = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano glm4 glm5 tekken"


def pattern_name(pattern: Pattern) -> str | None:
    """Return llama.cpp's name of a split pattern, the first of several; None where it has none."""
    names = _NAMES.get(pattern.expressions)
    return None if names is None else names.split()[0]


def read(path: StrPath) -> TokenizerData:
    """Return the tokenizer of a .gguf file. ValueError where it is damaged, has none, or one that is not supported."""
    with open(path, "rb") as file:
        try:
            values = _values(file)
        except (struct.error, EOFError, UnicodeDecodeError, KeyError):
            refuse(path, "not the metadata of a GGUF file, or cut short")
    kind = values.get("tokenizer.ggml.model")
    texts, types = values.get("tokenizer.ggml.tokens"), values.get("tokenizer.ggml.token_type")
    if kind not in ("gpt2", "llama", "gemma4") or not isinstance(texts, list):
        refuse(path, f"its tokenizer is {kind!r}, which is not supported: only gpt2, llama and gemma4 are")
    types = types if isinstance(types, list) and len(types) == len(texts) else [1] * len(texts)
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(kind, int) for kind in types):
        refuse(path, "its tokens are not texts, or their types not numbers")
    if kind == "llama":
        scores = values.get("tokenizer.ggml.scores") or [0.0] * len(texts)
        # NaN does not equal itself
        are_numbers = isinstance(scores, list) and all(isinstance(one, (int, float)) and one == one for one in scores)
        if not are_numbers or len(scores) != len(texts):
            refuse(path, "expected a score for each of its tokens")
        pieces = list(zip(texts, scores, types, strict=True))
        while pieces and pieces[-1][2] == _UNUSED:  # fills the vocabulary up to the size of the model
            pieces.pop()
        prefix = values.get("tokenizer.ggml.add_space_prefix", True)
        trims = values.get("tokenizer.ggml.remove_extra_whitespaces", False)
        return sentencepiece.of_pieces(pieces, bool(prefix), bool(trims), path)
    return huggingface.of_file(_as_tokenizer_json(values, texts, types, path), path)


def _as_tokenizer_json(values: dict[str, Any], texts: list[str], types: list[int], path: StrPath) -> dict[str, Any]:
    """Return the content of a tokenizer.json that holds the same vocabulary."""
    vocab = {text: number for number, text in enumerate(texts) if types[number] != _UNUSED}
    file: dict[str, Any] = {
        "model": {"type": "BPE", "vocab": vocab, "merges": values.get("tokenizer.ggml.merges")},
        "added_tokens": [
            {"id": number, "content": text, "special": types[number] != _USER_DEFINED, "normalized": False}
            for number, text in enumerate(texts)
            if types[number] in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ],
    }
    if values["tokenizer.ggml.model"] == "gemma4":
        file["model"]["byte_fallback"] = True
        file["normalizer"] = step("normalizers", "Replace", pattern={"String": " "}, content=SPACE_MARK)
        file["decoder"] = {"type": "Sequence", "decoders": sentencepiece.decoders(0)}
        return file
    name = values.get("tokenizer.ggml.pre", "default")
    if not isinstance(name, str) or name not in _PATTERNS:
        refuse(path, f"its split pattern is {name!r}, which is not supported: only {', '.join(_PATTERNS)} are")
    splits = map(huggingface.isolated, _PATTERNS[name])
    byte_level = step("decoders", "ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)
    file["model"]["ignore_merges"] = name in _WHOLE_FIRST.split()
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*splits, byte_level]}
    file["decoder"] = byte_level
    return file


def _values(file: BinaryIO) -> dict[str, Any]:
    """Return the metadata of a file that describes its tokenizer."""

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

    def value(kind: int, depth: int = 0) -> Any:
        if kind == _TEXT:
            return take(size()).decode()
        if kind != _ARRAY:
            return number(_NUMBERS[kind])
        item, count = number("<I"), size()
        if form := _NUMBERS.get(item):
            return list(struct.unpack(f"<{count}{form[1]}", take(count * struct.calcsize(form))))
        if depth == MOST_NESTED:
            raise EOFError
        return [value(item, depth + 1) for _ in range(count)]

    if take(4) != MAGIC or number("<I") not in (2, 3):
        raise EOFError
    number("<Q")  # of tensors
    values = {}
    for _ in range(size()):
        key, content = value(_TEXT), value(number("<I"))
        if key.startswith("tokenizer."):
            values[key] = content
    return values
