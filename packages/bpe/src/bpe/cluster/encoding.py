"""encode() on a Ray cluster: each file of a source to a file of a folder, as Tokenizer.encode_file writes it.

    a file up to a share of the whole     one task: Tokenizer.encode_file()
    a larger one                          a task for each part, whose ids stay in Ray's object store, and one task that
                                          writes them in order, as encode_file() would

Plain tasks, not Ray Data's map_batches: it would read a text by lines, which changes ids, or as one row of any size.
An output appears whole or not at all, and the same file gives the same bytes in either way, so that a task that is
tried again changes nothing. The manifest says what is done, so that the same call does only what is left.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bpe.cluster.manifest import EncodedFile, Manifest, description
from bpe.cluster.ranges import Input, Part, check_unchanged, listed, parts_of, share_of, source_of
from bpe.cluster.tasks import OnError, Summary, Task, connected, cpus_of, run_tasks, this_node
from bpe.corpus import remote, sources
from bpe.native.atomic_file import TEMPORARY, StrPath, temporary_name
from bpe.native.checks import whole
from bpe.native.parallel import stream
from bpe.native.progress import Progress, reporter
from bpe.outputs import Format
from bpe.outputs.encode_source import Encoded, Recipe, encoded_groups, recipe_of, write_encoded
from bpe.outputs.writers import writer_of
from bpe.tokenizer import Tokenizer

INDEX = "index.json"
PART = 1 << 26  # bytes of a file at most that a task has in memory, beside their ids
SAVED_EVERY = 1.0, 20  # seconds between two times that the manifest is written, and in multiples of what that takes
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
        source: Files as Tokenizer.encode_file() takes them, under paths that are the same on every node. They become
            `00000.npy`, `00001.npy` … (or the ending of another format), each with its description beside it.
        out: The folder, by a path under which every node sees it, or by a URL; made where there is none.
        tokenizer: The tokenizer.
        dtype, format, end_of_text, allowed_special: As for Tokenizer.encode_file().
        on_error: "raise" the error of a file that cannot be read when all others are encoded, or "skip" it: the error
            is in the manifest and in the summary.
        address, num_threads, progress, summary: As for bpe.cluster.count().
        part_size: Bytes; a larger file is encoded in parts of this size by several tasks: by default one larger than a
            share of the whole. Compressed files, and tokenizers that read a text as a whole, take one task a file.

    Returns:
        The manifest, which is in the folder too.

    Raises:
        ValueError: The folder is of another tokenizer, other settings or other files.
        OSError: A file cannot be written; FileNotFoundError where nodes do not see one folder.
        TypeError, ImportError, ConnectionError, MemoryError, RuntimeError: As for bpe.cluster.count(), and for files
            that cannot be read.

    Example:
        >>> bpe.cluster.encode(files, "tokens", tokenizer, address="auto", summary=print)  # doctest: +SKIP
    """
    whole("num_threads", num_threads)
    special = allowed_special if allowed_special == "all" else sorted(allowed_special)
    settings = {"dtype": dtype, "format": format, "end_of_text": end_of_text, "allowed_special": special}
    ending, recipe = writer_of(format).ending, recipe_for(tokenizer, settings)
    files = sources.files_of(source)
    if files is None:
        raise TypeError(
            "a cluster encodes files: a Ray Dataset is encoded by bpe.integrations.engines, texts in memory by "
            "Tokenizer.encode_file()"
        )
    folder = os.fspath(out)
    if not remote.is_url(folder):
        folder = os.path.abspath(folder)
        os.makedirs(folder, exist_ok=True)
    elif not ending:
        raise ValueError(f"outputs of the format {format} are folders, which only a path holds, and {folder} is a URL")
    about, begun = Summary("encoded"), time.perf_counter()
    inputs = listed(files)
    manifest = Manifest.planned(folder, recipe.tokenizer, settings, inputs, ending)
    left = {number: entry for number, entry in enumerate(inputs) if manifest.files[number].tokens is None}
    if left:
        with connected(address, num_threads) as ray, reporter(progress) as report:
            total, how = sum(entry.size for entry in left.values()), ([ray.put(tokenizer)], settings, num_threads)
            share = share_of(total, cpus_of(ray) // num_threads) if part_size is None else whole("part_size", part_size)
            size = min(share, PART) if part_size is None else part_size

            def tasks() -> Iterator[Task]:
                for number, entry in left.items():
                    place = remote.inside(folder, manifest.files[number].output)
                    cut = list(parts_of(entry, size, can_cut=recipe.can_cut)) if entry.size > share else []
                    if len(cut) < 2:
                        yield Task(entry.name, entry.size, encode_whole, (entry, place, *how), number)
                        continue
                    parts = [Task(entry.name, part.size, encode_part, (part, *how)) for part in cut]
                    yield from parts
                    # The parts are handed out by now, so that their results have references.
                    results = [part.result for part in parts]
                    yield Task(entry.name, 0, join_parts, (entry, place, *how, results), number)

            finished_tasks = run_tasks(ray, tasks(), num_threads, total, "encoding bytes", report, about, on_error)
            try:
                _keep(ray, finished_tasks, manifest, folder)
            finally:
                for file in manifest.files:
                    file.error = about.skipped.get(file.input) if file.tokens is None else None
                with contextlib.suppress(OSError):  # the disk is full, say: the first error is the one to report
                    manifest.save(folder)
    _clear(folder, manifest)
    about.finish(begun, summary)
    return manifest


def _keep(ray: Any, finished_tasks: Iterator[tuple[Task, str]], manifest: Manifest, folder: str) -> None:
    """Keep the manifest as files are encoded.

    An output counts once this machine sees it, for a node may have another folder under the same path. The first
    output of each node is looked at when it is written, and those in a folder again at the end.
    """
    nodes: dict[int, str] = {}
    saved, took = time.monotonic(), 0.0
    for task, node in finished_tasks:
        if task.key is None:  # a part
            continue
        tokens, sha256 = ray.get(task.result)
        encoded = replace(manifest.files[task.key], tokens=tokens, sha256=sha256)
        if node not in nodes.values():
            _wait_for(encoded, folder, node)
        manifest.files[task.key], nodes[task.key] = encoded, node
        if (begun := time.monotonic()) - saved >= max(SAVED_EVERY[0], SAVED_EVERY[1] * took):
            manifest.save(folder)
            saved = time.monotonic()
            took = saved - begun
    for number, node in nodes.items():
        if not remote.is_url(folder):
            _wait_for(manifest.files[number], folder, node)


def _wait_for(encoded: EncodedFile, folder: str, node: str) -> None:
    """Wait until an output is seen here. FileNotFoundError where it is not after SEEN_WITHIN."""
    begun = time.monotonic()
    while not encoded.is_in(folder):
        if time.monotonic() - begun >= SEEN_WITHIN:
            reason = f"node {node} wrote it, and it is not seen here: out has to be a folder that all nodes share"
            raise FileNotFoundError(errno.ENOENT, reason, remote.inside(folder, encoded.output))
        time.sleep(0.1)


# On a node. `tokenizer` is a list with a reference to it; what writes a file returns its number of ids and their hash.


def encode_whole(entry: Input, out: str, tokenizer: Any, settings: dict[str, Any], num_threads: int) -> tuple[int, str]:
    """Encode a file."""
    make_room(out, settings["format"])
    fetched_tokenizer(*tokenizer).encode_file(entry.file, out, **settings, num_threads=num_threads)
    return _described(entry, out)


def encode_part(part: Part, tokenizer: Any, settings: dict[str, Any], num_threads: int) -> list[Encoded]:
    """The ids of a part."""
    recipe = recipe_for(fetched_tokenizer(*tokenizer), settings)
    source, goes_on = source_of(part, recipe.cut, recipe.margin)
    return list(encoded_groups(source, recipe, num_threads, goes_on=goes_on))


def join_parts(
    entry: Input, out: str, tokenizer: Any, settings: dict[str, Any], num_threads: int, parts: list[Any]
) -> tuple[int, str]:
    """Write the ids of a file's parts in order. The next come over the network while the last are written."""
    import ray

    def groups() -> Iterator[Encoded]:
        for part in stream(ray.get, parts, 1):
            if isinstance(part, Exception):
                raise part
            yield from part

    ray.wait(parts, num_returns=len(parts), fetch_local=False)  # in this thread, which lends its CPU to them meanwhile
    make_room(out, settings["format"])
    write_encoded(lambda _: groups(), out, recipe_for(fetched_tokenizer(*tokenizer), settings))
    return _described(entry, out)


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


def make_room(out: str, format: str) -> None:
    """Remove the folder that an earlier try or run has put in the place of an output, which a file would replace.

    A folder that is not described as an output stays, so that the writer refuses its place. FileNotFoundError where
    the folder of all outputs is not on this node.
    """
    parent, name = os.path.split(out)
    if not remote.is_url(out) and not os.path.isdir(parent):
        reason = f"node {this_node()} does not see it: out has to be a folder that all nodes share"
        raise FileNotFoundError(errno.ENOENT, reason, parent)
    if not writer_of(format).ending and description(out) is not None:
        old = os.path.join(parent, temporary_name(name))  # gone at once, as encode() clears such names
        with contextlib.suppress(FileNotFoundError):  # an earlier try ended between its description and its folder
            os.replace(out, old)
            shutil.rmtree(old)


def _described(entry: Input, out: str) -> tuple[int, str]:
    """The ids of an output and their SHA-256. ValueError if its input was written to meanwhile."""
    check_unchanged(entry)
    about = description(out)
    assert about is not None  # it was written with the output
    return about["count"], about["sha256"]


def _clear(folder: str, manifest: Manifest) -> None:
    """Remove what tasks that were killed had begun to write."""
    outputs = {Path(file.output).stem for file in manifest.files}
    for path in () if remote.is_url(folder) else Path(folder).glob(".*.tmp"):
        if (match := TEMPORARY.fullmatch(path.name)) and match[1].split(".")[0] in outputs:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def merge(folder: StrPath) -> int:
    """Write `index.json`, by which the token files of a folder are read as one; skipped files are left out.

        {"tokenizer": FINGERPRINT, "tokens": COUNT, "shards": [{"file": NAME, "begin": TOKEN, "tokens": COUNT}, …]}

    Returns the tokens of all files. FileNotFoundError: the folder has no manifest. ValueError: some file is not
    encoded yet, or an output is gone or not as it was written.
    """
    manifest, begin = Manifest.load(folder := os.fspath(folder)), 0
    index: dict[str, Any] = {"tokenizer": manifest.tokenizer, "tokens": 0, "shards": []}
    for file in manifest.files:
        if file.error is not None:
            continue
        if file.tokens is None:
            raise ValueError(f"{file.input} is not encoded yet: encode() with the same arguments goes on")
        if not file.is_in(folder):
            raise ValueError(f"{remote.inside(folder, file.output)} is not as it was written: encode() writes it again")
        index["shards"].append({"file": file.output, "begin": begin, "tokens": file.tokens})
        index["tokens"] = begin = begin + file.tokens
    with remote.output(remote.inside(folder, INDEX)) as output:
        output.write((json.dumps(index, indent=1) + "\n").encode())
    return begin
