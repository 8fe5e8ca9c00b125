"""encode() on a Ray cluster: each file of a source to a file of a folder, as Tokenizer.encode_file writes it.

A file takes one task. One that is larger than a share of the whole takes a task for each part, whose ids stay in Ray's
object store, and a task that writes them. An output appears whole or not at all, so that a task may be tried again.
manifest.json says which file was encoded into which, so that a second run skips what is done.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from bpe.cluster.ranges import Input, Part, check_unchanged, listed, parts_of, source_of
from bpe.cluster.tasks import OnError, Summary, Task, connected, run_tasks, share_of, starter, this_node
from bpe.corpus import remote
from bpe.native.atomic_file import TEMPORARY, StrPath
from bpe.native.parallel import stream
from bpe.native.progress import Progress, reporter
from bpe.outputs import Format
from bpe.outputs.encode_source import Encoded, Recipe, encoded_groups, recipe_of, write_encoded
from bpe.outputs.writer import beside, read_description
from bpe.outputs.writers import writer_of
from bpe.tokenizer import Tokenizer

PART = 1 << 26  # bytes of a file at most that a task has in memory, beside their ids
MANIFEST = "manifest.json"  # the fields of Manifest; a file that is not done has no tokens and no hash
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

    Called again with the same arguments, it encodes only files that are missing or have changed. Files may be added to
    the list: they get the next numbers.

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
        FileNotFoundError: Nodes do not see one folder. Other errors as of bpe.cluster.count().

    Example:
        >>> bpe.cluster.encode(files, "tokens", tokenizer, address="auto", summary=print)  # doctest: +SKIP
    """
    special = allowed_special if allowed_special == "all" else sorted(allowed_special)
    settings = {"dtype": dtype, "format": format, "end_of_text": end_of_text, "allowed_special": special}
    recipe, inputs, folder = recipe_for(tokenizer, settings), listed(source), os.fspath(out)
    if not remote.is_url(folder):
        folder = os.path.abspath(folder)
        os.makedirs(folder, exist_ok=True)
    manifest = Manifest.planned(folder, recipe.tokenizer, settings, inputs, writer_of(format).ending)
    left = {number: entry for number, entry in enumerate(inputs) if manifest.files[number].tokens is None}
    about = Summary(sum(entry.size for entry in left.values()))

    def tasks(ray: Any, share: int, size: int) -> Iterator[Task]:
        """Yield a task for each file, after one for each part of a file that is larger than `share`."""
        reference = [ray.put(tokenizer)]
        part_of, whole_of = (starter(ray, num_threads, run, settings, num_threads) for run in (encode_part, write_file))
        for number, entry in left.items():
            cut = list(parts_of(entry, size, can_cut=recipe.can_cut)) if entry.size > share else []
            parts = [Task(part, part_of, (part, reference)) for part in cut if len(cut) > 1]
            yield from parts  # which are handed out after this, so that their results have references
            target, results = remote.inside(folder, manifest.files[number].output), [part.result for part in parts]
            part = Part(entry, 0, None, 0 if parts else entry.size)
            yield Task(part, whole_of, (number, entry, target, results, reference))

    if left:
        with connected(address, num_threads) as ray, reporter(progress) as report:
            share = share_of(ray, about.total, num_threads, part_size)
            each = tasks(ray, share, min(share, PART) if part_size is None else share)
            nodes: dict[int, str] = {}  # that wrote the outputs
            try:
                for _, node, written in run_tasks(ray, each, num_threads, "encoding bytes", report, about, on_error):
                    if written is not None:
                        number, tokens, sha256 = written
                        encoded = replace(manifest.files[number], tokens=tokens, sha256=sha256)
                        if node not in nodes.values():
                            _wait_for(encoded, folder, node)
                        manifest.files[number], nodes[number] = encoded, node
                for number, node in () if remote.is_url(folder) else nodes.items():
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
    """Wait until an output is seen here: a node may have another folder under the same path."""
    begun = time.monotonic()
    while not encoded.is_in(folder):
        if time.monotonic() - begun >= SEEN_WITHIN:
            reason = f"node {node} wrote it, and it is not seen here: out has to be a folder that all nodes share"
            raise FileNotFoundError(errno.ENOENT, reason, remote.inside(folder, encoded.output))
        time.sleep(0.1)


def encode_part(part: Part, tokenizer: list[Any], settings: Any, num_threads: int) -> list[Encoded]:
    """Return the ids of a part. tokenizer: a list with a reference, which Ray does not replace by what it refers to."""
    recipe = recipe_for(fetched_tokenizer(*tokenizer), settings)
    source, goes_on = source_of(part, recipe.cut, recipe.margin)
    return list(encoded_groups(source, recipe, num_threads, goes_on=goes_on))


