"""Text to a folder of token files: documents, each followed by end-of-text, in shards that appear whole.

FOLDER/train-00000.npy, heldout-00000.npy, …    the shards, each with its JSON
FOLDER/prepared.json                            what was asked for, how far it is, and whether it is finished
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
from lm.data.token_file import PREPARED, TokenWriter
from lm.data.token_formats import ENDINGS
from lm.files import Locked, atomic_write, lock

GROUP = 1 << 20  # bytes of text that a thread encodes at a time
LARGE = 1 << 24  # bytes of a document beyond which it is encoded as a stream
IDS = 1 << 20  # ids that are taken from a stream at a time
SHARD = 100_000_000  # tokens of a training shard, about
TRAIN, HELDOUT = SPLITS = ("train", "heldout")


@dataclass
class Input:
    """A file of text: split is "train", "heldout", "hash" (documents by their hash) or "tail" (its end is held out).

    partial: it is the beginning of a longer file.
    """

    name: str
    split: str
    key: str = "text"
    partial: bool = False


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
    """The settings by which documents become ids.

    limit: bytes of training text, and limit_heldout of the other; share: held out by hash.
    """

    tokenizer: Any
    end_of_text: str
    share: float = 0.005
    limit: int | None = None
    limit_heldout: int | None = None
    infill: FillInTheMiddle | None = None
    shard_tokens: int = SHARD


def prepare(
    paths: Sequence[str | Path],
    recipe: Recipe,
    out: Path,
    asked: dict[str, Any],
    *,
    key: str = "text",
    num_threads: int | None = None,
    report: Callable[[int], None] = lambda size: None,
) -> Progress:
    """Makes a folder of token files from files of text, or goes on where an earlier call of the same was stopped.

    Documents are held out by their hash; where there is one text without a separator, its end is. asked: what the
    result depends on beside the texts, kept in prepared.json and compared. report: told of the bytes of text as they
    are encoded.
    FileNotFoundError: a text is missing. ValueError: the folder holds something else, or there is nothing to train on.
    """
    files = [Path(path) for path in paths]
    texts = {str(path): [path.stat().st_size, path.stat().st_mtime_ns] for path in files}
    alone = len(files) == 1 and is_one_text(files[0], recipe.end_of_text.encode())
    inputs = [Input(str(path), "tail" if alone else "hash", key) for path in files]
    with locked(out):
        return prepare_inputs(
            inputs,
            recipe,
            out,
            {**asked, "texts": texts},
            obtain=lambda i: files[i],
            num_threads=num_threads,
            report=report,
        )


def prepare_inputs(
    inputs: Sequence[Input],
    recipe: Recipe,
    out: Path,
    asked: dict[str, Any],
    *,
    obtain: Callable[[int], Path],
    discard: Callable[[int], None] = lambda index: None,
    num_threads: int | None = None,
    report: Callable[[int], None] = lambda size: None,
) -> Progress:
    """Do as prepare, in a folder that is locked, with inputs that come one by one.

    obtain(i) gives the i-th input as a file, discard(i) is called when it is not needed again.
    """
    progress, finished = read_progress(out, asked)
    if finished:
        return progress
    save_progress(out, asked, progress, finished=False)
    num_threads = num_threads or os.cpu_count() or 1
    discarded = 0
    with Preparation(inputs, recipe, out, asked, progress, report) as work, ThreadPoolExecutor(num_threads) as pool:
        for index in range(progress.file, len(inputs)):
            if not work.has_enough(inputs[index].split):
                work.encode_input(index, obtain(index), pool, most_pending=2 * num_threads)
            for done in range(discarded, work.committed.file):
                discard(done)
            discarded = work.committed.file
        if work.written.train.tokens == 0:
            raise ValueError(f"there is no text to train on in {', '.join(one.name for one in inputs[:3])}")
        work.commit(len(inputs), 0)
    for done in range(discarded, len(inputs)):
        discard(done)
    save_progress(out, asked, work.committed, finished=True)
    return work.committed


class Preparation:
    """Documents read in order, encoded in threads, written in order, and committed shard by shard.

    Attributes:
        committed: What prepared.json says: the shards that are in their place, and where to go on from.
        written: What is in the shards, those that are still being written included.
        bytes_read: Of each split, the bytes of the documents that were read, which is ahead of what is written.
        documents_read: Documents for training that were read.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        recipe: Recipe,
        out: Path,
        asked: dict[str, Any],
        progress: Progress,
        report: Callable[[int], None],
    ) -> None:
        self.inputs, self.recipe, self.out, self.asked, self.report = inputs, recipe, out, asked, report
        self.committed, self.written = progress, copy.deepcopy(progress)
        self.bytes_read = {split: getattr(progress, split).bytes for split in SPLITS}
        self.documents_read = progress.train.documents
        self.writers: dict[str, TokenWriter] = {}
        self.end = np.array([recipe.tokenizer.special_tokens[recipe.end_of_text]], dtype=np.uint32)
        self.separator = recipe.end_of_text.encode()

    def __enter__(self) -> Preparation:
        return self

    def __exit__(self, *error: object) -> None:
        for writer in self.writers.values():
            writer.__exit__(None, None, None)

    def has_enough(self, split: str) -> bool:
        """True if the limit of a split has been read."""
        limit = self.recipe.limit_heldout if split == HELDOUT else self.recipe.limit
        return limit is not None and self.bytes_read[HELDOUT if split == HELDOUT else TRAIN] >= limit

    def encode_input(self, index: int, path: Path, pool: ThreadPoolExecutor, most_pending: int) -> None:
        """Encodes what is left of the index-th input, and commits shards as they fill.

        Groups of documents are encoded in the pool, at most `most_pending` of them ahead of what is written. A document
        that is too large to be held as ids waits among them, and is encoded when its turn comes to be written.
        """
        done = self.committed.document if index == self.committed.file else 0
        pending: deque[Future[Encoded] | SplitDocument] = deque()
        try:
            for group in grouped(self.documents_of(self.inputs[index], path, done)):
                is_large = len(group[0].text) > LARGE
                pending.append(group[0] if is_large else pool.submit(self.encode_group, group))
                while len(pending) > most_pending:
                    done += self.write_next(pending)
                    self.commit_if_full(index, done)
            while pending:
                done += self.write_next(pending)
                self.commit_if_full(index, done)
        finally:
            for future in pending:
                if isinstance(future, Future):
                    future.cancel()

    def documents_of(self, given: Input, path: Path, skip: int) -> Iterator[SplitDocument]:
        """The documents of an input that are wanted, but for the first `skip`, with the split that each belongs to."""
        if given.split == "tail":
            texts = self.head_and_tail(path, given)
        else:
            found = documents(path, separator=self.separator, key=given.key, partial=given.partial)
            texts = ((self.split_of(given.split, text), text) for text in found)
        for split, text in itertools.islice(texts, skip, None):
            if self.has_enough(split):
                if split == given.split or split == TRAIN:
                    return
                continue
            yield SplitDocument(split, text, self.documents_read)
            self.bytes_read[split] += len(text)
            self.documents_read += split == TRAIN

    def split_of(self, split: str, text: Document) -> str:
        """The split of a document: its input's, or by the document's hash."""
        if split in SPLITS:
            return split
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
        return HELDOUT if number < self.recipe.share * 2**64 else TRAIN

    def head_and_tail(self, path: Path, given: Input) -> Iterator[tuple[str, Document]]:
        """A text whose end is held out, from the beginning of a line on."""
        for text in documents(path, separator=self.separator, key=given.key):
            end = last_line(text, len(text)) if given.partial else len(text)
            begin = last_line(text, int(end * (1 - self.recipe.share))) if self.recipe.share else end
            if begin:
                yield TRAIN, text[:begin]
            if begin < end or not begin:
                yield HELDOUT if begin else TRAIN, text[begin:end]

    def encode_group(self, group: list[SplitDocument]) -> Encoded:
        """The ids of a group of documents, each followed by end-of-text; neighbours of one split in one array."""
        made = []
        for split, run in itertools.groupby(group, key=lambda one: one.split):
            ones = list(run)
            made.append((split, self.encode_documents(split, ones), sum(map(self.size_of, ones)), len(ones)))
        return made

    def encode_documents(self, split: str, ones: list[SplitDocument]) -> NDArray[Any]:
        """The ids of documents of one split, each followed by end-of-text."""
        tokenizer, infill = self.recipe.tokenizer, self.recipe.infill if split == TRAIN else None
        if infill is None:
            joined = b"".join(part for one in ones for part in (one.text, self.separator))
            # Where no document has the separator's text in it, all at once is the same, and faster.
            if joined.count(self.separator) == len(ones):
                ids: NDArray[Any] = tokenizer.encode_to_numpy(
                    joined, allowed_special={self.recipe.end_of_text}, disallowed_special=()
                )
                return ids

        def plain(text: bytes) -> NDArray[Any]:
            ids: NDArray[Any] = tokenizer.encode_to_numpy(text, allowed_special=frozenset(), disallowed_special=())
            return ids

        parts = []
        for one in ones:
            text = bytes(one.text)
            parts += [plain(text) if infill is None else infill.encode(text, one.number, plain), self.end]
        return np.concatenate(parts)

    def encode_large(self, one: SplitDocument) -> Iterator[tuple[str, NDArray[Any], int, int]]:
        """The ids of a document too large to be held: it is not rearranged, and counted with its end."""
        chunks = (bytes(one.text[at : at + GROUP]) for at in range(0, len(one.text), GROUP))
        ids = self.recipe.tokenizer.encode_iterable(chunks, allowed_special=frozenset())
        while len(some := np.fromiter(itertools.islice(ids, IDS), dtype=np.uint32)):
            yield one.split, some, 0, 0
        yield one.split, self.end, self.size_of(one), 1

    def size_of(self, one: SplitDocument) -> int:
        """The bytes of the text that a document's ids stand for: its own, and the name of the end-of-text token."""
        return len(one.text) + len(self.separator)

    def write_next(self, pending: deque[Future[Encoded] | SplitDocument]) -> int:
        """Writes what was submitted first, once it is encoded; how many documents that are."""
        first = pending.popleft()
        documents_written = 0
        for split, ids, size, count in self.encode_large(first) if isinstance(first, SplitDocument) else first.result():
            self.write(split, ids)
            about: Count = getattr(self.written, split)
            about.tokens += len(ids)
            about.bytes += size
            about.documents += count
            documents_written += count
            self.report(size)
        return documents_written

    def write(self, split: str, ids: NDArray[Any]) -> None:
        """Adds ids to the shard of a split that is being written."""
        if split not in self.writers:
            about: Count = getattr(self.written, split)
            dtype = "uint16" if self.recipe.tokenizer.n_vocab <= 1 << 16 else "uint32"
            self.writers[split] = TokenWriter(self.out / f"{split}-{about.shards:05}.npy", dtype=dtype)
        self.writers[split].write(ids)

    def commit_if_full(self, file: int, document: int) -> None:
        """Commits when the training shard has its size; so many documents of the file-th input are written."""
        if self.written.train.tokens - self.committed.train.tokens >= self.recipe.shard_tokens:
            self.commit(file, document)

    def commit(self, file: int, document: int) -> None:
        """Puts the shards in their place, and then says so in prepared.json."""
        for split, writer in self.writers.items():
            written, committed = getattr(self.written, split), getattr(self.committed, split)
            with writer:
                writer.finish(
                    tokenizer=self.recipe.tokenizer.fingerprint,
                    text_bytes=written.bytes - committed.bytes,
                    end_of_text=int(self.end[0]),
                )
            written.shards += 1
        self.writers = {}
        self.written.file, self.written.document = file, document
        self.committed = copy.deepcopy(self.written)
        save_progress(self.out, self.asked, self.committed, finished=False)


