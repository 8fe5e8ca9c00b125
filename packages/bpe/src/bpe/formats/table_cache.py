"""The tables of large tokenizers, kept on disk: the next process that loads the same file reads them in milliseconds.

Loading a tokenizer of 100,000 tokens takes a tenth of a second: its file is parsed, and the pair that makes each token
is found. When the first text is encoded, what came out is written into a folder; a file of the same content is then
loaded from there. A tokenizer is the same in either case, and nothing depends on the folder: it may be deleted at any
time, and where it cannot be read or written nothing is kept.

The folder is the one that BPE_CACHE_DIR names; if that is empty, nothing is kept. Otherwise it is groundup-bpe in the
user's folder for caches. It has a file or two for each tokenizer:

    a checksum          in eight hexadecimal digits, and a space
    a line of JSON      the format and the sizes of the sections
    sections            TokenizerData, but vocabulary and merges, as JSON (bpe.formats.packed); the arrays of the
                        vocabulary, of the merges, and of bpe.encoding.ranks.Ranks; each filled up to eight bytes

Its name is a hash of all that the tokenizer is made from: the contents of its files, what was given beside them, and
the code that reads them. Files appear whole or not at all, so several processes may write one at a time.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from array import array
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bpe.encoding.ranks import Ranks
from bpe.formats import Merges, TokenizerData, check_ids
from bpe.formats.vocabulary import Tables, make_tables
from bpe.native.atomic_file import atomic_file
from bpe.native.lazy_imports import import_lock
from bpe.native.lazy_imports import numpy as np
from bpe.native.once import made_once_property

FORMAT = "tables of groundup-bpe, version 2"
ALIGNMENT = 8
SMALLEST = 1 << 18  # bytes of the files of a tokenizer that is kept; others load in a few milliseconds anyway
LARGEST_FOLDER = 1 << 29  # bytes of all files; the ones not used for the longest time go


class Loaded(NamedTuple):
    """A tokenizer, and what makes the tables of its encoder: see bpe.encoding.text_encoder.TextEncoder."""

    data: TokenizerData
    tables: Callable[[bool], Tables]


def load(parse: Callable[[], TokenizerData], contents: Sequence[bytes], *beside: Any) -> Loaded:
    """Return the tokenizer that parse() reads, from the tables that an earlier process wrote if there are any.

    Args:
        parse: reads the tokenizer from the contents of its files.
        contents: these contents.
        beside: what else the tokenizer depends on; what differs has another repr().
    """
    path = _path_of(contents, beside) if sum(map(len, contents)) >= SMALLEST else None
    loaded = None if path is None else _read(path)
    if loaded is not None:
        return loaded
    data = parse()
    check_ids(data.vocab)

    def tables(ignore_merges: bool) -> Tables:
        built = make_tables(data, ignore_merges)
        if path is not None and ignore_merges == data.ignore_merges:
            with suppress(OSError):  # a full disk, a folder that is read-only: the next process makes them again
                _write(path, data, built)
            built.ranks.matches_file = MatchesFile(path)
        return built

    return Loaded(data, tables)


# Which file


def folder() -> Path | None:
    """The folder of the kept tables; None where nothing is kept."""
    named = os.environ.get("BPE_CACHE_DIR")
    if named is not None:
        return Path(named) if named else None
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        caches = os.path.join(home, "Library", "Caches")
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return Path(caches, "groundup-bpe") if os.path.isabs(caches) else None


def _path_of(contents: Sequence[bytes], beside: Sequence[Any]) -> Path | None:
    with import_lock:
        import hashlib  # here, for it loads OpenSSL

    within = folder()
    if within is None:
        return None
    digest = hashlib.sha256()
    for part in (repr([FORMAT, sys.byteorder, _code(), beside]).encode(), *contents):
        digest.update(len(part).to_bytes(8, "little") + part)
    return within / f"{digest.hexdigest()}.tables"


def _code() -> list[Any]:
    """Return what changes with the code that makes tables: the version, and in a source checkout each file's state.

    Any module may change the result: a pattern's, a normalizer's, a format's. Wheels hold no sources of Cython.
    """
    package = Path(__file__).parents[1]
    files: list[Path] = []
    if (package / "encoding" / "ranks.pyx").exists():
        files = sorted(file for ending in ("py", "so", "pyd") for file in package.rglob(f"*.{ending}"))
    states = [(str(file.relative_to(package)), os.stat(file)) for file in files]
    return [sys.modules["bpe"].__version__, *((name, state.st_size, state.st_mtime_ns) for name, state in states)]


# Reading


class MatchesFile:
    """A file with the tables for long pretokens, which are made when a text needs them (encoding/matches.h)."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_suffix(".matches.tables")

    def read(self) -> dict[str, memoryview] | None:
        """The sections of the file; None where there is none, or one that is damaged."""
        return _sections_at(self._path)

    def write(self, sections: Mapping[str, bytes]) -> None:
        with suppress(OSError):
            _write_sections(self._path, sections)


class KeptTokens:
    """Tokens, of which bytes objects are made when one is asked for.

    Args:
        text: the tokens, one after another.
        sizes: how many bytes each has, as uint32.
    """

    def __init__(self, text: bytes, sizes: bytes) -> None:
        self._text, self._sizes = text, memoryview(sizes).cast("I")

    @made_once_property
    def tokens(self) -> list[bytes]:
        text = self._text
        return [text[begin:end] for begin, end in pairwise(accumulate(self._sizes, initial=0))]


