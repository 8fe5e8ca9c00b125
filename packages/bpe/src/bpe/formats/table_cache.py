"""The tables of large tokenizers, kept on disk: the next process that loads the same file reads them in milliseconds.

The folder is the one that BPE_CACHE_DIR names (if that is empty, nothing is kept), or groundup-bpe in the user's folder
for caches. It may be deleted at any time. The name of a file is a hash of all that a tokenizer is made from: the
contents of its files, what was given beside them, and the code that reads them. It holds:

    a checksum          in eight hexadecimal digits, and a space
    a line of JSON      the format and the sizes of the sections
    sections            TokenizerData, but vocabulary and merges, as JSON (bpe.formats.native); the arrays of the
                        vocabulary, of the merges, and of bpe.encoding.encoder.Ranks; each filled up to eight bytes

A folder or a file that somebody else owns or may write to is not read, and every number that is an index later is
bounded, so that a file with a right checksum and wrong content costs no more than another encoding.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from array import array
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from contextlib import suppress
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bpe.encoding.encoder import Ranks
from bpe.formats import Merges, TokenizerData, check_ids, split_off_ids
from bpe.formats.pairs import check_numbers
from bpe.formats.vocabulary import Tables, make_tables
from bpe.native.atomic_file import atomic_file
from bpe.native.lazy_imports import hashlib, import_lock
from bpe.native.lazy_imports import numpy as np
from bpe.native.once import made_once_property

FORMAT = "tables of groundup-bpe, version 4"
SECTIONS = {
    *("data", "vocab ids", "vocab sizes", "vocab text", "ids", "stands for", "merges"),
    *(f"ranks {name}" for name in ("text", "sizes", "pairs", "filter", "byte_pairs", "made", "first_made", "lost")),
}
ALIGNMENT = 8
SMALLEST = 1 << 18  # bytes of the files of a tokenizer that is kept; others load in a few milliseconds anyway
LARGEST_FOLDER = 1 << 29  # bytes of all files; the ones not used for the longest time go


class Loaded(NamedTuple):
    """A tokenizer, and what makes the tables of its encoder: see bpe.encoding.text_encoder.TextEncoder."""

    data: TokenizerData
    tables: Callable[[bool], Tables]


def load(parse: Callable[[], TokenizerData], contents: Sequence[bytes], *beside: Any) -> Loaded:
    """Return the tokenizer that parse() reads, from the tables that an earlier process wrote if there are any.

    contents: of the tokenizer's files. beside: other inputs that change the result, hashed by repr().
    """
    path = _path_of(contents, beside) if sum(map(len, contents)) >= SMALLEST else None
    loaded = None if path is None else _read(path)
    if loaded is not None:
        return loaded
    data = parse()
    check_ids(data.vocab)
    if path is None or data.words is not None:  # whose encoder has no tables
        return Loaded(data, partial(make_tables, data))
    built = make_tables(data, data.ignore_merges)
    with suppress(OSError):  # a full disk, a folder that is read-only: the next process makes them again
        _write(path, data, built)
    return Loaded(data, partial(_tables, data, built))


def _tables(data: TokenizerData, built: Tables, ignore_merges: bool) -> Tables:
    """The tables that were built or read, unless others are needed."""
    return built if ignore_merges == data.ignore_merges else make_tables(data, ignore_merges)


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
    within = folder()
    if within is None:
        return None
    with suppress(OSError):  # there may be none yet
        if not _is_own(os.stat(within)):
            return None
    digest = hashlib.sha256()
    for part in (repr([FORMAT, sys.byteorder, _code(), beside]).encode(), *contents):
        digest.update(len(part).to_bytes(8, "little") + part)
    return within / f"{digest.hexdigest()}.tables"


def _code() -> list[Any]:
    """Return what changes with the code that makes tables: the version, and in a source checkout each file's state."""
    package = Path(__file__).parents[1]
    states: list[tuple[str, int, int]] = []
    if (package / "encoding" / "encoder.pyx").exists():  # wheels hold no sources of Cython
        entries = [entry for folder, *_ in os.walk(package) for entry in os.scandir(folder)]
        files = [(entry.path, entry.stat()) for entry in entries if entry.name.endswith((".py", ".so", ".pyd"))]
        states = sorted((path, state.st_size, state.st_mtime_ns) for path, state in files)
    return [sys.modules["bpe"].__version__, *states]


# Reading


def _tokens_of(text: bytes, sizes: bytes) -> list[bytes]:
    """The tokens of a text of all of them. sizes: of each, as uint32."""
    return [text[begin:end] for begin, end in pairwise(accumulate(memoryview(sizes).cast("I"), initial=0))]


