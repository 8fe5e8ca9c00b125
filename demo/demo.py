"""The main job, end to end: text → tokenizer → tokens → budget → model → text → a page to look at.

    python demo/demo.py [--corpus FILE …] [--minutes 6] [--vocab-size 4096] [--seed 0] [--out runs/demo]

Every stage leaves a whole file or none, and a stage whose file is there is not done again: stopped at any point, the
same command goes on from there. The folder is a run folder of `lm` with the tokenizer and the tokens beside it.
"""

from __future__ import annotations

import os
import time

BEGAN = time.monotonic()  # before torch is imported, whose loading is a part of the demo's time

# OpenMP threads spin before they sleep. With the default of an unset OMP_WAIT_POLICY any other program on the machine
# makes a training step ten times slower; without spinning a step takes half as long again.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

import argparse
import dataclasses
import hashlib
import importlib.resources
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import demo_page
import torch
from demo_budget import Budget
from pace import DECAY, FEWEST_STEPS, MARGIN, Watch

import bpe
import lm
from bpe.native.atomic_file import write_atomically
from lm.config import ModelConfig, TrainConfig, from_table, read_toml
from lm.data import Tokens, describe, open_tokens
from lm.generation.sampling import Sampling
from lm.page.export import to_page
from lm.training.measure import measure as measure_step
from lm.training.train import Stopped