class KeptVocabulary(Mapping[int, bytes]):
    """{id: token}, made when it is asked for: encoding does without."""

    def __init__(self, ids: bytes, tokens: KeptTokens) -> None:
        self._ids, self._tokens_on_disk = memoryview(ids).cast("I"), tokens

    @made_once_property
    def _made(self) -> dict[int, bytes]:
        return dict(zip(self._ids, self._tokens_on_disk.tokens, strict=True))

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._made)

    def __getitem__(self, number: int) -> bytes:
        return self._made[number]

    def keys(self) -> KeysView[int]:
        return self._made.keys()

    def items(self) -> ItemsView[int, bytes]:
        return self._made.items()

    def values(self) -> ValuesView[bytes]:
        return self._made.values()

    def __repr__(self) -> str:
        return repr(self._made)

    def __reduce__(self) -> tuple[type[dict[int, bytes]], tuple[dict[int, bytes]]]:
        return dict, (self._made,)


class KeptMerges(Merges):
    """Merges of tokens that are made when one is asked for."""

    def __init__(self, tokens: KeptTokens, halves: bytes) -> None:
        self._tokens_on_disk, self._halves = tokens, memoryview(halves).cast("I")

    @property
    def tokens(self) -> list[bytes]:  # type: ignore[override]
        return self._tokens_on_disk.tokens


def _read(path: Path) -> Loaded | None:
    """The tokenizer of a file; None where there is none, or one that is damaged."""
    sections = _sections_at(path)
    try:
        return None if sections is None else _loaded(sections, path)
    except (ValueError, KeyError, TypeError):
        return None


def _sections_at(path: Path) -> dict[str, memoryview] | None:
    try:
        if not os.environ.get("BPE_CACHE_DIR") and os.name == "posix" and path.parent.stat().st_uid != os.geteuid():
            return None  # somebody else could have written to it
        sections = _sections_of(path.read_bytes())
        with suppress(OSError):
            os.utime(path)  # so that it is not the next to go
        return sections
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sections_of(content: bytes) -> dict[str, memoryview]:
    summed = memoryview(content)[9:]
    if content[:9] != b"%08x " % zlib.crc32(summed):
        raise ValueError("damaged")
    begin = content.index(b"\n") + 1
    head = json.loads(content[9:begin])
    if head["format"] != FORMAT:
        raise ValueError("of another version")
    sections = {}
    for name, size in head["sections"].items():
        sections[name] = summed[begin - 9 : begin - 9 + size]
        begin += -(-size // ALIGNMENT) * ALIGNMENT
    return sections


def _loaded(sections: dict[str, memoryview], path: Path) -> Loaded:
    with import_lock:
        from bpe.formats.packed import unpack

    def copy(name: str) -> bytes:  # so that nothing holds the whole file in memory
        return bytes(sections[name])

    vocab = KeptVocabulary(copy("vocab ids"), KeptTokens(copy("vocab text"), copy("vocab sizes")))
    merges = None
    if "merges" in sections:
        merges = KeptMerges(KeptTokens(copy("ranks text"), copy("ranks sizes")), copy("merges"))
    data = unpack(copy("data"))._replace(vocab=vocab, merges=merges)
    parts = {name.removeprefix("ranks "): part for name, part in sections.items() if name.startswith("ranks ")}
    stands_for = {number: tuple(ids) for number, ids in json.loads(copy("stands for"))}
    tables_on_disk = Tables(
        Ranks(parts=parts, drops_bytes=data.drops_bytes),
        memoryview(copy("ids")).cast("I"),
        None,
        stands_for,
    )

    tables_on_disk.ranks.matches_file = MatchesFile(path)

    def tables(ignore_merges: bool) -> Tables:
        return tables_on_disk if ignore_merges == data.ignore_merges else make_tables(data, ignore_merges)

    return Loaded(data, tables)


# Writing


def _write(path: Path, data: TokenizerData, tables: Tables) -> None:
    with import_lock:
        from bpe.formats.packed import pack

    vocab = data.vocab
    sections = {
        "data": pack(data._replace(vocab={}, merges=None)),
        "vocab ids": array("I", vocab).tobytes(),
        "vocab sizes": array("I", map(len, vocab.values())).tobytes(),
        "vocab text": b"".join(vocab.values()),
        "ids": tables.ids.tobytes(),
        "stands for": json.dumps(list(tables.stands_for.items())).encode(),
        **{f"ranks {name}": part for name, part in tables.ranks.parts().items()},
    }
    if data.merges is not None and tables.merges is not None:
        first = len(tables.merges) - len(data.merges)  # before them are those that join the bytes of characters
        sections["merges"] = np.ascontiguousarray(tables.merges[first:, :2], dtype=np.uint32).tobytes()
    _write_sections(path, sections)


def _write_sections(path: Path, sections: Mapping[str, bytes]) -> None:
    head = json.dumps({"format": FORMAT, "sections": {name: len(part) for name, part in sections.items()}})
    filled = [head.encode() + b" " * (-(len(head) + 10) % ALIGNMENT) + b"\n"]  # 10: the checksum and this line's end
    filled += [part + bytes(-len(part) % ALIGNMENT) for part in sections.values()]
    checksum = 0
    for part in filled:
        checksum = zlib.crc32(part, checksum)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_file(path, flush=False) as file:
        file.write(b"%08x " % checksum)
        file.writelines(filled)
    _tidy(path.parent)


def _tidy(folder: Path) -> None:
    """Delete the files that were not used for the longest time, until the folder is no larger than it may be."""
    files = []
    for file in folder.glob("*.tables"):
        with suppress(OSError):  # another process has deleted it
            state = file.stat()
            files.append((state.st_mtime, state.st_size, file))
    total = sum(size for _, size, _ in files)
    for _, size, file in sorted(files):
        if total <= LARGEST_FOLDER:
            return
        with suppress(OSError):
            file.unlink()
        total -= size