def write_file(
    number: int, entry: Input, out: str, parts: list[Any], tokenizer: list[Any], settings: Any, num_threads: int
) -> tuple[int, int, str]:
    """Encode a file, or write the ids of its parts in order. Returns its number, that of its ids, and their SHA-256."""
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
    about = read_description(out)
    assert about is not None  # it was written with the output
    return number, about["count"], about["sha256"]


@functools.lru_cache(maxsize=1)
def fetched_tokenizer(reference: Any) -> Tokenizer:
    """Return the tokenizer of a reference; a process fetches it once, and its cache stays warm."""
    import ray

    return ray.get(reference)  # type: ignore[no-any-return]


def recipe_for(tokenizer: Tokenizer, settings: dict[str, Any]) -> Recipe:
    """Return a tokenizer's recipe for settings. ValueError for settings that it refuses."""
    return recipe_of(tokenizer._text_encoder, tokenizer.fingerprint, **settings)


@dataclass
class EncodedFile:
    """An input and its output."""

    input: str  # path or URL
    version: list[Any]  # size and time of change, or what its server says
    output: str  # the name of the token file in the folder of the manifest
    tokens: int | None = None  # number of ids; None until it is done
    sha256: str | None = None  # of the ids, as the description beside the token file has it
    error: str | None = None  # why on_error="skip" left the input out

    def is_in(self, folder: str) -> bool:
        """True if it is done, and its output is in a folder, described as it was written."""
        path = remote.inside(folder, self.output)
        about = None if self.tokens is None else read_description(path)
        is_same = about is not None and (about["count"], about["sha256"]) == (self.tokens, self.sha256)
        return is_same and remote.is_there(path)


@dataclass
class Manifest:
    """The sources and settings of a folder of token files."""

    tokenizer: str  # its fingerprint
    settings: dict[str, Any]  # of encode_file()
    files: list[EncodedFile]  # of the source, in order

    @property
    def tokens(self) -> int:
        """The ids of all files that are done."""
        return sum(file.tokens or 0 for file in self.files)

    def save(self, folder: str) -> None:
        """Write it into a folder, whole or not at all."""
        with remote.output(remote.inside(folder, MANIFEST)) as file:
            file.write(json.dumps(vars(self), default=vars).encode() + b"\n")  # indent= would be Python's, not C's

    @classmethod
    def load(cls, folder: str) -> Manifest:
        """Read the manifest of a folder. FileNotFoundError: there is none. ValueError: it is damaged."""
        path = remote.inside(folder, MANIFEST)
        try:
            about = json.loads(remote.read_bytes(path))
            return cls(about["tokenizer"], about["settings"], [EncodedFile(**file) for file in about["files"]])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path} is no manifest of this version: remove it to encode again") from None

    @classmethod
    def planned(cls, folder: str, tokenizer: str, settings: Any, inputs: list[Input], ending: str) -> Manifest:
        """Return a manifest of inputs, with what earlier runs in the folder have done, and save it there.

        An output that has a description is whole, and of the version that the earlier manifest names, whether or not
        that run had time to note it: one of another version loses its description before the manifest is saved.
        """
        try:
            earlier = cls.load(folder)
        except FileNotFoundError:
            earlier = cls(tokenizer, settings, [])
        for what, now in (("tokenizer", tokenizer), ("settings", settings)):
            if getattr(earlier, what) != now:
                raise ValueError(
                    f"{folder} holds the output of another run, whose {what} was {getattr(earlier, what)} and is now "
                    f"{now}: name another folder, or remove this one"
                )
        before = defaultdict[str, list[EncodedFile]](list)
        for file in reversed(earlier.files):
            before[file.input].append(file)
        number, manifest = count(len(earlier.files)), cls(tokenizer, settings, [])
        for entry in inputs:
            same = before[entry.name]
            old = same.pop() if same else EncodedFile(entry.name, [], f"{next(number):05}{ending}")
            manifest.files.append(file := EncodedFile(entry.name, entry.version, old.output))
            out = remote.inside(folder, old.output)
            if (about := read_description(out)) is not None:
                if old.version == entry.version and about["tokenizer"] == tokenizer and remote.is_there(out):
                    file.tokens, file.sha256 = about["count"], about["sha256"]
                else:
                    remote.remove(beside(out))
        for file in chain.from_iterable(before.values()):
            raise ValueError(
                f"{folder} holds the output of other files, as {file.input}: name them too, name another folder, or "
                "remove this one"
            )
        manifest.save(folder)
        return manifest
