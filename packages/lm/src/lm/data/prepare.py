"""Text to a folder of token files: documents, each followed by end-of-text, in shards that appear whole.

FOLDER/train-00000.npy, heldout-00000.npy, …    the shards, each with its JSON
FOLDER/prepared.json                            what was requested, how far it is, and whether it is finished
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lm.data.documents import Document, documents, is_one_text
from lm.data.infill import FillInTheMiddle
from lm.data.mixture import PREPARED
from lm.data.token_file import TokenWriter
from lm.data.token_formats import ENDINGS
from lm.files import atomic_write, lock

GROUP = 1 << 20  # bytes of text that a thread encodes at a time
LARGE = 1 << 24  # bytes of a document beyond which it is encoded as a stream
IDS = 1 << 20  # ids that are taken from a stream at a time
SHARD = 100_000_000  # tokens of a training shard, about
TRAIN, HELDOUT = SPLITS = ("train", "heldout")


@dataclass
class Input:
    """A file of text."""

    name: str
    split: str  # "train", "heldout", "hash" (documents by their hash) or "tail" (its end is held out)
    key: str = "text"


@dataclass
class Count:
    """The tokens, bytes, documents and shards of a split so far."""

    tokens: int = 0
    bytes: int = 0
    documents: int = 0
    shards: int = 0


@dataclass
class Progress:
    """The state of a preparation: documents done of the file-th input, and the counts of each split."""

    file: int = 0
    document: int = 0
    train: Count = field(default_factory=Count)
    heldout: Count = field(default_factory=Count)


@dataclass(frozen=True)
class Recipe:
    """The settings by which documents become ids."""

    tokenizer: Any
    end_of_text: str
    share: float = 0.005  # that is held out by hash
    limit: int | None = None  # bytes of training text
    limit_heldout: int | None = None
    infill: FillInTheMiddle | None = None
    shard_tokens: int = SHARD


def prepare(
    paths: Sequence[str | Path],
    recipe: Recipe,
    out: Path,
    request: dict[str, Any],
    *,
    key: str = "text",
    num_threads: int | None = None,
    report: Callable[[int], None] = lambda size: None,
) -> Progress:
    """Make a folder of token files from files of text, or continue where an earlier call of the same was stopped.

    Documents are held out by their hash; of a plain text that is one document, the end. request: what the
    result depends on beside the texts, kept in prepared.json and compared; key: the name of the text in JSON lines and
    Parquet; report: called with the bytes of text as they are encoded. FileNotFoundError: a text is missing.
    ValueError: the folder holds something else, or there is nothing to train on.
    """
    files = [Path(path) for path in paths]
    texts = {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in files}
    alone = len(files) == 1 and is_one_text(files[0], recipe.end_of_text.encode())
    inputs = [Input(str(path), "tail" if alone else "hash", key) for path in files]
    about = {**request, "texts": texts}
    how: dict[str, Any] = {"obtain": files.__getitem__, "num_threads": num_threads, "report": report}
    with lock(out):
        return prepare_inputs(inputs, recipe, out, about, **how)


def prepare_inputs(
    inputs: Sequence[Input],
    recipe: Recipe,
    out: Path,
    request: dict[str, Any],
    *,
    obtain: Callable[[int], Path],
    discard: Callable[[int], None] = lambda index: None,
    num_threads: int | None = None,
    report: Callable[[int], None] = lambda size: None,
) -> Progress:
    """Do as prepare, in a locked folder, with inputs that come one by one: obtain(i) is a file, until discard(i)."""
    progress, finished = read_progress(out, request)
    if finished:
        return progress
    save_progress(out, request, progress, finished=False)
    num_threads = num_threads or os.cpu_count() or 1
    work = Preparation(inputs, recipe, out, request, progress, report, discard)
    with work.unfinished, ThreadPoolExecutor(num_threads) as pool:
        for index in range(progress.file, len(inputs)):
            if not work.has_enough(inputs[index].split):
                work.encode_input(index, obtain(index), pool, most_pending=2 * num_threads)
        if work.written.train.tokens == 0:
            raise ValueError(f"there is no text to train on in {', '.join(one.name for one in inputs[:3])}")
        work.commit(len(inputs), 0)
    save_progress(out, request, work.committed, finished=True)
    return work.committed


class SplitDocument(NamedTuple):
    """A document, the split it belongs to, and the number of documents for training before it."""

    split: str
    text: Document
    number: int


Encoded = tuple[str, NDArray[Any], int, int]  # split, ids, bytes of text, documents


@dataclass
class Preparation:
    """Documents read in order, encoded in threads, written in order, and committed shard by shard."""

    inputs: Sequence[Input]
    recipe: Recipe
    out: Path
    request: dict[str, Any]
    committed: Progress
    report: Callable[[int], None]
    discard: Callable[[int], None]

    def __post_init__(self) -> None:
        self.written, self.documents_read = copy.deepcopy(self.committed), self.committed.train.documents
        self.bytes_read = {split: getattr(self.committed, split).bytes for split in SPLITS}
        self.writers: dict[str, TokenWriter] = {}
        self.unfinished = contextlib.ExitStack()  # removes the shards that are not finished
        self.end = np.array([self.recipe.tokenizer.special_tokens[self.recipe.end_of_text]], dtype=np.uint32)
        self.separator = self.recipe.end_of_text.encode()

    def has_enough(self, split: str) -> bool:
        """True if the limit of a split has been read."""
        limit = self.recipe.limit_heldout if split == HELDOUT else self.recipe.limit
        return limit is not None and self.bytes_read[HELDOUT if split == HELDOUT else TRAIN] >= limit

    def encode_input(self, index: int, path: Path, pool: ThreadPoolExecutor, most_pending: int) -> None:
        """Encode the rest of the index-th input, most_pending groups ahead of the writer; commit full shards."""
        done = self.committed.document if index == self.committed.file else 0
        pending: deque[Future[list[Encoded]] | SplitDocument] = deque()

        def write_until(count: int) -> None:
            nonlocal done
            while len(pending) > count:
                done += self.write_next(pending.popleft())
                if self.written.train.tokens - self.committed.train.tokens >= self.recipe.shard_tokens:
                    self.commit(index, done)

        try:
            for group in grouped(self.documents_of(self.inputs[index], path, done)):
                is_large = len(group[0].text) > LARGE
                pending.append(group[0] if is_large else pool.submit(self.encode_group, group))
                write_until(most_pending)
            write_until(0)
        finally:
            for future in pending:
                if isinstance(future, Future):
                    future.cancel()

    def documents_of(self, source: Input, path: Path, skip: int) -> Iterator[SplitDocument]:
        """Yield the documents of an input that are not beyond a limit, but for the first `skip`."""
        if source.split == "tail":
            texts = self.head_and_tail(path, source)
        else:
            parts = documents(path, separator=self.separator, key=source.key)
            texts = ((self.split_of(source.split, text), text) for text in parts)
        for split, text in itertools.islice(texts, skip, None):
            if not self.has_enough(split):
                yield SplitDocument(split, text, self.documents_read)
                self.bytes_read[split] += len(text)
                self.documents_read += split == TRAIN
            elif split in (source.split, TRAIN):
                return

    def split_of(self, split: str, text: Document) -> str:
        """Return the split of a document: its input's, or by the document's hash."""
        if split in SPLITS:
            return split
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
        return HELDOUT if number < self.recipe.share * 2**64 else TRAIN

    def head_and_tail(self, path: Path, source: Input) -> Iterator[tuple[str, Document]]:
        """Yield a text in two parts; the second, from the beginning of a line on, is held out."""
        for text in documents(path, separator=self.separator, key=source.key):
            begin = last_line(text, int(len(text) * (1 - self.recipe.share))) if self.recipe.share else len(text)
            if begin:
                yield TRAIN, text[:begin]
            if begin < len(text) or not begin:
                yield HELDOUT if begin else TRAIN, text[begin:]

    def encode_group(self, group: list[SplitDocument]) -> list[Encoded]:
        """Return the ids of a group of documents; neighbours of one split in one array."""
        runs = [list(run) for _, run in itertools.groupby(group, key=lambda one: one.split)]
        return [(run[0].split, self.encode(run), sum(len(one.text) for one in run), len(run)) for run in runs]

    def encode(self, group: list[SplitDocument]) -> NDArray[Any]:
        """Return the ids of documents of one split, each followed by end-of-text."""
        infill = self.recipe.infill if group[0].split == TRAIN else None

        def ids_of(text: bytes, *special: str) -> Any:
            tokenizer = self.recipe.tokenizer
            return tokenizer.encode_to_numpy(text, allowed_special=frozenset(special), disallowed_special=())

        if infill is None:
            text = b"".join(part for one in group for part in (one.text, self.separator))
            # Where no document has the separator's text in it, all at once is the same, and faster.
            if text.count(self.separator) == len(group):
                return np.asarray(ids_of(text, self.recipe.end_of_text))
        parts = []
        for text, number in ((bytes(one.text), one.number) for one in group):
            parts += [ids_of(text) if infill is None else infill.encode(text, number, ids_of), self.end]
        return np.concatenate(parts)

    def encode_large(self, one: SplitDocument) -> Iterator[Encoded]:
        """Yield the ids of a document too large to be held: it is not rearranged, and counted with its end."""
        chunks = (bytes(one.text[at : at + GROUP]) for at in range(0, len(one.text), GROUP))
        ids = self.recipe.tokenizer.encode_iterable(chunks, allowed_special=frozenset())
        while len(some := np.fromiter(itertools.islice(ids, IDS), dtype=np.uint32)):
            yield one.split, some, 0, 0
        yield one.split, self.end, len(one.text), 1

    def write_next(self, first: Future[list[Encoded]] | SplitDocument) -> int:
        """Write what was submitted first, once it is encoded; return its number of documents."""
        documents_written = 0
        for split, ids, size, count in self.encode_large(first) if isinstance(first, SplitDocument) else first.result():
            about: Count = getattr(self.written, split)
            if split not in self.writers:
                dtype = "uint16" if self.recipe.tokenizer.n_vocab <= 1 << 16 else "uint32"
                writer = TokenWriter(self.out / f"{split}-{about.shards:05}.npy", dtype=dtype)
                self.writers[split] = self.unfinished.enter_context(writer)
            self.writers[split].write(ids)
            about.tokens += len(ids)
            about.bytes += size
            about.documents += count
            documents_written += count
            self.report(size)
        return documents_written

    def commit(self, file: int, document: int) -> None:
        """Put the shards in their place, and then say so in prepared.json."""
        for split, writer in self.writers.items():
            total, before = getattr(self.written, split), getattr(self.committed, split)
            about = {"tokenizer": self.recipe.tokenizer.fingerprint, "end_of_text": int(self.end[0])}
            writer.finish(**about, bytes=total.bytes - before.bytes)
            total.shards += 1
        self.writers = {}
        before = self.committed.file
        self.written.file, self.written.document = file, document
        self.committed = copy.deepcopy(self.written)
        save_progress(self.out, self.request, self.committed, finished=False)
        for done in range(before, file):
            self.discard(done)


def grouped(documents: Iterable[SplitDocument]) -> Iterator[list[SplitDocument]]:
    """Yield documents by about GROUP bytes; one larger than LARGE alone."""
    group, size = list[SplitDocument](), 0
    for one in documents:
        if group and (size >= GROUP or len(one.text) > LARGE):
            yield group
            group, size = [], 0
        group.append(one)
        size += len(one.text)
    if group:
        yield group


def last_line(text: Document, end: int) -> int:
    """Return the end of the last whole line before a place; the place itself where no line ends."""
    for stop in range(end, 0, -4096):
        if (place := bytes(text[max(stop - 4096, 0) : stop]).rfind(b"\n")) >= 0:
            return max(stop - 4096, 0) + place + 1
    return end


def read_progress(out: Path, request: dict[str, Any]) -> tuple[Progress, bool]:
    """Return the state of a folder, and True if it is finished. ValueError: it is of other inputs, or damaged."""
    try:
        table = json.loads((out / PREPARED).read_text())
        before, finished, reached = table["asked"], bool(table["finished"]), table["reached"]
        progress = Progress(**{**reached, **{split: Count(**reached[split]) for split in SPLITS}})
    except FileNotFoundError:
        if any(path.suffix in ENDINGS for path in out.iterdir()):
            raise ValueError(f"{out} holds token files of other commands: choose another folder") from None
        return Progress(), False
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{out / PREPARED} is damaged: remove {out}, and begin again") from None
    request = json.loads(json.dumps(request))
    if progress == Progress() and request != before and not any(path.suffix in ENDINGS for path in out.iterdir()):
        return Progress(), False  # a command that failed before its first token does not bind this one
    for key in sorted(request.keys() | before.keys(), key=lambda key: (key != "texts", key)):
        if request.get(key) != before.get(key):
            values: list[Any] = [value.get(key) for value in (before, request)]
            if key == "texts" and all(values) and list(values[0]) != list(values[1]):
                values = [", ".join(value) for value in values]  # the names of the files, without sizes and times
            change = f"{key} = {values[0]}, and this call asks for {values[1]}"
            raise ValueError(f"{out} was begun with {change}: ask for the same, or choose another folder")
    return progress, finished


def save_progress(out: Path, request: dict[str, Any], progress: Progress, *, finished: bool) -> None:
    """Write prepared.json, whole or not at all."""
    table = {"finished": finished, "asked": request, "reached": asdict(progress)}
    atomic_write(out / PREPARED, json.dumps(table, indent=1))
