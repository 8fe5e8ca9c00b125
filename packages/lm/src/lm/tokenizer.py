"""The tokenizer of a model, its special tokens and its chat template, in the files that lie beside the model.

FOLDER/tokenizer_config.json     bos_token, eos_token and so on; the chat template, in older models
FOLDER/chat_template.jinja       the chat template, in newer ones
FOLDER/generation_config.json    eos_token_id: the ids that end an answer, one or several
FOLDER/config.json               the same, where there is no generation_config.json

A run that was made of such a model keeps the first and the third. A .gguf file has the same in its header.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm.extras import need
from lm.files import atomic_write, read_json

if TYPE_CHECKING:
    from lm.data import Mixture

TOKENIZER_CONFIG, GENERATION_CONFIG, TEMPLATE = "tokenizer_config.json", "generation_config.json", "chat_template.jinja"
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
MOST = 1 << 20  # characters of a chat template
PAIR = ("vocab.json", "merges.txt")  # GPT-2's own layout
# Kinds of tokens, as SentencePiece and GGUF number them.
PIECE, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
# The usual names of tokens that end a text, that begin one, and that end a turn of a conversation.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>")
BEGINS = ("<s>", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>", "<bos>")
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|EOT|>", "<end_of_turn>")


def load_tokenizer(path: str | Path) -> Any:
    """Load a bpe.Tokenizer from bpe's own file, tokenizer.json, .gguf, or vocab.json and merges.txt.

    ValueError: the file is not a tokenizer, or one that is not supported, by name.
    """
    path = Path(path)
    with open(path, "rb") as file:
        head = file.read(64)
    try:
        import bpe
    except ImportError:
        need("bpe", "text", "groundup-lm[text]")  # raises, with the package to install
        raise
    if path.suffix == ".gguf":
        return beginning(bpe.load(path))
    if path.name in PAIR:
        return bpe.load(path)
    if head.lstrip().startswith(b"{") and b'"groundup-bpe"' not in head:
        if not isinstance(read_json(path, missing_ok=True).get("model"), dict):
            raise ValueError(f"{path} is not a tokenizer: there is no model in it")
        return bpe.Tokenizer.from_huggingface(path)
    return bpe.Tokenizer.load(path)


def beginning(tokenizer: Any) -> Any:
    """A tokenizer of SentencePiece's pieces with a template that puts <s> in front of a text; others as they are."""
    begin = tokenizer.special_tokens.get("<s>")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        tokenizer.to_huggingface(file)
        content = json.loads(file.read_text(encoding="utf-8"))
        if begin is None or not content["model"].get("byte_fallback"):
            return tokenizer
        one, two = (
            [{"SpecialToken": {"id": "<s>", "type_id": i}}, {"Sequence": {"id": text, "type_id": i}}]
            for i, text in enumerate("AB")
        )
        special = {"<s>": {"id": "<s>", "ids": [begin], "tokens": ["<s>"]}}
        parts = {"single": one, "pair": one + two, "special_tokens": special}
        content["post_processor"] = {"type": "TemplateProcessing", **parts}
        file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return type(tokenizer).from_huggingface(file)


def check_tokenizer(path: str | Path, data: Mixture, vocab_size: int) -> None:
    """ValueError, before anything is written, for a tokenizer that is not the model's or did not make the data."""
    tokenizer = load_tokenizer(path)
    if tokenizer.n_vocab != vocab_size:
        size = f"{path} has {tokenizer.n_vocab} tokens, and vocab_size is {vocab_size}"
        raise ValueError(f"{size}: set model.vocab_size to {tokenizer.n_vocab}, or name another tokenizer")
    if data.tokenizer not in (None, tokenizer.fingerprint):
        data_path = data.parts[0].tokens.path
        raise ValueError(f"{data_path} was made by another tokenizer than {path}: encode the text with this one")


def keep_tokenizer(source: Path, run: Path) -> None:
    """Copy a tokenizer into a run, whole or not at all, with what lies beside it of chats and stop tokens."""
    run.mkdir(parents=True, exist_ok=True)
    if not (run / TOKENIZER_CONFIG).exists():
        write_text_config(run, read_text_config(source.parent))
    atomic_write(run / f"tokenizer{source.suffix}", source.read_bytes())


def kept_tokenizer(run: Path) -> Path | None:
    """The tokenizer that a run keeps."""
    return next(iter(sorted(run.glob("tokenizer.*"))), None)


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
    # A special token stands as a string or as an object with its content.
    tokens = {name: about.get(name) for name in NAMES}
    tokens = {name: one.get("content") if isinstance(one, dict) else one for name, one in tokens.items()}
    names = {name: token for name, token in tokens.items() if isinstance(token, str)}
    source = about.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = {one.get("name"): one.get("template") for one in source if isinstance(one, dict)}.get("default")
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


def end_of_text_of(tokenizer: Any, name: str | None = None) -> str:
    """The name of the special token that ends a document: `name`, or the first of END_OF_TEXT that there is."""
    special = tokenizer.special_tokens
    if name is not None:
        if name not in special:
            raise KeyError(f"the tokenizer has no special token {name!r}: it has {', '.join(special) or 'none'}")
        return name
    result = next((usual for usual in END_OF_TEXT if usual in special), None)
    if result is None:
        raise ValueError(f"the tokenizer has none of {', '.join(END_OF_TEXT)}: name a token with --end-of-text")
    return result


def prompt_ids(tokenizer: Any, text: str, end_of_text: int | None = None) -> list[int]:
    """The ids of a text to continue, begun as the tokenizer begins texts; of an empty one the end-of-text token."""
    special = tokenizer.special_tokens
    begin = next(([special[name]] for name in BEGINS if name in special), [])
    ids = list(tokenizer.encode(text, allowed_special="all"))
    if begin and ids[:1] != begin:
        ids = begin + ids
    if ids or end_of_text is not None:
        return ids or [int(end_of_text)]  # type: ignore[arg-type]
    return [special[name] for name in END_OF_TEXT if name in special][:1]


def stop_ids(tokenizer: Any, also: Iterable[int] = ()) -> list[int]:
    """The ids that end a text: of the tokens with the usual names, and `also` those that a model says of itself."""
    usual = {*END_OF_TEXT, *TURN_ENDS, *BEGINS}
    result = [int(number) for name, number in tokenizer.special_tokens.items() if name in usual]
    return list(dict.fromkeys([*result, *also]))