class KeptVocabulary(Mapping[int, bytes]):
    """{id: token}, made when it is asked for: encoding does without."""

    def __init__(self, ids: bytes, text: bytes, sizes: bytes) -> None:
        self._ids, self._text, self._sizes = memoryview(ids).cast("I"), text, sizes

    @made_once_property
    def _made(self) -> dict[int, bytes]:
        return dict(zip(self._ids, _tokens_of(self._text, self._sizes), strict=True))

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._made)

    def __getitem__(self, number: int) -> bytes:
        return self._made[number]

    def items(self) -> ItemsView[int, bytes]:
        return self._made.items()

    def values(self) -> ValuesView[bytes]:
        return self._made.values()

    def __reduce__(self) -> tuple[type[dict[int, bytes]], tuple[dict[int, bytes]]]:
        return dict, (self._made,)


def _read(path: Path) -> Loaded | None:
    """The tokenizer of a file; None where there is none, or one that is damaged or of somebody else."""
    try:
        with open(path, "rb") as file:
            if not _is_own(os.fstat(file.fileno())):
                return None
            content = file.read()
        loaded = _loaded(_sections_of(content), path)
        with suppress(OSError):
            os.utime(path)  # so that it is not the next to go
        return loaded
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _is_own(state: os.stat_result) -> bool:
    """True if a file or folder is of this process's user and nobody else may write to it."""
    return os.name != "posix" or (state.st_uid == os.geteuid() and not state.st_mode & 0o022)


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
    if SECTIONS - sections.keys() - {"merges"} or sections.keys() - SECTIONS:
        raise ValueError("of other sections")
    return sections


def _loaded(sections: dict[str, memoryview], path: Path) -> Loaded:
    with import_lock:
        from bpe.formats.native import read_fields

    def copy(name: str) -> bytes:  # so that nothing holds the whole file in memory
        return bytes(sections[name])

    vocab = KeptVocabulary(copy("vocab ids"), copy("vocab text"), copy("vocab sizes"))
    merges = None
    if "merges" in sections:
        merges = Merges(partial(_tokens_of, copy("ranks text"), copy("ranks sizes")), copy("merges"))
    data = TokenizerData(vocab, merges, **read_fields(json.loads(copy("data")), path))
    parts = {name.removeprefix("ranks "): part for name, part in sections.items() if name.startswith("ranks ")}
    stands_for = {number: tuple(ids) for number, ids in json.loads(copy("stands for"))}
    ids = memoryview(copy("ids")).cast("I")
    ranks = Ranks(parts=parts, drops_bytes=data.drops_bytes)
    byte_ids = set(data.characters.byte_ids if data.characters is not None else ())
    if not (
        len(ids) == ranks.symbols
        and len(vocab) == len(copy("vocab sizes")) // 4
        and (ranks.all_bytes or data.drops_bytes)
        and [*stands_for] == [*range(min(stands_for, default=0), min(stands_for, default=0) + len(stands_for))]
        and all(2 <= len(spelled) <= 3 and byte_ids.issuperset(spelled) for spelled in stands_for.values())
    ):
        raise ValueError("sections that do not fit together")
    used = array("I", split_off_ids(data))
    used.frombytes(sections["ids"])
    others = {0, *stands_for}  # the space that "▁" stands for has no id of its own
    halves = memoryview(b"").cast("I") if merges is None else merges.numbers
    check_numbers(memoryview(copy("vocab ids")).cast("I"), memoryview(used), others, halves, ranks.symbols)
    return Loaded(data, partial(_tables, data, Tables(ranks, ids, None, stands_for)))


# Writing


def _write(path: Path, data: TokenizerData, tables: Tables) -> None:
    with import_lock:
        from bpe.formats.native import write_fields

    vocab = data.vocab
    sections = {
        "data": json.dumps(write_fields(data)).encode(),
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
    head = json.dumps({"format": FORMAT, "sections": {name: len(part) for name, part in sections.items()}})
    filled = [head.encode() + b" " * (-(len(head) + 10) % ALIGNMENT) + b"\n"]  # 10: the checksum and this line's end
    filled += [part + bytes(-len(part) % ALIGNMENT) for part in sections.values()]
    checksum = 0
    for part in filled:
        checksum = zlib.crc32(part, checksum)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_file(path, flush=False) as file:
        if os.name == "posix":
            os.fchmod(file.fileno(), 0o600)
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
