"""The files beside a vocabulary in the folder of a Hugging Face model, which say how transformers reads it.

A vocab.json with its merges.txt holds no pipeline: the class that tokenizer_config.json names has it in its code.
CLASSES is the table of these classes, by which such a pair becomes the content of a tokenizer.json.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bpe.expressions.step_options import step
from bpe.formats import (
    TokenizerData,
    check_id,
    huggingface,
    parse_json,
    parse_text,
    refuse,
    sentencepiece,
    without_collector,
)
from bpe.formats.templates import Template, template_step
from bpe.formats.vocabularies import check_ids_of
from bpe.formats.vocabulary import SpecialNames, number_special_tokens
from bpe.formats.word_vocabularies import suffix_to_space
from bpe.native.atomic_file import StrPath
from bpe.patterns import PATTERNS, Pattern

CONFIG, MODEL_CONFIG = "tokenizer_config.json", "config.json"
BESIDE = (CONFIG, "special_tokens_map.json", "added_tokens.json", MODEL_CONFIG)
NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")  # special tokens by their part, in transformers' order
END_OF_WORD = "</w>"
_ENDOFTEXT = dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>")
_ROBERTA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
_DEBERTA = {"unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"}
_DEBERTA |= dict.fromkeys(("bos", "cls"), "[CLS]") | dict.fromkeys(("eos", "sep"), "[SEP]")

Step = dict[str, Any]
_NFC: Step = step("normalizers", "NFC")
_BYTES_TO_TEXT: Step = step("decoders", "ByteLevel")


class Class(NamedTuple):
    """A tokenizer class of transformers."""

    named: str  # its names, without "Fast"
    model_types: str  # the "model_type" of models whose folders name no class and have this one
    special: dict[str, str]  # its special tokens by their part, where the files do not name others
    normalizer: tuple[Step, ...] = ()
    splits: tuple[Step, ...] = ()  # before a ByteLevel step, which splits by GPT-2's pattern only if byte_split is set
    byte_level: bool = True
    byte_split: bool = True
    suffix: str = ""  # the end of the last token of a word
    decoder: tuple[Step, ...] = (_BYTES_TO_TEXT,)
    around: tuple[Template, Template] | None = None  # parts of the templates of one text and two; 0 and 1 are the texts
    prefix_space: bool = False  # a text is given a space in front unless the configuration says otherwise
    mask_strips: bool = False  # the mask token takes the space before it


_PAIR_OF_ROBERTA = (("cls", 0, "sep"), ("cls", 0, "sep", "sep", 1, "sep"))
_CLIP_SPLIT = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_QWEN = Class(
    "Qwen2Tokenizer",
    "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_audio qwen3 qwen3_moe qwen3_next qwen3_vl",
    dict.fromkeys(("eos", "unk", "pad"), "<|endoftext|>"),
    (_NFC,),
    tuple(map(huggingface.isolated, PATTERNS["qwen2"])),
    byte_split=False,
)
CLASSES = (
    Class("GPT2Tokenizer CodeGenTokenizer", "gpt2 gpt_neo gptj codegen opt phi", _ENDOFTEXT),
    Class(
        "RobertaTokenizer BartTokenizer LEDTokenizer LongformerTokenizer MvpTokenizer",
        "roberta bart led longformer mvp data2vec-text",
        _ROBERTA,
        around=_PAIR_OF_ROBERTA,
    ),
    Class("BlenderbotTokenizer", "blenderbot", _ROBERTA, prefix_space=True, mask_strips=True),
    Class("DebertaTokenizer", "deberta", _DEBERTA, around=_PAIR_OF_ROBERTA),
    Class("WhisperTokenizer", "whisper", _ENDOFTEXT),
    Class("GPTNeoXTokenizer", "gpt_neox", {**_ENDOFTEXT, "pad": "<|padding|>"}, (_NFC,)),
    _QWEN,
    _QWEN._replace(
        named="Qwen3_5Tokenizer",
        model_types="qwen3_5 qwen3_5_moe",
        splits=tuple(map(huggingface.isolated, PATTERNS["qwen3.5"])),
    ),
    Class(
        "CLIPTokenizer",
        "clip clip_text_model clipseg",
        {"bos": "<|startoftext|>", **dict.fromkeys(("eos", "unk", "pad"), "<|endoftext|>")},
        (
            _NFC,
            step("normalizers", "Replace", pattern={"Regex": r"\s+"}, content=" "),
            step("normalizers", "Lowercase"),
        ),
        (step("pretokenizers", "Split", pattern={"Regex": _CLIP_SPLIT}, behavior="Removed", invert=True),),
        suffix=END_OF_WORD,
        decoder=(_BYTES_TO_TEXT, *suffix_to_space(END_OF_WORD)),
        around=(("bos", 0, "eos"), ("bos", 0, "eos", "eos", 1, "eos")),
    ),
    Class(
        "OpenAIGPTTokenizer",
        "openai-gpt",
        {"unk": "<unk>"},
        (step("normalizers", "BertNormalizer"),),
        (step("pretokenizers", "BertPreTokenizer"),),
        byte_level=False,
        suffix=END_OF_WORD,
        decoder=(step("decoders", "BPEDecoder"),),
    ),
)
_CLASS_OF = {name: row for row in CLASSES for name in row.named.split()}
_CLASS_OF_MODEL = {name: row for row in CLASSES for name in row.model_types.split()}
# Classes that say nothing of the pipeline.
_ANY = ("", "PreTrainedTokenizer", "PreTrainedTokenizerFast", "PythonBackend", "TokenizersBackend")


def class_named(beside: Mapping[str, bytes], path: StrPath) -> str:
    """Return the tokenizer class that the files of a folder name, without "Fast"; "" if none."""
    name = _object(beside, CONFIG, path).get("tokenizer_class") or ""
    return name.removesuffix("Fast") if isinstance(name, str) else ""


def class_of(beside: Mapping[str, bytes], path: StrPath) -> Class | None:
    """Return the class by which a pair of files is read; None if no file names one. ValueError for another class."""
    name = class_named(beside, path)
    if name in _ANY:
        return _CLASS_OF_MODEL.get(str(_object(beside, MODEL_CONFIG, path).get("model_type")))
    if name not in _CLASS_OF:
        refuse(
            path,
            f"its {CONFIG} names the class {name!r}, whose split pattern is not known here (known are "
            f"{', '.join(_CLASS_OF)}): give a pattern, or save a tokenizer.json with transformers",
        )
    return _CLASS_OF[name]


@without_collector()
def parse_pair(
    vocab_data: bytes,
    merges_data: bytes,
    beside: Mapping[str, bytes],
    path: StrPath,
    merges_path: StrPath,
    pattern: Pattern | None = None,
    special_tokens: SpecialNames | None = None,
) -> TokenizerData:
    """Return the tokenizer of the contents of a vocab.json, its merges.txt and, by name, of the files of BESIDE.

    path, merges_path: the two files, as errors call them. pattern, special_tokens: that replace those from
    the class and the files. ValueError where a file is wrong, or the class is not known.
    """
    row = (class_of(beside, path) if pattern is None else None) or CLASSES[0]
    vocab = parse_json(vocab_data, path)
    if not isinstance(vocab, dict):
        refuse(path, f"expected the vocabulary to be an object of tokens and ids, got {type(vocab).__name__}")
    check_ids_of(vocab, [*vocab.values()], path)
    if special_tokens is None and not row.suffix and any(text.endswith(END_OF_WORD) for text in vocab):
        refuse(
            path,
            f"tokens end in {END_OF_WORD}, as CLIP's and GPT-1's do: such a vocabulary needs a {CONFIG} with its "
            '"tokenizer_class", or its tokenizer.json',
        )
    config = _object(beside, CONFIG, path)
    added, parts = added_tokens(beside, row, vocab, path) if special_tokens is None else ([], {})
    prefix_space = row.prefix_space if config.get("add_prefix_space") is None else config["add_prefix_space"]
    byte_level = [step("pretokenizers", "ByteLevel", add_prefix_space=prefix_space, use_regex=row.byte_split)]
    lines, first_line = _lines_of_merges(merges_data, merges_path)
    file = {
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": lines,
            "end_of_word_suffix": row.suffix,
            "unk_token": parts.get("unk") if row.suffix else None,
        },
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": list(row.normalizer)} if row.normalizer else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*row.splits, *byte_level[: row.byte_level]]},
        "decoder": {"type": "Sequence", "decoders": list(row.decoder)},
        "post_processor": _template(row, config, parts, added),
    }
    data = huggingface.of_file(file, path, (merges_path, first_line))
    if special_tokens is not None:
        tokens = dict(data.vocab)
        special = number_special_tokens(special_tokens, tokens)
        unspelled = data.unspelled - frozenset(special.values())
        data = data._replace(vocab=dict(sorted(tokens.items())), special_tokens=special, unspelled=unspelled)
    return data if pattern is None else data._replace(pattern=pattern)


def _lines_of_merges(data: bytes, source: StrPath) -> tuple[list[str], int]:
    """Return the merges of a merges.txt, and the number of the line of the first."""
    lines = parse_text(data, source).replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    # The first merge joins two single characters, so a first line that begins so is no merge; any later one may be.
    first_line = 2 if lines and lines[0].startswith("#version") else 1
    return lines[first_line - 1 :], first_line


def with_added_tokens(data: TokenizerData, config: bytes, path: StrPath) -> TokenizerData:
    """Return the tokenizer of a tokenizer.model with the added tokens of the tokenizer_config.json beside it."""
    entries = huggingface.read_added(huggingface.added_tokens_of_config(config, path), path)
    vocab, special, added = dict(data.vocab), dict(data.special_tokens), dict(data.added_tokens)
    flags: dict[str, Any] = {name: getattr(data, name) for name in huggingface.FLAGS}
    for text, entry in entries.items():
        number = entry["id"]
        if text in special or text in added:
            if (special | added)[text] != number:
                refuse(
                    path, f"the added token {text!r} has the id {number}, and {(special | added)[text]} in the model"
                )
            continue
        spelled = sentencepiece.decoded(text)
        if vocab.setdefault(number, spelled) not in (spelled, text.encode()):
            refuse(path, f"the added token {text!r} has the id {number}, which the model gives to {vocab[number]!r}")
        (special if entry["special"] else added)[text] = number
        flags = {name: texts | {text} if entry[name] else texts for name, texts in flags.items()}
    return data._replace(vocab=vocab, special_tokens=special, added_tokens=added, **flags)


def added_tokens(
    beside: Mapping[str, bytes], row: Class, vocab: dict[str, int], path: StrPath
) -> tuple[list[Step], dict[str, str]]:
    """Return the added tokens as a tokenizer.json has them, and the special ones by their part (see NAMED).

    They come from "added_tokens_decoder" or added_tokens.json, and from the special tokens that the files or the class
    name. A token without an id gets that of the vocabulary, or the next one.
    """
    config = dict(_object(beside, CONFIG, path))
    entries: list[Step] = []
    if config.get("added_tokens_decoder") is not None:
        entries = huggingface.added_tokens_of_config(beside[CONFIG], path)
    else:
        config |= _object(beside, "special_tokens_map.json", path)
    parts: dict[str, str] = {}
    named: dict[str, Step] = {}
    for part in NAMED:
        value = config.get(f"{part}_token", row.special.get(part))
        if value is not None:
            entry = _special_entry(value, path)
            if part == "mask" and row.mask_strips and isinstance(value, str):
                entry["lstrip"] = True
            parts[part] = entry["content"]
            named.setdefault(entry["content"], entry)
    for key in ("extra_special_tokens", "additional_special_tokens"):
        values = config.get(key) or []
        if not isinstance(values, (list, dict)):
            refuse(path, f'expected "{key}" to be a list or an object of special tokens, got {values!r:.80}')
        for value in values.values() if isinstance(values, dict) else values:
            entry = _special_entry(value, path)
            named.setdefault(entry["content"], entry)
    if config.get("added_tokens_decoder") is None:
        for text, number in _object(beside, "added_tokens.json", path).items():
            special = text in named
            entries.append({"content": text, "id": number, "special": special, "normalized": not special})
    ids = vocab | {entry["content"]: check_id(entry["id"], path, entry["content"]) for entry in entries}
    texts = {entry["content"] for entry in entries}
    for entry in entries:
        entry["special"] = bool(entry.get("special")) or entry["content"] in named
    following = itertools.count(1 + max(ids.values(), default=-1))
    entries += [
        {**entry, "id": vocab[text] if text in vocab else next(following)}
        for text, entry in named.items()
        if text not in texts
    ]
    return entries, parts


def _object(beside: Mapping[str, bytes], name: str, path: StrPath) -> dict[str, Any]:
    value = parse_json(beside[name], os.path.join(os.path.dirname(path), name)) if name in beside else {}
    if not isinstance(value, dict):
        refuse(path, f"expected {name} to be an object, got {type(value).__name__}")
    return value


def _special_entry(value: Any, path: StrPath) -> Step:
    """A special token of a configuration: a text, or an object with its flags."""
    if isinstance(value, str):
        return {"content": value, "special": True, "normalized": False}
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        refuse(path, f"expected a special token to be a text or an object with its content, got {str(value)[:80]}")
    flags = {name: value[name] for name in huggingface.FLAGS if name in value}
    return {"content": value["content"], "special": True, "normalized": False, **flags}


def _template(row: Class, config: Mapping[str, Any], parts: Mapping[str, str], added: Iterable[Step]) -> Step | None:
    """The post-processor of a class, or the one that its "add_bos_token" and "add_eos_token" ask for."""
    ids = {entry["content"]: entry["id"] for entry in added}
    single: Template
    pair: Template
    if row.named == "WhisperTokenizer" and {"<|startoftranscript|>", "<|notimestamps|>"} <= ids.keys():
        parts = {**parts, "start": "<|startoftranscript|>", "none": "<|notimestamps|>"}
        single, pair = ("start", "none", 0, "eos"), ("start", "none", 0, 1, "eos")
    elif row.around is not None:
        single, pair = row.around
    else:
        before = ("bos",) if config.get("add_bos_token") and "bos" in parts else ()
        after = ("eos",) if config.get("add_eos_token") and "eos" in parts else ()
        single, pair = (*before, 0, *after), (*before, 0, *after, *before, 1, *after)
    named = {part for part in (*single, *pair) if isinstance(part, str)}
    if not named or not named <= parts.keys():
        return None
    single, pair = (tuple(parts[part] if isinstance(part, str) else part for part in one) for one in (single, pair))
    return template_step(single, pair, ids)
