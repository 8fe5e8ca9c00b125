"""Special tokens and chat template of a model, in transformers' files.

FOLDER/tokenizer_config.json     bos_token, eos_token and so on; the chat template, in older models
FOLDER/chat_template.jinja       the chat template, in newer ones
FOLDER/generation_config.json    eos_token_id: the ids that end an answer, one or several
FOLDER/config.json               the same, where there is no generation_config.json

A run that was made of such a model keeps the first and the third. A .gguf file has the same in its header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm.files import atomic_write, read_json

TOKENIZER_CONFIG, GENERATION_CONFIG, TEMPLATE = "tokenizer_config.json", "generation_config.json", "chat_template.jinja"
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
MOST = 1 << 20  # characters of a chat template


@dataclass(frozen=True)
class TextConfig:
    """Special tokens and chat template of a model."""

    names: Mapping[str, str] = field(default_factory=dict)  # special tokens by use, as {"eos_token": "<|im_end|>"}
    chat_template: str | None = None  # in Jinja
    eos_ids: tuple[int, ...] = ()  # the ids that end an answer

    def stop_tokens(self, tokenizer: Any) -> list[int]:
        """The ids that end an answer: those that are given as ids, and the eos_token."""
        named = tokenizer.special_tokens.get(self.names.get("eos_token", ""))
        return list(dict.fromkeys([*self.eos_ids, *([] if named is None else [int(named)])]))


def read_text_config(folder: str | Path) -> TextConfig:
    """The TextConfig of a run or a model's folder; empty without such files. ValueError: a file is not valid."""
    folder = Path(folder)
    about = read_json(folder / TOKENIZER_CONFIG, missing_ok=True)
    names = {name: content for name in NAMES if (content := content_of(about.get(name))) is not None}
    source = about.get("chat_template")
    if isinstance(source, list):  # several, by name
        named = {one.get("name"): one.get("template") for one in source if isinstance(one, dict)}
        source = named.get("default")
    if (folder / TEMPLATE).is_file():
        source = (folder / TEMPLATE).read_text(encoding="utf-8")
    if source is not None and (not isinstance(source, str) or len(source) > MOST):
        raise ValueError(f"{folder / TOKENIZER_CONFIG}: expected a chat_template of at most {MOST:,} characters")
    generation = read_json(folder / GENERATION_CONFIG, missing_ok=True)
    eos = generation.get("eos_token_id", read_json(folder / "config.json", missing_ok=True).get("eos_token_id"))
    ids = eos if isinstance(eos, list) else [eos]
    return TextConfig(names, source, tuple(number for number in ids if type(number) is int and number >= 0))


def write_text_config(folder: Path, config: TextConfig) -> None:
    """Write the files that read_text_config reads into a run."""
    if config.names or config.chat_template is not None:
        about = {**config.names, **({} if config.chat_template is None else {"chat_template": config.chat_template})}
        atomic_write(folder / TOKENIZER_CONFIG, json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    if config.eos_ids:
        atomic_write(folder / GENERATION_CONFIG, json.dumps({"eos_token_id": list(config.eos_ids)}) + "\n")


def content_of(value: Any) -> str | None:
    """A special token, which stands as a string or as an object with its content."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
