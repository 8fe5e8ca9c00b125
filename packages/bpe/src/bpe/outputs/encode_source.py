"""A source of text to token files: encoded in threads, written in order, in one file or in shards of a bounded size.

The source is read in stretches of at most CHUNK bytes. Which stretches there are depends on the texts alone, so that a
run that was stopped goes on at the stretch, and the id in it, at which its last whole shard ended.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe.corpus import remote, sources
from bpe.native.atomic_file import StrPath, is_temporary
from bpe.native.checks import integer
from bpe.native.lazy_imports import numpy as np
from bpe.native.parallel import stream
from bpe.native.progress import Progress, reporter, silent
from bpe.outputs.shards import Shards
from bpe.outputs.writer import beside, read_description
from bpe.outputs.writers import writer_of

CHUNK = 4 << 20  # bytes of text that a thread encodes at a time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.encoding.policy import Special
    from bpe.encoding.text_encoder import TextEncoder


class Recipe(NamedTuple):
    """Encoding of texts to ids, and the id that ends a document."""

    # the ids of stretches of text, with True for each that begins a text; it refuses nothing in them
    encode: Callable[[list[memoryview], list[bool]], list[NDArray[np.uint32]]]
    cut: Callable[[Any, int], int]  # cut(text, at): the first position from `at` on where a text may be cut
    can_cut: bool  # any long text can be cut, and its parts encoded independently
    margin: int  # bytes that must follow a cut, unless the text ends there
    tokenizer: str  # the fingerprint
    end_of_text: int | None  # the id after which a document ends
    end_bytes: int  # length of its name in a text, which is no part of the text that the ids stand for
    separate: bool  # append that id to texts that lack it at their end
    special: list[str]  # the special tokens that are recognised, for the record
    format: str  # of the files: see bpe.outputs.writers
    dtype: np.dtype[Any]  # of the ids in them


Group = list[sources.Stretch]  # that are encoded together


class Encoded(NamedTuple):
    """The ids of a group."""

    ids: NDArray[Any]
    document_ends: NDArray[np.int64]  # positions in `ids`
    stretch_ends: NDArray[np.int64]  # of each stretch
    text_ends: NDArray[np.int64]  # bytes of text up to the end of each stretch
    read: int  # bytes of the source


def recipe_of(
    encoder: TextEncoder, fingerprint: str, format: str, dtype: Any, end_of_text: str | None, allowed_special: Special
) -> Recipe:
    """The recipe of a tokenizer, for Tokenizer.encode_file's arguments. ValueError for wrong ones."""
    names = encoder.data.special_tokens
    if end_of_text is not None and end_of_text not in names:
        raise ValueError(f"end_of_text is {end_of_text!r}, which is no special token; there are {', '.join(names)}")
    special = encoder.policy.recognised(allowed_special)
    encoder.warn_if_slow()  # not in a thread, which has no caller
    end_name = "<|endoftext|>" if end_of_text is None else end_of_text
    return Recipe(
        encode=lambda stretches, begins: encoder.each_to_ids(stretches, special, begins),
        cut=lambda text, at: encoder.safe_cut(text, at, special),
        can_cut=encoder.can_cut,
        margin=special.longest,
        tokenizer=fingerprint,
        end_of_text=names.get(end_name),
        end_bytes=len(end_name.encode()),
        separate=end_of_text is not None,
        special=sorted(name.decode() for name in special.names),
        format=format,
        dtype=checked_dtype(dtype, max(encoder.data.vocab), format),
    )


def encode_source(
    source: sources.Source,
    out: StrPath,
    recipe: Recipe,
    shard_tokens: int | None,
    num_threads: int,
    progress: Progress | bool | None,
) -> int:
    """Encode the texts of a source and write their ids in order; see Tokenizer.encode_file. Returns their number."""
    with reporter(progress) as report:
        return write_encoded(
            lambda skip: encoded_groups(source, recipe, num_threads, skip),
            out,
            recipe,
            shard_tokens,
            report,
            identity=sources.identity(source),
            total=sources.size_of(source),
        )


