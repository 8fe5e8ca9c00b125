"""encode() on a Ray cluster: file i of a source to file i of a folder, each as Tokenizer.encode_file writes it.

Tasks encode files whole, or large ones in parts (jobs.py), and write to a folder that every node sees. The texts of a
Ray Dataset become one output, or several of a bounded size (datasets.py). What was made of what is kept in a manifest,
so that the same call, made again after whatever stopped it, does only what is left.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bpe.cluster.datasets import encode_dataset, is_dataset
from bpe.cluster.jobs import PART, Job, Jobs, Joined, PartOfFile, Whole, recipe_for, run_job
from bpe.cluster.manifest import EncodedFile, Manifest, output_name
from bpe.cluster.ranges import absolute, share_of
from bpe.cluster.session import Summary, connected, remote, run_tasks
from bpe.corpus import remote as urls
from bpe.corpus import sources
from bpe.native.atomic_file import TEMPORARY, StrPath, write_atomically
from bpe.native.checks import whole
from bpe.native.parallel import threads_for
from bpe.native.progress import Progress, reporter
from bpe.outputs import Format
from bpe.outputs.writers import writer_of
from bpe.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bpe.outputs.encode_source import Recipe

INDEX = "index.json"
SAVED_EVERY = 1.0  # seconds between two times that the manifest is written
SEEN_WITHIN = 120.0  # seconds after which a file that another node wrote is to be seen: NFS may take half a minute


def encode(
    source: Any,
    out: StrPath,
    tokenizer: Tokenizer,
    *,
    dtype: Literal["uint16", "uint32"] | None = None,
    format: Format = "npy",
    end_of_text: str | None = None,
    shard_tokens: int | None = None,
    allowed_special: Literal["all"] | Collection[str] = "all",
    address: str | None = None,
    num_threads: int = 1,
    part_size: int | None = None,
    text_key: str = "text",
    progress: Progress | bool | None = None,
    summary: Callable[[Summary], None] | None = None,
) -> Manifest:
    """Encode files on a Ray cluster, each into one token file of a folder, as Tokenizer.encode_file() would.

    Called again with the same arguments, it encodes only what is not done or has changed.

    Args:
        source: Files as Tokenizer.encode_file() takes them, under paths that are the same on every node. File i of N
            becomes `i-of-N.npy` (or the ending of another format), with its description `i-of-N.json` beside it. Or a
            Ray Dataset with a column of texts, whose rows become `00000-of-00001.npy`, in order, or with shard_tokens
            `tokens-00000.npy` and so on: what Tokenizer.encode_file() makes of the texts one after another.
        out: The folder, which every node sees under the same path; made where there is none. The ids of a Dataset are
            written by the calling machine.
        tokenizer: The tokenizer.
        dtype, format, end_of_text, allowed_special: As for Tokenizer.encode_file().
        shard_tokens: Maximum number of ids per file (Datasets only). After a call that was stopped, the same call with
            the same Dataset continues after the last whole file.
        address: Of the cluster's head, as for bpe.cluster.count().
        num_threads: Threads of a task, which takes as many of the cluster's CPUs.
        part_size: Bytes; a larger file is encoded in parts of this size by several tasks. By default a file that is
            larger than a share of the whole, 16 MiB at least, in parts of 64 MiB at most. Compressed files, and
            tokenizers that read a text as a whole, take one task a file.
        text_key: The column of a Dataset that holds the texts.
        progress: True for bars, or a function of (phase, done, total).
        summary: Called at the end with a Summary; `summary=print` prints it.

    Returns:
        The manifest, which is in the folder too.

    Raises:
        TypeError: The source is an iterable of texts, which lie on this machine.
        ValueError: The folder is of another tokenizer, other settings or other files; a file changed on the way; no
            node has num_threads CPUs.
        OSError: A file cannot be read or written; FileNotFoundError where nodes do not see one folder. An error of one
            file is raised when the others are encoded; of several, a ValueError that lists them.
        ImportError, ConnectionError, MemoryError, RuntimeError: As for bpe.cluster.count().

    Example:
        >>> bpe.cluster.encode(files, "tokens", tokenizer, address="auto", summary=print)  # doctest: +SKIP
    """
    threads_for(num_threads)  # ValueError for none
    for name, size in (("part_size", part_size), ("shard_tokens", shard_tokens)):
        if size is not None:
            whole(name, size)
    special = allowed_special if allowed_special == "all" else sorted(allowed_special)
    settings = {"dtype": dtype, "format": format, "end_of_text": end_of_text, "allowed_special": special}
    ending, recipe = writer_of(format).ending, recipe_for(tokenizer, settings)
    if urls.is_url(out):
        raise ValueError(f"a cluster writes to a folder that every node sees, and {os.fspath(out)} is a URL")
    folder = Path(out).absolute()
    about, begun = Summary("encoded"), time.perf_counter()
    if is_dataset(source):
        folder.mkdir(parents=True, exist_ok=True)
        options = {"shard_tokens": shard_tokens, "text_key": text_key}
        with connected(address, num_threads) as ray, reporter(progress) as report:
            plan = Manifest(recipe.tokenizer, {**settings, **options}, [])
            manifest = encode_dataset(ray, source, folder, tokenizer, plan, ending, num_threads, report, about)
        _clear(folder, manifest)
    else:
        files = sources.files_of(source)
        if files is None:
            raise TypeError(
                "a cluster encodes files or a Ray Dataset; texts that are in memory are encoded by "
                "Tokenizer.encode_file()"
            )
        if shard_tokens is not None:
            raise ValueError("shard_tokens is for a Ray Dataset: each file becomes one file")
        files = list(map(absolute, files))
        folder.mkdir(parents=True, exist_ok=True)
        planned_files = [
            EncodedFile(os.fspath(file.path), sources.version_of(file.path), output_name(number, len(files)) + ending)
            for number, file in enumerate(files)
        ]
        manifest = Manifest(recipe.tokenizer, settings, planned_files)
        with contextlib.suppress(FileNotFoundError):
            manifest.take_over(Manifest.load(folder), folder)
        manifest.save(folder)
        jobs = [
            Whole(number, file, planned.version, folder / planned.output, sources.size_of_file(file.path) or 0)
            for number, (file, planned) in enumerate(zip(files, manifest.files, strict=True))
            if planned.tokens is None
        ]
        if jobs:
            with connected(address, num_threads) as ray, reporter(progress) as report:
                _encode_files(ray, jobs, manifest, folder, recipe, tokenizer, num_threads, part_size, report, about)
        _clear(folder, manifest)
    about.seconds = time.perf_counter() - begun
    if summary is not None:
        summary(about)
    return manifest


def _encode_files(
    ray: Any,
    files: list[Whole],
    manifest: Manifest,
    folder: Path,
    recipe: Recipe,
    tokenizer: Tokenizer,
    num_threads: int,
    part_size: int | None,
    report: Progress,
    about: Summary,
) -> None:
    """Encode the files that are not done, and keep the manifest as they are."""
    total = sum(file.size for file in files)
    share = (
        share_of(total, int(ray.cluster_resources().get("CPU", 1)) // num_threads) if part_size is None else part_size
    )
    jobs = Jobs(files, recipe, share, min(share, PART) if part_size is None else part_size)
    task = remote(ray, run_job, cpus=num_threads, returns=3)
    reference, saved = [ray.put(tokenizer)], time.monotonic()

    def submit(job: Job) -> list[Any]:
        return task(job, reference, manifest.settings, num_threads)

    outputs = _Outputs(manifest, folder)
    broken: dict[int, Exception] = {}  # by number, the first error of each file that cannot be read

    def refused(job: Job, error: Exception) -> bool:
        whole = job if isinstance(job, Whole) else job.whole if isinstance(job, Joined) else jobs.whole(job)
        name = os.fspath(whole.file.path)
        is_of_file = isinstance(error, ValueError) or (isinstance(error, OSError) and error.filename == name)
        if is_of_file:
            broken.setdefault(whole.number, error)
        return is_of_file

    results = run_tasks(
        ray,
        submit,
        jobs,
        cpus=num_threads,
        total=total,
        phase="encoding bytes",
        report=report,
        summary=about,
        urgent=jobs.urgent,
        refused=refused,
    )
    try:
        for done, ids in results:
            result = ray.get(done)
            if isinstance(result, PartOfFile):
                jobs.add(result, ids)
                continue
            outputs.add(*result)
            if time.monotonic() - saved >= SAVED_EVERY:
                manifest.save(folder)
                saved = time.monotonic()
        outputs.wait()
        _raise_errors([broken[number] for number in sorted(broken)], len(files))
    except BaseException:
        with contextlib.suppress(OSError):  # the disk is full, say: what failed first is told
            manifest.save(folder)
        raise
    manifest.save(folder)


def _raise_errors(errors: list[Exception], files: int) -> None:
    """Raise the error of the only file that cannot be encoded, or one that lists those of several."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = "".join(f"\n  {error}" for error in errors)
        raise ValueError(f"{len(errors)} of {files} files are not encoded, and all others are:{lines}")


