"""The tokenizer beside a model: loaded where text is wanted, kept in the run that was trained with it."""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path
from typing import Any

from lm.data import Mixture
from lm.extras import need
from lm.files import atomic_write, read_json
from lm.text_config import TOKENIZER_CONFIG, read_text_config, write_text_config


def load_tokenizer(path: str | Path) -> Any:
    """Load a bpe.Tokenizer from bpe's own file, tokenizer.json, llama2.c's tok.bin, or vocab.json beside merges.txt.

    ValueError: the file is not a tokenizer, or one that is not supported, by name.
    """
    path = Path(path)
    with open(path, "rb") as file:
        head = file.read(64)
    if path.suffix == ".bin":
        return of_llama2c(path)
    if path.name == PAIR[0] and path.with_name(PAIR[1]).is_file():
        return gpt2_pair(path.parent)
    bpe = need("bpe", "text", "groundup-lm[text]")
    if head.lstrip().startswith(b"{") and b'"groundup-bpe"' not in head:
        if not isinstance(read_json(path, missing_ok=True).get("model"), dict):
            raise ValueError(f"{path} is not a tokenizer: there is no model in it")
        return bpe.Tokenizer.from_huggingface(path)
    return bpe.Tokenizer.load(path)


def of_llama2c(path: Path) -> Any:
    """The tokenizer in llama2.c's tok.bin: the longest length, then a score, a length and the text of each token.

    The best score merges first; ids 0, 1 and 2 are `<unk>`, `<s>` and `</s>`, the next 256 the bytes.
    """
    data, pieces, at = path.read_bytes(), list[Piece](), 4
    try:
        while at < len(data):
            score, size = struct.unpack_from("<fi", data, at)
            text = data[at + 8 : at + 8 + size]
            if size < 0 or len(text) != size:
                raise ValueError("it is cut short")
            pieces.append((text.decode().replace(" ", "▁"), score, PIECE))
            at += 8 + size
        names = [f"<0x{value:02X}>" for value in range(256)]
        if [text for text, *_ in pieces[3:259]] != names:
            raise ValueError("its tokens 3 to 258 are not the 256 bytes")
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path} is not a tokenizer of llama2.c: {error}") from None
    pieces[:3] = ("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)
    pieces[3:259] = [(name, 0.0, BYTE) for name in names]
    return of_pieces(pieces, True, path)


Piece = tuple[str, float, int]  # text, score and kind, as SentencePiece and GGUF number kinds
PIECE, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def of_pieces(pieces: list[Piece], space_in_front: bool, path: Path) -> Any:
    """The tokenizer of SentencePiece's pieces, as a tokenizer.json holds it, which puts <s> in front of a text."""
    bpe = need("bpe", "text", "groundup-lm[text]")
    from bpe.formats.sentencepiece import of_pieces as read

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        bpe.Tokenizer.from_data(read(pieces, space_in_front, False, path)).to_huggingface(file)
        content = json.loads(file.read_text(encoding="utf-8"))
        begin = next((i for i, (text, _, kind) in enumerate(pieces) if text == "<s>" and kind == CONTROL), None)
        if begin is not None:
            one, two = (
                [{"SpecialToken": {"id": "<s>", "type_id": i}}, {"Sequence": {"id": text, "type_id": i}}]
                for i, text in enumerate("AB")
            )
            special = {"<s>": {"id": "<s>", "ids": [begin], "tokens": ["<s>"]}}
            parts = {"single": one, "pair": one + two, "special_tokens": special}
            content["post_processor"] = {"type": "TemplateProcessing", **parts}
        file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return bpe.Tokenizer.from_huggingface(file)


PAIR = ("vocab.json", "merges.txt")  # GPT-2's own layout


def gpt2_pair(folder: Path) -> Any:
    """The tokenizer in a folder with PAIR and, optionally, added_tokens.json. ValueError: it is not GPT-2's kind."""
    bpe = need("bpe", "text", "groundup-lm[text]")
    about, vocab, added = (
        read_json(folder / name, missing_ok=True) for name in (TOKENIZER_CONFIG, PAIR[0], "added_tokens.json")
    )
    for name, usual in (("tokenizer_class", "GPT2Tokenizer"), ("add_prefix_space", False), ("add_bos_token", False)):
        if about.get(name, usual) not in (usual, f"{usual}Fast"):
            kind = f"{name} is {about[name]!r}, expected GPT-2's {usual!r}"
            raise ValueError(f"{folder}: {kind}: save its tokenizer as a tokenizer.json")
    special = {name: vocab[name] for name in ("<|endoftext|>",) if name in vocab} | added
    return bpe.Tokenizer.from_gpt2(folder / PAIR[0], folder / PAIR[1], special_tokens=special)


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