SCORE_STRIDE = 2  # the final scoring moves by context / SCORE_STRIDE: half of the context before a token is sure
MINUTES = 6.0
RESERVE = 14.0  # seconds of the time for the samples and the page
EVALUATIONS = 10  # of a sample of the held-out text, while training
EVAL_TOKENS = 16_384
SAVE_EVERY = 20.0  # seconds between checkpoints
PROMPTS = ("def ", "class ", "import ")
SAMPLE_TOKENS = 96


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; a user's mistake or a failing disk is one sentence and status 2, Ctrl-C is status 130."""
    parser = argparse.ArgumentParser(prog="nox -s demo --", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--corpus", nargs="+", type=Path, metavar="FILE", help="text to learn from (the standard library)"
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="time for all of it (%(default)g)")
    parser.add_argument("--vocab-size", type=int, default=preset()[0].vocab_size, help="tokens (%(default)d)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the order of the data (%(default)d)")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="the run's folder (%(default)s)")
    options = parser.parse_args(arguments)
    again = "The same command goes on from there."
    try:
        Demo(options).run()
    except (Stopped, KeyboardInterrupt):
        print(f"\nStopped; what is done is kept in {options.out}. {again}", file=sys.stderr)
        return 130
    except (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        print(f"\ndemo: {sentence(error)}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"\ndemo: {sentence(error)}. Nothing is half-written. {again}", file=sys.stderr)
        return 2
    return 0


def preset() -> tuple[ModelConfig, TrainConfig]:
    """lm's preset cpu-demo: what docs/design/performance/lm.md found to learn most in minutes on two cores."""
    tables = read_toml(str(importlib.resources.files("lm") / "presets" / "cpu-demo.toml"))
    return from_table(ModelConfig, tables["model"], "model"), from_table(TrainConfig, tables["train"], "train")


def sentence(error: Exception) -> str:
    """An error as a person would say it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


class Demo:
    """The stages, in their order; what one leaves for the next lies in the folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        if not 0 < options.minutes < math.inf:
            raise ValueError(f"--minutes is {options.minutes}; it takes a number above 0")
        self.options = options
        self.folder: Path = options.out
        self.figures: dict[str, Any] = {}

    def run(self) -> None:
        self.split_corpus()
        self.train_tokenizer()
        self.encode()
        self.compress()
        self.resident = reset_peak_memory()
        self.plan()
        self.train_model()
        self.score()
        self.write_samples()
        page = demo_page.write(self.results())
        ours = self.figures["score"]["bits_per_byte"]
        alone = {name: value for name, value in self.figures["compressed"].items() if name != corpus.TOGETHER}
        beats = "beats" if ours < min(alone.values()) else "does not beat"
        rivals = ", ".join(f"{name} {value:.3f}" for name, value in alone.items())
        course = os.path.relpath(Path(__file__).parent.parent / "docs/course", self.folder)
        model_page = to_page(
            self.folder,
            self.folder / "model.html",
            tokenizer=self.folder / "tokenizer.json",
            title="The model that the demo trained",
            course=f"{course}/{{}}.md",
        )
        print(f"\nThe page to look at: {page}")
        print(f"The model, to type to: {model_page}")
        print(f"Held-out text, bits per byte: this model {ours:.3f}; {rivals}, a document at a time: it {beats} both.")
        print(f"{corpus.TOGETHER}: {self.figures['compressed'][corpus.TOGETHER]:.3f}. No weights are counted.")

    def results(self) -> demo_page.Results:
        """The contents of the page."""
        return demo_page.Results(
            folder=self.folder,
            corpus=str(self.request["corpus"]),
            documents=self.documents,
            tokenizer=self.tokenizer,
            tokenizer_seconds=self.figures["tokenizer_seconds"],
            train_tokens=self.train_tokens,
            heldout_tokens=self.heldout_tokens,
            budget=self.budget,
            threads=self.figures["plan"]["threads"],
            planned_steps=self.figures["plan"].get("planned_steps"),
            trained=self.figures["trained"],
            score=self.figures["score"],
            sampled_tokens=min(EVAL_TOKENS, len(self.heldout_tokens)),
            compressed=self.figures["compressed"],
            samples=self.samples,
        )

    # Text

    def split_corpus(self) -> None:
        """Split the documents into train.txt and heldout.txt; write the options to demo.json."""
        options = self.options
        documents = corpus.files(options.corpus) if options.corpus else corpus.standard_library()
        self.documents = corpus.split(documents)
        named = {"train": corpus.joined(self.documents.train), "heldout": corpus.joined(self.documents.heldout)}
        request = {
            "corpus": [str(path) for path in options.corpus] if options.corpus else f"the library of Python {python()}",
            "sha256": {name: hashlib.sha256(text).hexdigest() for name, text in named.items()},
            "minutes": options.minutes,
            "vocab_size": options.vocab_size,
            "seed": options.seed,
        }
        earlier = self.read_figures("demo.json")
        if earlier is not None and earlier != request:
            changed = ", ".join(key for key in request if earlier.get(key) != request[key])
            raise ValueError(
                f"{self.folder} holds a run with another {changed}: give --out another folder, or remove this one"
            )
        self.request = request
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, text in named.items():
            path = self.folder / f"{name}.txt"
            if not path.exists() or path.stat().st_size != len(text):
                write_atomically(path, text)
        self.write_figures("demo.json", request)
        sizes = {name: len(text) for name, text in named.items()}
        print(
            f"\nCorpus: {request['corpus']}: {len(self.documents.train):,} documents, "
            f"{sizes['train'] / 1e6:.1f} MB to learn; {len(self.documents.heldout):,} documents, "
            f"{sizes['heldout'] / 1e6:.1f} MB held out"
        )

    # Text to tokens

    def train_tokenizer(self) -> None:
        path = self.folder / "tokenizer.json"
        if not path.exists():
            begun = time.perf_counter()
            try:
                tokenizer = bpe.train(self.folder / "train.txt", self.options.vocab_size, progress=True)
            except ValueError:
                self.leave_nothing()
                raise
            self.write_figures("tokenizer_time.json", {"seconds": time.perf_counter() - begun})
            tokenizer.save(path)
        self.tokenizer = bpe.Tokenizer.load(path)
        seconds = (self.read_figures("tokenizer_time.json") or {}).get("seconds", math.nan)
        self.figures["tokenizer_seconds"] = seconds
        megabytes = (self.folder / "train.txt").stat().st_size / 1e6
        print(
            f"Tokenizer: {self.tokenizer.vocab_size:,} tokens from {megabytes:.1f} MB in {seconds:.2f} s "
            f"({megabytes / seconds:.0f} MB/s)"
        )

    def encode(self) -> None:
        for name in ("train", "heldout"):
            path = self.folder / f"{name}.npy"
            if not path.exists() or not path.with_suffix(".json").exists():
                begun = time.perf_counter()
                self.tokenizer.encode_file(self.folder / f"{name}.txt", path, progress=True)
                self.figures[f"encode_{name}_seconds"] = time.perf_counter() - begun
        self.train_tokens, self.heldout_tokens = (self.tokens(name) for name in ("train", "heldout"))
        longest = [token.decode(errors="replace") for _, token in demo_page.longest_words(self.tokenizer, 6)]
        print(
            f"Tokens: {len(self.train_tokens):,} to learn, {len(self.heldout_tokens):,} held out, "
            f"{self.heldout_tokens.bytes_per_token:.3f} bytes a token there; the longest, runs of one character aside: "
            + ", ".join(map(repr, longest))
        )

    def tokens(self, name: str) -> Tokens:
        """A token file. The bytes it speaks for are those of the documents, without the separators between them."""
        path = self.folder / f"{name}.npy"
        documents = getattr(self.documents, name)
        size = sum(len(document.text) for document in documents)
        tokens = open_tokens(path)
        if tokens.bytes != size:
            tokens = describe(
                path, tokenizer=self.tokenizer.fingerprint, text_bytes=size, end_of_text=self.tokenizer.eot_token
            )
        return tokens

    def compress(self) -> None:
        """Measure well-known compressors on the held-out documents."""
        bits = self.read_figures("compressed.json")
        if bits is None or corpus.TOGETHER not in bits:
            bits = corpus.compressed_bits_per_byte(self.documents.heldout)
            self.write_figures("compressed.json", bits)
        self.figures["compressed"] = bits

    # The budget

    def plan(self) -> None:
        """Measure the number of steps that fit into the remaining time, and count their cost."""
        model, train = preset()
        self.model_config = dataclasses.replace(model, vocab_size=self.tokenizer.n_vocab)
        plan = self.read_figures("plan.json")
        if plan is None:
            plan = self.measure(train)
            self.write_figures("plan.json", plan)
        self.figures["plan"] = plan
        self.set_schedule(plan)
        print(
            f"\nBudget: {model.num_layers} layers of width {model.d_model}, a context of {model.context_length} tokens"
        )
        print("\n".join(self.budget.lines()))

    def set_schedule(self, plan: dict[str, Any]) -> None:
        """Configure and price the training of a plan; a shortened one keeps the warm-up of the first."""
        _, train = preset()
        first = plan.get("planned_steps", plan["steps"])
        self.train_config = dataclasses.replace(
            train,
            steps=plan["steps"],
            warmup_steps=min(train.warmup_steps, first // 10),
            schedule="linear",
            decay_steps=plan.get("decay_steps", max(1, round(DECAY * first))),
            log_every=max(1, first // 1000),
            eval_every=-(-first // EVALUATIONS),
            eval_tokens=EVAL_TOKENS,
            checkpoint_every=max(1, round(SAVE_EVERY / plan["seconds_per_step"])),
            threads=plan["threads"],
            seed=self.options.seed,
        )
        scoring = EVALUATIONS * EVAL_TOKENS * plan["seconds_per_scored_token"]
        self.budget = Budget(self.model_config, self.train_config, plan["seconds_per_step"], scoring)

    def measure(self, config: TrainConfig) -> dict[str, Any]:
        """Real steps and real scoring, timed on this machine now."""
        rounds = 5
        paces = [measure_step(self.model_config, config, progress=True) for _ in range(rounds)]
        pace = sorted(paces)[rounds // 2]
        begun = time.perf_counter()
        score = lm.evaluate(
            lm.Transformer(self.model_config), self.heldout_tokens, stride=self.stride, max_tokens=20_000
        )
        scoring = (time.perf_counter() - begun) / score.tokens
        remaining = 60 * self.options.minutes - (time.monotonic() - BEGAN)
        remaining -= min(RESERVE, 0.1 * remaining) + scoring * (len(self.heldout_tokens) + EVALUATIONS * EVAL_TOKENS)
        return {
            "seconds_per_step": pace,
            "seconds_per_scored_token": scoring,
            "steps": max(FEWEST_STEPS, int((1 - MARGIN) * remaining / pace)),
            "seconds": remaining + EVALUATIONS * EVAL_TOKENS * scoring,
            "threads": torch.get_num_threads(),
        }

    def shorten(self, watch: Watch) -> None:
        """Train by the schedule that still fits, and say so."""
        assert watch.shorter is not None
        plan = self.figures["plan"]
        plan = self.figures["plan"] = {"planned_steps": plan["steps"], **plan, **watch.shorter}
        self.write_figures("plan.json", plan)
        before, measured = self.train_config.steps, plan["seconds_per_step"]
        print(
            f"\nThe machine has slowed down: {watch.pace * 1e3:.0f} ms a step, {measured * 1e3:.0f} ms when measured. "
            f"The schedule is shortened from {before:,} to {plan['steps']:,} steps.",
            file=sys.stderr,
        )
        self.set_schedule(plan)

    @property
    def stride(self) -> int:
        """Tokens by which the window moves in scoring the held-out text."""
        return max(1, self.model_config.context_length // SCORE_STRIDE)

    # Learning

    def train_model(self) -> None:
        print()
        data = {name: self.folder / f"{name}.npy" for name in ("train", "heldout")}
        while True:
            watch = Watch(self.figures["plan"]["seconds"], self.train_config)
            try:
                result = lm.train(self.model_config, self.train_config, data, self.folder, on_step=watch)
                break
            except Stopped:
                if watch.shorter is None:
                    raise
                self.shorten(watch)
        if self.read_figures("trained.json") is None:
            peak = peak_memory()
            measured = {
                "seconds": result.seconds,
                "memory": peak - self.resident if peak is not None and self.resident is not None else None,
                "parameters": sum(parameter.numel() for parameter in result.model.parameters()),
            }
            self.write_figures("trained.json", measured)
        self.figures["trained"] = self.read_figures("trained.json")
        self.model = result.model

    def score(self) -> None:
        """The whole held-out text, every token once."""
        figures = self.read_figures("score.json")
        if figures is None:
            print("\nScoring all of the held-out text")
            score = lm.evaluate(self.model, self.heldout_tokens, stride=self.stride, progress=True)
            figures = {"bits_per_byte": score.bits_per_byte, "loss": score.loss, "tokens": score.tokens}
            self.write_figures("score.json", figures)
        self.figures["score"] = figures

    # Writing

    def write_samples(self) -> None:
        self.samples: list[tuple[str, str]] = []
        for seed, prompt in enumerate(PROMPTS):
            print(f"\n\033[1m{prompt}\033[0m" if sys.stdout.isatty() else f"\n{prompt}", end="", flush=True)
            continuation = ""
            for text in self.complete(prompt, seed):
                print(text, end="", flush=True)
                continuation += text
            print()
            self.samples.append((prompt, continuation))

    def complete(self, prompt: str, seed: int) -> Iterator[str]:
        """Yield the continuation of a prompt, whole characters as they come.

        A blank that ends the prompt belongs to the token after it, so the first token is chosen among those that begin
        with one.
        """
        stem = prompt.rstrip(" ")
        ids = [self.tokenizer.eot_token, *self.tokenizer.encode(stem)]
        settings: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95}
        stream = self.tokenizer.decode_stream()
        if stem != prompt:
            with torch.inference_mode():
                logits = self.model(torch.tensor([ids]))[0, -1]
            vocab = self.tokenizer.vocab
            fits = torch.tensor([vocab[i][:1] == b" " and len(vocab[i]) > 1 for i in range(len(logits))])
            generator = torch.Generator().manual_seed(seed)
            ids.append(Sampling(**settings).choose(logits.masked_fill(~fits, -math.inf), generator=generator))
            yield stream.step(ids[-1])[1:]
        stop = [self.tokenizer.eot_token]
        for number in lm.stream(self.model, ids, max_new_tokens=SAMPLE_TOKENS, seed=seed, stop_tokens=stop, **settings):
            yield stream.step(number)
        yield stream.finish()

    # The folder

    def leave_nothing(self) -> None:
        """Take back what was written for a run that cannot begin, so that the next try may ask for something else."""
        for name in ("train.txt", "heldout.txt", "demo.json"):
            (self.folder / name).unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def read_figures(self, name: str) -> Any:
        """The figures of a file that write_figures() wrote, or None."""
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else None

    def write_figures(self, name: str, value: Any) -> None:
        """Write a small file of figures, whole."""
        write_atomically(self.folder / name, (json.dumps(value, indent=1) + "\n").encode())


def reset_peak_memory() -> int | None:
    """Start measuring the peak of this process's memory; the bytes resident now, or None where Linux's /proc is not."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at the present size (proc(5))
    except OSError:
        return None
    return peak_memory()


def peak_memory() -> int | None:
    """Return the most bytes resident since reset_peak_memory()."""
    try:
        match = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def python() -> str:
    """The version of the running Python."""
    return ".".join(map(str, sys.version_info[:3]))


if __name__ == "__main__":
    sys.exit(main())