def encoded_groups(
    source: sources.Source, recipe: Recipe, num_threads: int, skip: int = 0, *, goes_on: bool = False
) -> Iterator[Encoded]:
    """The ids of a source in order, encoded in threads, without the first `skip` stretches.

    goes_on: True if the source is one text that does not end with it.
    """
    groups = _groups(source, recipe, skip)
    if goes_on:
        groups = ([stretch._replace(last=False) for stretch in group] for group in groups)
    return stream(lambda group: _encode(group, recipe), groups, num_threads)


def write_encoded(
    encoded: Callable[[int], Iterable[Encoded]],
    out: StrPath,
    recipe: Recipe,
    shard_tokens: int | None = None,
    report: Progress = silent,
    identity: Any = None,
    total: int | None = None,
) -> int:
    """Write ids in order, wherever they were encoded. Returns their number.

    Which bytes are written depends on the stretches alone, and without shard_tokens on the texts alone: not on which
    stretches are in a group.

    encoded(n) yields the ids of the texts without their first n stretches. identity: files and versions by which a
    later run compares the source; None for a source without files. total: its bytes, for the report.
    """
    make = writer_of(recipe.format)
    if shard_tokens is not None:
        integer("shard_tokens", shard_tokens)
    with ExitStack() as stack:
        target = _target(out, stack)
        url = os.fspath(out) if remote.is_url(out) else None
        shards = Shards(
            target,
            url,
            lambda path: make(path, recipe.dtype),
            {
                "format": recipe.format,
                "dtype": recipe.dtype.name,
                "tokenizer": recipe.tokenizer,
                "end_of_text": recipe.end_of_text,
                "separate": recipe.separate,
                "special_tokens": recipe.special,
                "shard_tokens": shard_tokens,
                "chunk": CHUNK,
                "source": identity,
            },
        )
        if shards.finished:
            return shards.total
        stack.callback(shards.abandon)
        read, first = 0, shards.done.stretch
        try:
            for group in encoded(first):
                _write(group, first, shards)
                first += len(group.stretch_ends)
                read += group.read
                report("encoding bytes", read, total)
            shards.finish()
        except OSError as error:
            if error.errno is None:
                raise
            if error.filename is None or is_temporary(error.filename):
                raise OSError(error.errno, error.strerror, os.fspath(out)) from None
            raise
    return shards.total


def checked_dtype(dtype: Any, largest: int, format: str) -> np.dtype[Any]:
    """The type of the ids in a file. ValueError where it does not hold the largest."""
    narrow = largest < 1 << 16 and format not in ("parquet", "arrow")
    result = np.dtype((np.uint16 if narrow else np.uint32) if dtype is None else dtype)
    if result not in (np.dtype(np.uint16), np.dtype(np.uint32)):
        raise ValueError(f"ids are written as uint16 or uint32, not {result}")
    if largest > np.iinfo(result).max:
        raise ValueError(f"the largest id is {largest}, which {result} cannot hold; use uint32")
    return result


def _target(out: str | os.PathLike[str], stack: ExitStack) -> Path:
    """Return the path to write to: the final one, or one in a temporary folder if `out` is a URL.

    Raises the error of a target that cannot be written to, or where the description would take another file's place.
    """
    name = os.fspath(out)
    if remote.is_url(out):
        _check_description(name)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bpe-"))
        return Path(folder, remote.name_of(name))
    path = Path(out)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is there and is no file, so that ids cannot be written to it: name another")
    _check_description(name)
    return path


def _check_description(out: str) -> None:
    """Raise the error where the description of `out` would take another file's place."""
    description = beside(out)
    if description == out:
        raise ValueError(f"ids are written to X.npy, with X.json beside it, and {out} would be both: name it .npy")
    if remote.is_there(description) and read_description(out) is None:
        raise FileExistsError(
            f"{description} is there and is no description of ids, and that of {out} would take its place: "
            f"write to another name, or remove it"
        )


