"""The thread that decodes the texts of many requests, and the queue of bounded length before it."""

from __future__ import annotations

import threading
import time
import traceback
from collections import abc, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lm.device import memory_of
from lm.generation.kv_cache import SHARE, Cache
from lm.generation.sampling import NoToken, TokenLogprob
from lm.generation.scheduler import Results, Scheduler, Sequence
from lm.generation.stream import StreamDecoder
from lm.model import Transformer

# Bounds of the histograms.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
PAUSE = 0.004  # seconds of the tokens that are decoded before they are sent and others are admitted


class Busy(RuntimeError):
    """There is no room left in the queue."""


@dataclass(frozen=True)
class Piece:
    """A piece of a text."""

    text: str
    tokens: int  # so far
    ended: str | None  # "stop", "length", or "error" if decoding failed; None as long as it goes on
    logprobs: tuple[TokenLogprob, ...] = ()  # of the tokens since the piece before, if requested
    cached: int = 0  # tokens of the prompt that were in the cache
    ids: tuple[int, ...] = ()  # of the tokens since the piece before
    mistake: str = ""  # in the request, if that is why decoding failed
    stopped_by: str | None = None  # the stop string that ended it
    reasoning: str = ""  # the thoughts of a model before its text


@dataclass(eq=False)
class Job:
    """A sequence to continue."""

    ids: abc.Sequence[int]  # of the prompt
    settings: Mapping[str, Any]  # the other arguments of Scheduler.add
    tell: Callable[[abc.Sequence[Piece]], None]  # called with the pieces of each step, by tell_all
    stop: abc.Sequence[str] = ()  # strings that end it
    min_tokens: int = 0  # tokens before which they do not
    skip_ids: Collection[int] = ()  # tokens that are not part of its text
    echo: str = ""  # begins the first piece
    model: str = ""  # name of the adapters that continue it; "": the base model
    cancelled: bool = False
    sequence: Sequence | None = None
    writer: StreamDecoder | None = field(default=None, repr=False)
    since: float = field(default_factory=time.perf_counter)  # its arrival, or its last token
    tokens: int = 0  # so far
    ids_sent: int = 0
    logprobs_sent: int = 0


PiecesOfStep = dict[Job, list[Piece]]


def tell_all(pieces: PiecesOfStep) -> None:
    """Tell each job its pieces."""
    for job, of_job in pieces.items():
        job.tell(of_job)


class Metrics:
    """Counts of an engine."""

    def __init__(self, engine: Engine) -> None:
        registry = self.registry = CollectorRegistry()
        self.ended = Counter("lm_texts", "texts that ended, by why", ["ended"], registry=registry)
        self.prompt = Counter("lm_prompt_tokens", "tokens of prompts", registry=registry)
        self.cached = Counter("lm_cached_tokens", "tokens of prompts that were in the cache", registry=registry)
        self.generated = Counter("lm_generated_tokens", "tokens made", registry=registry)
        names = ("first_token", "from a request to its first token"), ("between_tokens", "from token to token")
        self.first_token, self.between_tokens = (
            Histogram(f"lm_{name}_seconds", about, registry=registry, buckets=SECONDS) for name, about in names
        )
        caches = [batch.cache for batch in engine.batches.values()]
        for name, about, value in (
            ("texts_running", "texts that are decoded", lambda: len(engine.running)),
            ("texts_waiting", "texts in the queue", lambda: len(engine.queue)),
            ("cache_bytes", "bytes of keys and values that fit the cache", lambda: bytes_of(caches, used=False)),
            ("cache_used_bytes", "bytes of keys and values in the cache", lambda: bytes_of(caches, used=True)),
        ):
            Gauge(f"lm_{name}", about, registry=registry).set_function(value)


def bytes_of(caches: abc.Sequence[Cache], *, used: bool) -> int:
    return sum((cache.pages - len(cache.free) * used) * cache.page_bytes for cache in caches)


