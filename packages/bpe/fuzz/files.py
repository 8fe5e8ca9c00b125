"""Files of tokenizers with some of their bytes or values changed: each is read right, or refused by a ValueError.

    python packages/bpe/fuzz/files.py --count 50000 FILE… FOLDER…    # changes of each file in turn, up to that number

A folder is that of a model, of which one file is changed at a time. What loads is used and written; any other error is
printed with the change that led to it, and the program ends with 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import bpe

TEXTS = ("Hello  wörld 123\n\n", "▁a <s>中文\x00 e\u0301 \U0001f600", " the the<|endoftext|>")
VALUES: list[Any] = [None, True, -1, 0, 7, 2**31, 0.5, "", "a", " ", "▁", "\ud800", "</w>", [], [[]], {}, ["a", "b"]]
MOST_TOKENS = 300  # of a JSON file, whose vocabulary is cut to its first ones


def trimmed(content: bytes) -> bytes:
    """A tokenizer.json with the first tokens only, so that thousands of changes take minutes."""
    file = json.loads(content)
    model = file.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        return content
    added = {token["content"] for token in file.get("added_tokens") or []}
    vocab = model["vocab"]
    first = dict(sorted(vocab.items(), key=lambda item: item[1])[:MOST_TOKENS])
    first |= {text: number for text, number in vocab.items() if text in added or len(text) == 1 or text[:3] == "<0x"}
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    model["vocab"] = first
    model["merges"] = [pair for pair in merges if all(text in first for text in (*pair, "".join(pair)))]
    return json.dumps(file).encode()


def changed(content: bytes, chance: random.Random) -> bytes:
    """The content after one change or a few: of a value of its JSON, or of its bytes."""
    if content[:1] == b"{" and chance.random() < 0.8:
        file = json.loads(content)
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            _change_value(file, chance)
        return json.dumps(file).encode()
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 8])):
        at = min(len(data), int(len(data) * chance.random() ** chance.choice([1, 6])))  # the beginning more often
        kind = chance.randrange(4)
        if kind == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del data[at : at + chance.choice([1, 2, 20])]
        elif kind == 2:
            data[at:at] = data[at : at + chance.choice([1, 5, 50])]
        else:
            data = data[: max(1, at)] if chance.random() < 0.1 else data
    return bytes(data)


def _change_value(value: Any, chance: random.Random) -> None:
    """Change something within an object or a list, the deeper parts as likely as the others."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = chance.choice(keys)
        inner = value[key]
        if isinstance(inner, (dict, list)) and inner and chance.random() < 0.8:
            value = inner
            continue
        kind = chance.randrange(4)
        if kind == 0:
            del value[key]
        elif kind == 1 and isinstance(inner, (int, str)) and not isinstance(inner, bool):
            value[key] = inner + 1 if isinstance(inner, int) else inner[::-1] + chance.choice(["", "x", "\ud800"])
        elif kind == 2 and isinstance(value, dict):
            value[chance.choice(["type", "x", "▁", "dropout", "special"])] = chance.choice(VALUES)
        else:
            value[key] = chance.choice(VALUES)
        return


def use(path: Path) -> bool:
    """Load a file or a folder, use and write its tokenizer; returns whether it was read, or raises other errors."""
    try:
        tokenizer = bpe.load(path, pattern="gpt2" if path.suffix == ".tiktoken" else None)
    except ValueError as error:
        if not str(error).startswith(str(path)) or "\n" in str(error):
            raise TypeError("not one line that names the file") from error
        return False
    for text in TEXTS:
        ids = tokenizer.encode(text, disallowed_special=())
        decoded = tokenizer.decode(ids)
        stream = tokenizer.decode_stream()
        assert "".join(map(stream.step, ids)) + stream.finish() == decoded
        assert tokenizer.encode_with_offsets(text, disallowed_special=())[0] == ids
        tokenizer.truncate(text, 3, disallowed_special=())
        assert tokenizer.encode_batch([text], disallowed_special=()) == [ids]
        for trusted in (False, True):
            tokenizer.encode_segments([(text, trusted)])
    folder = path if path.is_dir() else path.parent
    tokenizer.save(folder / "saved.bpe")
    assert bpe.load(folder / "saved.bpe").data == tokenizer.data
    for number, write in enumerate((tokenizer.to_huggingface, tokenizer.to_tiktoken, tokenizer.to_gpt2)):
        try:
            write(folder / f"written-{number}")
        except ValueError:
            continue
    return True


def attack(
    name: str, content: bytes, chance: random.Random, folder: Path, beside: dict[str, bytes] | None = None
) -> bool:
    """use() of a changed file. AssertionError names the change that was neither read nor refused.

    beside: files of a folder, {name: content}, which is loaded as one.
    """
    data = changed(content, chance)
    for other, unchanged in (beside or {}).items():
        (folder / other).write_bytes(unchanged)
    (folder / name).write_bytes(data)
    path = folder if beside else folder / name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return use(path)
        except Exception as error:
            (folder / "finding").write_bytes(data)
            raise AssertionError(f"{name}: {type(error).__name__} {error}") from error


def main() -> int:
    """Change files until there were enough changes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    contents: list[tuple[str, bytes, dict[str, bytes]]] = []
    for path in options.files:
        files = {one.name: one.read_bytes() for one in (path.iterdir() if path.is_dir() else [path])}
        files = {name: trimmed(content) if content[:1] == b"{" else content for name, content in files.items()}
        contents += [(name, content, files if path.is_dir() else {}) for name, content in files.items()]
    findings: dict[str, int] = {}
    loaded = 0
    for number in range(options.count):
        name, content, beside = contents[number % len(contents)]
        chance = random.Random(f"{options.seed} {number}")
        with tempfile.TemporaryDirectory() as folder:
            try:
                loaded += attack(name, content, chance, Path(folder), beside)
            except AssertionError as error:
                frame = traceback.extract_tb((error.__cause__ or error).__traceback__)[-1]
                kind = f"{type(error.__cause__).__name__} at {frame.filename}:{frame.lineno}"
                findings[kind] = findings.get(kind, 0) + 1
                if findings[kind] == 1:
                    print(f"change {number}: {error} ({kind})", flush=True)
    print(f"{options.count} changes of {len(contents)} files: {loaded} read, findings: {findings or 'none'}")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