class _Outputs:
    """The outputs of tasks, which count as done once this machine sees them: a node may have another folder there."""

    def __init__(self, manifest: Manifest, folder: Path) -> None:
        self._manifest, self._folder = manifest, folder
        self._unseen: dict[int, tuple[EncodedFile, str, float]] = {}  # by number: the file, its node, and since when

    def add(self, number: int, encoded: EncodedFile, node: str) -> None:
        """Add an output of a node. FileNotFoundError for an earlier one that is not seen after SEEN_WITHIN."""
        self._unseen[number] = encoded, node, time.monotonic()
        self._look()

    def wait(self) -> None:
        """Wait until all outputs are seen. FileNotFoundError as for add()."""
        while self._unseen:
            self._look()
            if self._unseen:
                time.sleep(0.1)

    def _look(self) -> None:
        for number, (encoded, node, since) in list(self._unseen.items()):
            if encoded.is_in(self._folder):
                self._manifest.files[number] = encoded
                del self._unseen[number]
            elif time.monotonic() - since >= SEEN_WITHIN:
                raise FileNotFoundError(
                    errno.ENOENT,
                    f"node {node} wrote it, and it is not seen here: out has to be a folder that all nodes share",
                    os.fspath(self._folder / encoded.output),
                )


def _clear(folder: Path, manifest: Manifest) -> None:
    """Remove what tasks that were killed had begun to write."""
    outputs = {Path(file.output).stem for file in manifest.files}
    for path in folder.glob(".*.tmp"):
        if (match := TEMPORARY.fullmatch(path.name)) and match[1].split(".")[0] in outputs:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


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
    if not manifest.files:  # of a Ray Dataset, until it is done
        raise ValueError(f"{path} is not encoded yet: encode() with the same arguments goes on")
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