class Engine:
    """Decodes jobs, at most `rows` together and `waiting` in the queue, until it is closed.

    Each gets the tokens it would get alone. The methods may be called from any thread. Each of the adapters has a batch
    and a cache of its own beside the base model's: a step is one of each batch that has texts.

    Args:
        model, tokenizer: The base model and its tokenizer.
        adapters: The same model with adapters beside its weights, by name.
        rows: Texts of one batch.
        waiting: Texts in the queue.
        context: The most tokens of a sequence; the model's, if None.
        memory: Bytes of keys and values of all batches, as for generation.kv_cache.Cache.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Any,
        *,
        adapters: Mapping[str, Transformer] | None = None,
        rows: int = 8,
        waiting: int = 32,
        context: int | None = None,
        memory: int | None = None,
    ) -> None:
        if rows < 1 or waiting < 1:
            raise ValueError(f"rows {rows} and waiting {waiting} must be at least 1")
        self.models, self.tokenizer, self.waiting = {"": model, **(adapters or {})}, tokenizer, waiting
        memory = memory_of(model.embedding.weight.device) // SHARE if memory is None else memory
        each = memory // len(self.models)
        self.batches = {
            name: Scheduler(one, rows=rows, capacity=context, memory=each) for name, one in self.models.items()
        }
        self.batch = self.batches[""]
        self.queue: deque[Job] = deque()
        self.running: dict[Sequence, Job] = {}
        # Called on the decoding thread with the pieces of each step; it calls tell_all, on whatever thread it chooses.
        self.deliver: Callable[[PiecesOfStep], object] = tell_all
        self.pieces: PiecesOfStep = {}  # of this step
        self.metrics = Metrics(self)
        self.changed, self.closed = threading.Condition(), False
        self.thread = threading.Thread(target=self._work, name="decoding", daemon=True)
        self.thread.start()

    def submit(self, jobs: abc.Sequence[Job]) -> None:
        """Queues jobs, all or none. Busy: there is no room for them."""
        with self.changed:
            if self.closed or len(self.queue) + len(jobs) > self.waiting:
                raise Busy(f"{len(self.queue)} texts wait already, and at most {self.waiting} may: try again later")
            self.queue.extend(jobs)
            self.changed.notify()

    def cancel(self, jobs: abc.Sequence[Job]) -> None:
        """End jobs whose clients have left; their rows are free at the next step."""
        with self.changed:
            for job in jobs:
                job.cancelled = True
                if job in self.queue:
                    self.queue.remove(job)

    def close(self) -> None:
        """End the thread after its step; unfinished jobs get a piece that says "error"."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    def _work(self) -> None:
        while self._admit():
            try:
                for batch in self.batches.values():
                    if batch.sequences:
                        self._continue(batch.try_step(0.0 if self.queue else PAUSE / len(self.batches)))
            except Exception:
                # A step of all sequences failed, as where a GPU has no memory left: none may wait for ever.
                self._fail()
                if not self.closed:
                    traceback.print_exc()
            self._deliver()
        self._fail()
        self._deliver()

    def _admit(self) -> bool:
        """Wait for work, and take from the queue what there is room for. False: the engine was closed."""
        with self.changed:
            while not (self.closed or self.queue or self.running):
                self.changed.wait()
            if self.closed:
                return False
            for job in list(self.running.values()):
                if job.cancelled:
                    self._end(job, "cancelled")
            room, jobs = {name: batch.room for name, batch in self.batches.items()}, list[Job]()
            for job in list(self.queue):  # a text of a full batch lets others pass
                if room[job.model]:
                    room[job.model] -= 1
                    self.queue.remove(job)
                    jobs.append(job)
        # A job that the scheduler refuses ends alone.
        for job in jobs:
            try:
                job.writer = StreamDecoder(self.tokenizer, () if job.min_tokens else job.stop)
                job.sequence = self.batches[job.model].add(job.ids, **job.settings, when_full="end")
            except Exception as error:  # of this sequence: the others go on
                self._tell(job, failure(error, 0))
                continue
            if job.sequence.ended is None:
                self.running[job.sequence] = job
            else:
                self._tell(job, Piece(job.echo, 0, job.sequence.ended))
        return True

    def _continue(self, results: Results) -> None:
        """Add the tokens of a batch's step to their jobs' texts."""
        now, tokens_of = time.perf_counter(), dict[Sequence, list[int | None]]()
        for sequence, token in results:
            tokens_of.setdefault(sequence, []).append(token)
        for sequence, tokens in tokens_of.items():
            job = self.running[sequence]
            seconds, job.since = (now - job.since) / len(tokens), now
            try:
                if sequence.error is not None:
                    raise sequence.error
                for number, token in enumerate(tokens, 1):
                    if sequence in self.running:  # no stop string has ended its text before this token
                        self._add(job, sequence, token, seconds, last=number == len(tokens))
            except Exception as error:
                self._end(job, "error")
                self._tell(job, failure(error, job.tokens))

    def _add(self, job: Job, sequence: Sequence, token: int | None, seconds: float, *, last: bool) -> None:
        """Add a token, the last of this step, to a job's text; None: a stop token ended it."""
        writer = job.writer
        assert writer is not None
        piece = "" if token is None or token in job.skip_ids else writer.feed(token)
        if token is not None:
            job.tokens += 1
            (self.metrics.first_token if job.tokens == 1 else self.metrics.between_tokens).observe(seconds)
            if job.tokens == job.min_tokens:
                writer.stop = tuple(job.stop)
        ended = sequence.ended if last else None
        piece += "" if ended is None else writer.finish()
        ended = "stop" if writer.stopped else ended
        if ended is not None:
            self._end(job, ended)
        # The certain part of the text is sent, with the ids and logprobs since the piece before.
        piece, job.echo = job.echo + piece, ""
        if piece or ended is not None:
            logprobs = tuple(sequence.logprobs[job.logprobs_sent :])
            ids = tuple(sequence.tokens[job.ids_sent : job.tokens])
            job.logprobs_sent, job.ids_sent = job.logprobs_sent + len(logprobs), job.tokens
            self._tell(job, Piece(piece, job.tokens, ended, logprobs, sequence.cached, ids, "", writer.stopped))

    def _tell(self, job: Job, piece: Piece) -> None:
        self.pieces.setdefault(job, []).append(piece)

    def _deliver(self) -> None:
        pieces, self.pieces = self.pieces, {}
        if pieces:
            self.deliver(pieces)

    def _end(self, job: Job, why: str) -> None:
        """End a job that runs, and count it."""
        sequence = job.sequence
        assert sequence is not None
        del self.running[sequence]
        self.batches[job.model].cancel(sequence)
        self.metrics.ended.labels(why).inc()
        self.metrics.prompt.inc(len(sequence.prompt))
        self.metrics.cached.inc(min(sequence.cached, len(sequence.prompt)))
        self.metrics.generated.inc(job.tokens)

    def _fail(self) -> None:
        """End all running jobs with an error; those that wait, too, if the engine is closed."""
        with self.changed:
            lost = [*self.running.values(), *(self.queue if self.closed else ())]
            for job in list(self.running.values()):
                self._end(job, "error")
            if self.closed:
                self.queue.clear()
        for job in lost:
            self._tell(job, Piece("", 0, "error"))


def failure(error: Exception, tokens: int) -> Piece:
    """The last piece of a text whose decoding has failed; an error that is not the request's goes to the log."""
    if not isinstance(error, NoToken):
        traceback.print_exception(error)
    return Piece("", tokens, "error", mistake=str(error) if isinstance(error, NoToken) else "")
