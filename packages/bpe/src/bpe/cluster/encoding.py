"""encode() on a Ray cluster: each file of a source to a file of a folder, as Tokenizer.encode_file writes it.

A file takes one task. One that is larger than a share of the whole takes a task for each part, whose ids stay in Ray's
object store, and a task that writes them. These are plain tasks, not Ray Data's map_batches, which would read a text
by lines, or as one row of any size. An output appears whole or not at all, so that a task may be tried again.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bpe.cluster.manifest import EncodedFile, Manifest, description
from bpe.cluster.ranges import Input, Part, check_unchanged, listed, parts_of, share_of, source_of
from bpe.cluster.tasks import OnError, Summary, Task, connected, cpus_of, run_tasks, this_node
from bpe.corpus import remote
from bpe.native.atomic_file import TEMPORARY, StrPath
from bpe.native.checks import whole
from bpe.native.parallel import stream
from bpe.native.progress import Progress, reporter
from bpe.outputs import Format
from bpe.outputs.encode_source import Encoded, Recipe, encoded_groups, recipe_of, write_encoded
from bpe.outputs.writers import writer_of
from bpe.tokenizer import Tokenizer

PART = 1 << 26  # bytes of a file at most that a task has in memory, beside their ids
SEEN_WITHIN = 120.0  # seconds after which a file that another node wrote is to be seen: NFS may take half a minute


def encode(
    source: Any,
    out: StrPath,
    tokenizer: Tokenizer,
    *,
    dtype: Literal["uint16", "uint32"] | None = None,
    format: Format = "npy",
    end_of_text: str | None = None,
    allowed_special: Literal["all"] | Collection[str] = "all",
    on_error: OnError = "raise",
    address: str | None = None,
    num_threads: int = 1,
    part_size: int | None = None,
    progress: Progress | bool | None = None,
    summary: Callable[[Summary], None] | None = None,
) -> Manifest:
    """Encode files on a Ray cluster, each into one token file of a folder, as Tokenizer.encode_file() would.

    Called again with the same arguments, it encodes only what is not done or has changed. Files may be added to the
    list: they get the next numbers.

    Args:
        source: Files as for bpe.cluster.count(). They become `00000.npy`, `00001.npy` … (or the ending of another
            format), each with its description beside it.
        out: The folder, by a path under which every node sees it, or by a URL; made where there is none.
        tokenizer, dtype, format, end_of_text, allowed_special: As for Tokenizer.encode_file().
        on_error: As for bpe.cluster.count(); the error of a file that was skipped is in the manifest too.
        address, num_threads, progress, summary: As for bpe.cluster.count().
        part_size: Bytes; a larger file is encoded in parts of this size by several tasks: by default one larger than a
            share of the whole. Compressed files, and tokenizers that read a text as a whole, take one task a file.

    Returns:
        The manifest, which is in the folder too.

    Raises:
        ValueError: The folder is of another tokenizer, other settings or other files.
        FileNotFoundError: Nodes do not see one folder. Other errors are those of bpe.cluster.count().

    Example:
        >>> bpe.cluster.encode(files, "tokens", tokenizer, address="auto", summary=print)  # doctest: +SKIP
    """
    whole("num_threads", num_threads)
    special = allowed_special if allowed_special == "all" else sorted(allowed_special)
    settings = {"dtype": dtype, "format": format, "end_of_text": end_of_text, "allowed_special": special}
    recipe, inputs, folder = recipe_for(tokenizer, settings), listed(source), os.fspath(out)
    if not remote.is_url(folder):
        folder = os.path.abspath(folder)
        os.makedirs(folder, exist_ok=True)
    manifest = Manifest.planned(folder, recipe.tokenizer, settings, inputs, writer_of(format).ending)
    left = {number: entry for number, entry in enumerate(inputs) if manifest.files[number].tokens is None}
    about = Summary(sum(entry.size for entry in left.values()))

    def tasks(how: tuple[Any, ...], share: int, size: int) -> Iterator[Task]:
        """Yield a task for each file, after one for each part of a file that is larger than `share`."""
        for number, entry in left.items():
            cut = list(parts_of(entry, size, can_cut=recipe.can_cut)) if entry.size > share else []
            parts = [Task(entry.name, part.size, encode_part, (part, *how)) for part in cut if len(cut) > 1]
            yield from parts  # which are handed out after this, so that their results have references
            place, results = remote.inside(folder, manifest.files[number].output), [part.result for part in parts]
            yield Task(entry.name, 0 if parts else entry.size, write_file, (entry, place, *how, results), number)

    if left:
        with connected(address, num_threads) as ray, reporter(progress) as report:
            share = (
                share_of(about.total, cpus_of(ray) // num_threads)
                if part_size is None
                else whole("part_size", part_size)
            )
            how = ([ray.put(tokenizer)], settings, num_threads)
            each = tasks(how, share, min(share, PART) if part_size is None else share)
            nodes: dict[int, str] = {}  # that wrote the outputs
            try:
                for task, node in run_tasks(ray, each, num_threads, "encoding bytes", report, about, on_error):
                    if task.key is not None:
                        tokens, sha256 = ray.get(task.result)
                        encoded = replace(manifest.files[task.key], tokens=tokens, sha256=sha256)
                        if node not in nodes.values():
                            _wait_for(encoded, folder, node)
                        manifest.files[task.key], nodes[task.key] = encoded, node
                for number, node in nodes.items():
                    if not remote.is_url(folder):
                        _wait_for(manifest.files[number], folder, node)
            finally:
                for file in manifest.files:
                    file.error = about.skipped.get(file.input) if file.tokens is None else None
                with contextlib.suppress(OSError):  # the disk is full, say: the first error is the one to report
                    manifest.save(folder)
    outputs = {Path(file.output).stem for file in manifest.files}
    for path in () if remote.is_url(folder) else Path(folder).glob(".*.tmp"):  # of tasks that were killed
        if (match := TEMPORARY.fullmatch(path.name)) and match[1].split(".")[0] in outputs:
            path.unlink()
    if summary is not None:
        summary(about)
    return manifest


def _wait_for(encoded: EncodedFile, folder: str, node: str) -> None:
    """Wait until an output is seen here: a node may have another folder under the same path.

    FileNotFoundError where it is not after SEEN_WITHIN.
    """
    begun = time.monotonic()
    while not encoded.is_in(folder):
        if time.monotonic() - begun >= SEEN_WITHIN:
            reason = f"node {node} wrote it, and it is not seen here: out has to be a folder that all nodes share"
            raise FileNotFoundError(errno.ENOENT, reason, remote.inside(folder, encoded.output))
        time.sleep(0.1)


# On a node. `tokenizer` is a list with a reference to it, which Ray does not replace by what it refers to.


def encode_part(part: Part, tokenizer: Any, settings: dict[str, Any], num_threads: int) -> list[Encoded]:
    """Return the ids of a part."""
    recipe = recipe_for(fetched_tokenizer(*tokenizer), settings)
    source, goes_on = source_of(part, recipe.cut, recipe.margin)
    return list(encoded_groups(source, recipe, num_threads, goes_on=goes_on))


def write_file(
    entry: Input, out: str, tokenizer: Any, settings: dict[str, Any], num_threads: int, parts: list[Any]
) -> tuple[int, str]:
    """Encode a file, or write the ids of its parts in order. Returns the number of ids, and their SHA-256."""
    import ray

    def groups(_: int) -> Iterator[Encoded]:
        if not parts:
            yield from encoded_groups([entry.file], recipe, num_threads)
        for part in stream(ray.get, parts, 1):  # the next one comes over the network while this one is written
            if isinstance(part, Exception):
                raise part
            yield from part

    if parts:  # in this thread, which lends its CPU to them meanwhile
        ray.wait(parts, num_returns=len(parts), fetch_local=False)
    if not remote.is_url(out) and not os.path.isdir(folder := os.path.dirname(out)):
        reason = f"node {this_node()} does not see it: out has to be a folder that all nodes share"
        raise FileNotFoundError(errno.ENOENT, reason, folder)
    recipe = recipe_for(fetched_tokenizer(*tokenizer), settings)
    write_encoded(groups, out, recipe)
    check_unchanged(entry)
    about = description(out)
    assert about is not None  # it was written with the output
    return about["count"], about["sha256"]


@functools.lru_cache(maxsize=1)
def fetched_tokenizer(reference: Any) -> Tokenizer:
    """Return the tokenizer of a reference; a process fetches it once, and its cache stays warm."""
    import ray

    tokenizer: Tokenizer = ray.get(reference)
    return tokenizer


def recipe_for(tokenizer: Tokenizer, settings: dict[str, Any]) -> Recipe:
    """Return a tokenizer's recipe for settings. ValueError for settings that it refuses."""
    arguments = map(settings.get, ("format", "dtype", "end_of_text", "allowed_special"))
    return recipe_of(tokenizer._text_encoder, tokenizer.fingerprint, *arguments)  # type: ignore[arg-type]
