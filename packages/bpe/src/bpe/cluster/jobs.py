"""The tasks of encode(): a small file from its text to its token file, and a large one in parts that are then joined.

    a file up to a share of the whole     Whole: Tokenizer.encode_file(), on one node
    a larger one                          Part after Part: the ids stay in Ray's object store
                                          Joined: one task writes them in order, as encode_file() would

Plain tasks, not Ray Data's map_batches: it would read a text by lines, which changes ids, or as one row of any size.

An output appears whole or not at all, and the same file gives the same bytes in either way, so that a task that is
tried again changes nothing.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe.cluster.manifest import EncodedFile, description
from bpe.cluster.ranges import Part, parts_of, source_of
from bpe.cluster.session import this_node, this_task
from bpe.corpus import sources
from bpe.native.atomic_file import temporary_name
from bpe.native.parallel import stream
from bpe.outputs.encode_source import Encoded, Recipe, encoded_groups, recipe_of, write_encoded
from bpe.outputs.writers import writer_of

if TYPE_CHECKING:
    from bpe.tokenizer import Tokenizer

PART = 1 << 26  # bytes of a file at most that a task has in memory, beside their ids


class Whole(NamedTuple):
    """A file to encode: its number in the manifest, the version that was planned, and where its ids go."""

    number: int
    file: sources.File
    version: list[Any]
    out: Path
    size: int


class PartOfFile(NamedTuple):
    """A part to encode: the number of its file, and its own within it."""

    file: int
    number: int
    part: Part


class Joined(NamedTuple):
    """A file whose parts are encoded: references to their ids, in order."""

    whole: Whole
    parts: list[Any]


Job = Whole | PartOfFile | Joined


class Jobs:
    """The tasks of files, one for each.

    Args:
        files: The files.
        recipe: How they are encoded.
        share: Bytes; a larger file is encoded in parts, where it can be.
        part_size: Bytes of a part.

    Attributes:
        urgent: The files whose parts are all encoded: they go first, for their ids take room until they are written.
    """

    def __init__(self, files: list[Whole], recipe: Recipe, share: int, part_size: int) -> None:
        self._files, self._can_cut, self._share, self._part_size = files, recipe.can_cut, share, part_size
        self._parts: dict[int, tuple[Whole, list[Any]]] = {}  # of files that are under way
        self.urgent: deque[Job] = deque()

    def __iter__(self) -> Iterator[Job]:
        for whole in self._files:
            parts = []
            if whole.size > self._share:
                parts = list(parts_of(whole.file, self._part_size, can_cut=self._can_cut))
            if len(parts) < 2:
                yield whole
                continue
            self._parts[whole.number] = whole, [None] * len(parts)
            yield from (PartOfFile(whole.number, number, part) for number, part in enumerate(parts))

    def whole(self, job: PartOfFile) -> Whole:
        """The file that a part is of."""
        return self._parts[job.file][0]

    def add(self, job: PartOfFile, ids: Any) -> None:
        """A part is encoded; `ids` refers to its ids."""
        _, parts = self._parts[job.file]
        parts[job.number] = ids
        if None not in parts:
            self.urgent.append(Joined(*self._parts.pop(job.file)))


def run_job(job: Job, tokenizer: Any, settings: dict[str, Any], num_threads: int) -> list[Any]:
    """The task of a job.

    Args:
        job: What is to be done.
        tokenizer: A list with a reference to the tokenizer.
        settings: Of Tokenizer.encode_file(): dtype, format, end_of_text, allowed_special.
        num_threads: Threads.

    Returns:
        The task's report; the file's number in the manifest, its EncodedFile and the node that wrote it, or the part; a
        part's ids, or None.

    Raises:
        FileNotFoundError: The folder is not on this node.
    """
    begun = time.perf_counter()
    encoder = fetched_tokenizer(*tokenizer)
    if isinstance(job, PartOfFile):
        ids = encode_part(job.part, encoder, settings, num_threads)
        return [this_task(job.part.size, begun), job, ids]
    whole = job if isinstance(job, Whole) else job.whole
    if not whole.out.parent.is_dir():
        reason = f"node {this_node()} does not see it: out has to be a folder that all nodes share"
        raise FileNotFoundError(errno.ENOENT, reason, os.fspath(whole.out.parent))
    make_room(whole.out, settings["format"])
    if isinstance(job, Whole):
        encoder.encode_file(job.file, job.out, **settings, num_threads=num_threads)
        return [this_task(job.size, begun), (job.number, _described(job), this_node()), None]
    write_encoded(lambda _: _fetched(job.parts), job.whole.out, recipe_for(encoder, settings))
    return [this_task(0, begun), (job.whole.number, _described(job.whole), this_node()), None]


@functools.lru_cache(maxsize=1)
def fetched_tokenizer(reference: Any) -> Tokenizer:
    """The tokenizer that a reference refers to; a process makes it once, and its cache stays warm."""
    import ray

    tokenizer: Tokenizer = ray.get(reference)
    return tokenizer


def recipe_for(tokenizer: Tokenizer, settings: dict[str, Any]) -> Recipe:
    """Return a tokenizer's recipe for settings. ValueError for settings that it refuses."""
    arguments = map(settings.get, ("format", "dtype", "end_of_text", "allowed_special"))
    return recipe_of(tokenizer._text_encoder, tokenizer.fingerprint, *arguments)  # type: ignore[arg-type]


def encode_part(part: Part, tokenizer: Tokenizer, settings: dict[str, Any], num_threads: int) -> list[Encoded]:
    """The ids of a part."""
    recipe = recipe_for(tokenizer, settings)
    source, goes_on = source_of(part, recipe.cut, recipe.margin)
    return list(encoded_groups(source, recipe, num_threads, goes_on=goes_on))


def _fetched(parts: list[Any]) -> Iterator[Encoded]:
    """The ids of parts in order: the next ones come over the network while the last are written."""
    import ray

    for groups in stream(ray.get, parts, 1):
        yield from groups


def make_room(out: Path, format: str) -> None:
    """Remove the folder that an earlier try or run has put in the place of an output, which a file would replace.

    A folder that is not described as an output stays, so that the writer refuses its place.
    """
    if writer_of(format).ending or description(out) is None:
        return
    old = out.with_name(temporary_name(out.name))  # gone at once, as encode() clears such names
    try:
        os.replace(out, old)
    except FileNotFoundError:  # the earlier try ended between its description and its folder
        return
    shutil.rmtree(old)


def _described(job: Whole) -> EncodedFile:
    """Return the manifest's entry of an encoded file. ValueError if the file was written to meanwhile."""
    name = os.fspath(job.file.path)
    if sources.version_of(job.file.path) != job.version:
        raise ValueError(f"{name} was written to while it was encoded; encode again when it is whole")
    return EncodedFile.of(name, job.version, job.out)