class SplitDocument(NamedTuple):
    """A document, the split it belongs to, and how many documents for training were before it."""

    split: str
    text: Document
    number: int


Encoded = list[tuple[str, NDArray[Any], int, int]]  # (split, ids, bytes of text, documents)


def grouped(found: Iterable[SplitDocument]) -> Iterator[list[SplitDocument]]:
    """Documents by about GROUP bytes; one larger than LARGE alone."""
    group: list[SplitDocument] = []
    size = 0
    for one in found:
        if len(one.text) > LARGE:
            if group:
                yield group
            yield [one]
            group, size = [], 0
            continue
        group.append(one)
        size += len(one.text)
        if size >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def last_line(text: Document, end: int) -> int:
    """The end of the last whole line before a place; the place itself where there is no line's end."""
    for begin in range(max(0, end - 4096), -4096, -4096):
        begin = max(begin, 0)
        found = bytes(text[begin:end]).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        if begin == 0:
            break
    return end


def read_progress(out: Path, asked: dict[str, Any]) -> tuple[Progress, bool]:
    """Return the state of a folder, and True if it is finished. ValueError: it is of other inputs, or damaged."""
    try:
        says = json.loads((out / PREPARED).read_text())
        there, finished = says["asked"], bool(says["finished"])
        reached = says["reached"]
        counts = {split: Count(**reached.pop(split)) for split in SPLITS}
        known = Progress(reached["file"], reached["document"], counts[TRAIN], counts[HELDOUT])
    except FileNotFoundError:
        if any(path.suffix in ENDINGS for path in out.iterdir()):
            raise ValueError(f"{out} holds token files that were not made so: choose another folder") from None
        return Progress(), False
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{out / PREPARED} is damaged: remove {out}, and begin again") from None
    asked = json.loads(json.dumps(asked))
    for key in sorted(asked.keys() | there.keys()):
        if asked.get(key) != there.get(key):
            raise ValueError(
                f"{out} was begun with {key} = {there.get(key)!r}, and this call asks for {asked.get(key)!r}: "
                f"ask for the same to go on, or choose another folder"
            )
    return known, finished


def save_progress(out: Path, asked: dict[str, Any], progress: Progress, *, finished: bool) -> None:
    """Writes prepared.json, whole or not at all."""
    says = {"finished": finished, "asked": asked, "reached": asdict(progress)}
    atomic_write(out / PREPARED, json.dumps(says, indent=1))


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """The folder, for this process alone. ValueError: another is at work in it."""
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock(out / ".lock"))
        except Locked as holds:
            raise ValueError(f"{holds.holder} is at work in {out}: wait for it, or choose another folder") from None
        yield