def _groups(source: sources.Source, recipe: Recipe, skip: int) -> Iterator[Group]:
    """The stretches of a source by about CHUNK bytes, but for the first `skip`."""
    group: list[sources.Stretch] = []
    size = 0
    for number, stretch in enumerate(sources.stretches(source, recipe.cut, recipe.margin, CHUNK)):
        if number < skip:
            continue
        group.append(stretch)
        size += stretch.end - stretch.begin
        if size >= CHUNK or len(group) == 1 << 14:
            yield group
            group, size = [], 0
    if group:
        yield group


def _encode(group: Group, recipe: Recipe) -> Encoded:
    """The ids of a group, and where its documents end: where a text does, and after each end of text within it."""
    parts = [memoryview(text)[begin:end] for text, begin, end, *_ in group]
    rows = recipe.encode(parts, [stretch.first for stretch in group])
    # Bits per byte are over the text: the name of a token that ends a document is none of it.
    names = [0 if recipe.end_of_text is None else int(np.count_nonzero(row == recipe.end_of_text)) for row in rows]
    named = zip(group, names, strict=True)
    sizes = np.cumsum([one.end - one.begin - count * recipe.end_bytes for one, count in named], dtype=np.int64)
    if recipe.separate:
        mark = np.array([recipe.end_of_text], dtype=np.uint32)
        for i, stretch in enumerate(group):
            if stretch.last and not (len(rows[i]) and rows[i][-1] == mark[0]):
                rows[i] = np.concatenate([rows[i], mark])
    ids = np.concatenate([np.empty(0, dtype=np.uint32), *rows]).astype(recipe.dtype, copy=False)
    ends = np.cumsum([len(one) for one in rows], dtype=np.int64)
    document_ends = ends[[stretch.last for stretch in group]]
    if recipe.end_of_text is not None:
        marked = np.flatnonzero(ids == recipe.end_of_text) + 1
        document_ends = np.union1d(document_ends, marked)
    document_ends = np.unique(document_ends[document_ends > 0])
    return Encoded(ids, document_ends, ends, sizes, sum(stretch.read for stretch in group))


def _write(encoded: Encoded, first: int, shards: Shards) -> None:
    """Write the ids of a group, whose first stretch has this number, and begin a shard where one is full.

    A document is cut only if it is longer than a shard, or than CHUNK.
    """
    ids, ends = encoded.ids, encoded.document_ends
    at = shards.skip(len(ids))
    while at < len(ids):
        room = shards.room()
        until = len(ids)
        if room is not None and until - at > room:
            fit = ends[: int(np.searchsorted(ends, at + room, side="right"))]
            if len(fit) and fit[-1] > at:
                until = int(fit[-1])
            elif shards.holds_documents:  # the next one goes into the next shard
                shards.close(_position(encoded, first, at))
                continue
            else:
                until = at + room
        begin, end = np.searchsorted(ends, [at, until], side="right")
        shards.write(ids[at:until], ends[begin:end] - at, _text_up_to(encoded, until) - _text_up_to(encoded, at))
        at = until
        if at < len(ids):
            shards.close(_position(encoded, first, at))


def _position(encoded: Encoded, first: int, at: int) -> tuple[int, int]:
    """The number of the stretch that the id at a position is of, and how many of its ids come before."""
    number = int(np.searchsorted(encoded.stretch_ends, at, side="right"))
    before = int(encoded.stretch_ends[number - 1]) if number else 0
    return first + number, at - before


def _text_up_to(encoded: Encoded, at: int) -> int:
    """Bytes of text that stand for the first ids of a group; within a stretch in proportion."""
    number = int(np.searchsorted(encoded.stretch_ends, at, side="right"))
    before = int(encoded.text_ends[number - 1]) if number else 0
    if number == len(encoded.stretch_ends):
        return before
    first = int(encoded.stretch_ends[number - 1]) if number else 0
    size, count = int(encoded.text_ends[number]) - before, int(encoded.stretch_ends[number]) - first
    return before + size * (at - first) // count
