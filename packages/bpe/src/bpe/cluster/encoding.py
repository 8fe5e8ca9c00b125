"""encode() on a Ray cluster: file i of a source to file i of a folder, each as Tokenizer.encode_file writes it.

A task encodes a whole file and writes its output, whole or not at all, to a folder that every node sees. What it was
made of is kept in a manifest, so that the same call, made again after whatever stopped it, does only what is left. The
same file gives the same bytes wherever it is encoded, and a task that is tried again writes them again.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bpe import sources
from bpe.cluster.manifest import EncodedFile, Manifest
from bpe.cluster.ranges import absolute
from bpe.cluster.session import Summary, connected, remote, run_tasks, this_task
from bpe.native.atomic_file import StrPath, write_atomically
from bpe.native.parallel import threads_for
from bpe.outputs.writers import description_of, writer_of
from bpe.progress import Progress, reporter

if TYPE_CHECKING:
    from bpe.outputs import Format
    from bpe.tokenizer import Tokenizer

INDEX = "index.json"
SAVED_EVERY = 1.0  # seconds between two times that the manifest is written


class _Job(NamedTuple):
    """What a task encodes: the number of a file in the manifest, the file, and where its ids go."""

    number: int
    file: sources.File
    out: Path
    size: int


def encode(
    source: sources.Source,
    out: StrPath,
    tokenizer: Tokenizer,
    *,
    dtype: Literal["uint16", "uint32"] | None = None,
    format: Format = "npy",
    end_of_text: str | None = None,
    allowed_special: Literal["all"] | Collection[str] = "all",
    address: str | None = None,
    workers: int = 1,
    progress: Progress | bool | None = None,
    summary: Callable[[Summary], None] | None = None,
) -> Manifest:
    """Encode files on a Ray cluster, each into one token file of a folder, as Tokenizer.encode_file() would.

    Called again with the same arguments, it encodes only what is not done or has changed.

    Args:
        source: Files as Tokenizer.encode_file() takes them, under paths that are the same on every node. File i of N
            becomes `i-of-N.npy` (or the ending of another format), with its description `i-of-N.json` beside it.
        out: The folder, which every node sees under the same path; made where there is none.
        tokenizer: The tokenizer.
        dtype, format, end_of_text, allowed_special: As for Tokenizer.encode_file().
        address: Of the cluster's head, as for bpe.cluster.count().
        workers: Threads of a task, which takes as many of the cluster's CPUs.
        progress: True for bars, or a function of (phase, done, total).
        summary: Called at the end with a Summary; `summary=print` prints it.

    Returns:
        The manifest, which is in the folder too.

    Raises:
        TypeError: The source is an iterable of texts, which lie on this machine.
        ValueError: The folder is of another tokenizer, other settings or other files; a file changed on the way.
        OSError: A file cannot be read or written.
        ImportError, ConnectionError, MemoryError, RuntimeError: As for bpe.cluster.count().

    Example:
        >>> bpe.cluster.encode(files, "tokens", tokenizer, address="auto", summary=print)  # doctest: +SKIP
    """
    files = sources.files_of(source)
    if files is None:
        raise TypeError("a cluster encodes files; texts that are in memory are encoded by Tokenizer.encode_file()")
    threads_for(workers, "workers")  # ValueError for none
    files = list(map(absolute, files))
    folder = Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    special = allowed_special if allowed_special == "all" else sorted(allowed_special)
    settings = {"dtype": dtype, "format": format, "end_of_text": end_of_text, "allowed_special": special}
    manifest = _planned(files, tokenizer.fingerprint, settings, writer_of(format).ending)
    with contextlib.suppress(FileNotFoundError):
        manifest.take_over(Manifest.load(folder), folder)
    manifest.save(folder)
    jobs = [
        _Job(number, file, folder / about.output, sources.size_of_file(file.path) or 0)
        for number, (file, about) in enumerate(zip(files, manifest.files, strict=True))
        if about.tokens is None
    ]
    about, begun, saved = Summary("encoded"), time.perf_counter(), time.monotonic()
    if jobs:
        with connected(address) as ray, reporter(progress) as report:
            task = remote(ray, _encode_one, cpus=workers, returns=2)
            kept = ray.put(tokenizer)
            results = run_tasks(
                ray,
                lambda job: task(job, kept, {**settings, "workers": workers}),
                jobs,
                cpus=workers,
                total=sum(job.size for job in jobs),
                phase="encoding bytes",
                report=report,
                summary=about,
            )
            try:
                for (result,) in results:
                    number, encoded = ray.get(result)
                    manifest.files[number] = encoded
                    if time.monotonic() - saved >= SAVED_EVERY:
                        manifest.save(folder)
                        saved = time.monotonic()
            finally:
                manifest.save(folder)
    about.seconds = time.perf_counter() - begun
    if summary is not None:
        summary(about)
    return manifest


def merge(folder: StrPath) -> int:
    """Write `index.json`, by which the token files of a folder are read as one.

        {"tokenizer": FINGERPRINT, "tokens": COUNT, "shards": [{"file": NAME, "begin": TOKEN, "tokens": COUNT}, …]}

    Args:
        folder: That encode() filled.

    Returns:
        The tokens of all files.

    Raises:
        FileNotFoundError: There is no manifest.
        ValueError: Some file is not encoded yet, or an output is gone or not as it was written.
    """
    path = Path(folder)
    manifest = Manifest.load(path)
    shards, begin = [], 0
    for file in manifest.files:
        if file.tokens is None:
            raise ValueError(f"{file.input} is not encoded yet: encode() with the same arguments goes on")
        if not file.is_in(path):
            raise ValueError(f"{path / file.output} is not as it was written: encode() writes it again")
        shards.append({"file": file.output, "begin": begin, "tokens": file.tokens})
        begin += file.tokens
    index = {"tokenizer": manifest.tokenizer, "tokens": begin, "shards": shards}
    write_atomically(path / INDEX, (json.dumps(index, indent=1) + "\n").encode())
    return begin


def _planned(files: list[sources.File], fingerprint: str, settings: dict[str, Any], ending: str) -> Manifest:
    """The manifest of files of which none is encoded."""
    width = max(5, len(str(len(files))))
    planned = []
    for number, file in enumerate(files):
        name = f"{number:0{width}}-of-{len(files):0{width}}{ending}"
        planned.append(EncodedFile(os.fspath(file.path), sources.version_of(file.path), name))
    return Manifest(fingerprint, settings, planned)


def _encode_one(job: _Job, tokenizer: Tokenizer, settings: dict[str, Any]) -> list[Any]:
    """The task that encodes a file: its report, and the number and the description of what it wrote."""
    begun = time.perf_counter()
    name, version = os.fspath(job.file.path), sources.version_of(job.file.path)
    tokens = tokenizer.encode_file(job.file, job.out, **settings)
    if sources.version_of(job.file.path) != version:
        raise ValueError(f"{name} was written to while it was encoded; encode again when it is whole")
    about = json.loads(description_of(job.out).read_bytes())
    encoded = EncodedFile(name, version, job.out.name, tokens, about["sha256"])
    return [this_task(job.size, begun), (job.number, encoded)]
