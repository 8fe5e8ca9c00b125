"""The thread that decodes: texts of many requests, a token each at every step, and a queue of bounded length before
it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm.generation import engine
from lm.generation.engine import Scheduler
from lm.generation.sampling import Sampling
from lm.generation.stream import StreamDecoder
from lm.model import Transformer


class Busy(RuntimeError):
    """There is no room left in the queue."""


@dataclass(eq=False)
class Job:
    """A text to continue. tell(text, tokens, ended) is called on the decoding thread with each piece of it: how many
    tokens it has so far, and why it ended, None as long as it goes on: "stop", "length", or "error" where decoding
    failed.
    """

    ids: Sequence[int]
    max_new_tokens: int
    sampling: Sampling
    seed: int | None
    stop_tokens: Sequence[int]
    stop: Sequence[str]
    tell: Callable[[str, int, str | None], None]
    cancelled: bool = False
    text: engine.Sequence | None = None
    writer: StreamDecoder | None = field(default=None, repr=False)


class Engine:
    """Decodes jobs, at most `rows` together and `waiting` in the queue, until it is closed.

    Each gets the tokens it would get alone. Its methods may be called from any thread.
    """

    def __init__(self, model: Transformer, tokenizer: Any, *, rows: int = 8, waiting: int = 32) -> None:
        if rows < 1 or waiting < 1:
            raise ValueError(f"rows {rows} and waiting {waiting} must be at least 1")
        self.model, self.tokenizer, self.waiting = model, tokenizer, waiting
        self.batch = Scheduler(model, rows=rows)
        self.queue: deque[Job] = deque()
        self.running: dict[engine.Sequence, Job] = {}
        self.changed, self.closed = threading.Condition(), False
        self.thread = threading.Thread(target=self._work, name="decoding", daemon=True)
        self.thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queues jobs, all or none. Busy: there is no room for them."""
        with self.changed:
            if self.closed or len(self.queue) + len(jobs) > self.waiting:
                raise Busy(f"{len(self.queue)} texts wait already, and at most {self.waiting} may: try again later")
            self.queue.extend(jobs)
            self.changed.notify()

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Ends jobs that no one waits for any more; their places are free at the next step."""
        with self.changed:
            for job in jobs:
                job.cancelled = True
                if job in self.queue:
                    self.queue.remove(job)

    def close(self) -> None:
        """Ends the thread, after the step it is at; what it has not finished is told that it failed."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    def _work(self) -> None:
        while self._admit():
            try:
                made = self.batch.step() if self.batch.texts else []
                for text, token in made:
                    self._tell(self.running[text], token)
            except Exception:
                # One text's failure must not leave the others waiting for ever, nor end the thread.
                self._fail()
                if not self.closed:
                    import traceback

                    traceback.print_exc()
        self._fail()

    def _admit(self) -> bool:
        """Waits until there is something to do, and takes from the queue what there is room for.

        False: it was closed.
        """
        with self.changed:
            while not (self.closed or self.queue or self.running):
                self.changed.wait()
            if self.closed:
                return False
            for text, job in list(self.running.items()):
                if job.cancelled:
                    self.batch.cancel(text)
                    del self.running[text]
            taken = [self.queue.popleft() for _ in range(min(self.batch.room, len(self.queue)))]
        for job in taken:
            job.writer = StreamDecoder(self.tokenizer.decode_stream(), job.stop)
            text = self.batch.add(
                job.ids,
                max_new_tokens=job.max_new_tokens,
                sampling=job.sampling,
                seed=job.seed,
                stop_tokens=job.stop_tokens,
                when_full="end",
            )
            if text.ended is None:
                job.text, self.running[text] = text, job
            else:
                job.tell("", 0, text.ended)
        return True

    def _tell(self, job: Job, token: int | None) -> None:
        text, writer = job.text, job.writer
        if text is None or writer is None:
            return
        piece = "" if token is None else writer.feed(token)
        ended = text.ended
        if writer.stopped:
            self.batch.cancel(text)
            ended = "stop"
        elif ended is not None:
            piece += writer.finish()
            ended = "stop" if writer.stopped else ended
        if ended is not None:
            del self.running[text]
        if piece or ended is not None:
            job.tell(piece, len(text.tokens), ended)

    def _fail(self) -> None:
        with self.changed:
            lost = [*self.running.values(), *(self.queue if self.closed else ())]
            for text in self.running:
                self.batch.cancel(text)
            self.running.clear()
            if self.closed:
                self.queue.clear()
        for job in lost:
            job.tell("", 0, "error")
