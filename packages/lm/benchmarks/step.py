"""Whole training steps: this package beside transformers' Llama and a plain PyTorch model of the same shape, taking
turns.

python benchmarks/step.py [--compile] [--precision bf16] [--rounds 10] [--threads 2]
    [--write docs/design/performance/lm.md]

Each runs in a process of its own, as its users run it, and takes one step when it is its turn: forward, backward,
clipping, AdamW, on the same random tokens. Shape: 4 layers of 256, d_ff 704, 4 heads, vocabulary 4,096, context 256,
batch 16, fp32, or in bf16 under autocast. One more process multiplies large matrices in its turn: a step's share of
that rate says how much could still be gained on this processor. Then how long `lm train` takes to its first step.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

VOCAB, CONTEXT, LAYERS, WIDTH, HEADS, HIDDEN, BATCH = 4096, 256, 4, 256, 4, 704, 16
TOKENS = BATCH * CONTEXT
LARGE = 2048  # rows and columns of the matrices of `matmuls`
RATE = "matmul"
MARKS = ("<!-- bench-step: begin -->", "<!-- bench-step: end -->")
Step = Callable[[], float]


def ours(compile: bool, precision: Any) -> Step:
    import torch

    from lm.config import ModelConfig, TrainConfig
    from lm.device import keep_freed_memory
    from lm.model import Transformer
    from lm.training.trainer import Trainer

    keep_freed_memory()
    model = Transformer(ModelConfig(VOCAB, CONTEXT, LAYERS, WIDTH, HEADS, HIDDEN))
    config = TrainConfig(1000, batch_size=BATCH, device="cpu", precision=precision, compile="on" if compile else "off")
    trainer, batch = Trainer(model, config), tuple(torch.randint(VOCAB, (2, BATCH, CONTEXT)))

    def step() -> float:
        return float(trainer.train_step(iter([batch]))["loss"])  # type: ignore[list-item]

    return step


def plainly(model: Any, loss_of: Callable[[Any, Any, Any], Any], compile: bool, precision: str) -> Step:
    """The step that one writes first: torch's own AdamW and clipping."""
    import torch

    called = torch.compile(model) if compile else model
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    inputs, targets = torch.randint(VOCAB, (2, BATCH, CONTEXT))

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(called, inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


def transformers_llama(compile: bool, precision: str) -> Step:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=CONTEXT,
    )
    return plainly(LlamaForCausalLM(config), lambda model, x, y: model(input_ids=x, labels=x).loss, compile, precision)


def plain(compile: bool, precision: str) -> Step:
    """A module for each matrix, sines for rotation, torch's own attention, norm and loss."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
            self.w1, self.w3 = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
            self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            def turn(y: Any) -> Any:
                a, b = y[..., 0::2], y[..., 1::2]
                return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

            y = self.n1(x)
            q, k, v = (w(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for w in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).flatten(2))
            y = self.n2(x)
            return x + self.w2(F.silu(self.w1(y)) * self.w3(y))

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.norm = nn.Embedding(VOCAB, WIDTH), nn.RMSNorm(WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.head = nn.Linear(WIDTH, VOCAB, bias=False)
            head_dim = WIDTH // HEADS
            angles = torch.outer(torch.arange(CONTEXT), 1e4 ** (-torch.arange(0, head_dim, 2) / head_dim))
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

        def forward(self, ids: Any) -> Any:
            x = self.embedding(ids)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return self.head(self.norm(x))

    return plainly(
        Plain(), lambda model, x, y: F.cross_entropy(model(x).flatten(0, 1), y.flatten()), compile, precision
    )


def matmuls(compile: bool, precision: str) -> Step:
    """Multiply square matrices of LARGE rows by torch's choice and by oneDNN's kernels; the seconds of the faster."""
    import torch
    import torch.nn.functional as F

    from lm.ops.cpu import products

    a, b = torch.randn(2, LARGE, LARGE).to({"fp32": torch.float32, "bf16": torch.bfloat16}[precision])

    def step() -> float:
        seconds = []
        for product in (F.linear, products.product):
            began = time.perf_counter()
            product(a, b)
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    return step


MAKERS = {"lm": ours, "transformers' Llama": transformers_llama, "plain PyTorch": plain}


def serve(name: str, compile: bool, precision: str, threads: int, turns: Connection) -> None:
    """Takes a step for each message; says its seconds, and at the end the most memory that the process had, in
    bytes."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    step = (matmuls if name == RATE else MAKERS[name])(compile, precision)
    while turns.recv():
        began, worked = time.perf_counter(), time.process_time()
        value = step()
        turns.send((value if name == RATE else time.perf_counter() - began, time.process_time() - worked))
    turns.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def start(runs: int = 3) -> float:
    """Seconds from `lm train cpu-demo` to its first line of metrics, that of its first step: the median of a few
    starts."""
    import numpy as np

    from lm.data import write_tokens

    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        data.mkdir()
        for name, count in (("train", 200_000), ("heldout", 20_000)):
            ids = np.random.default_rng(0).integers(0, 4096, count)
            write_tokens(data / f"{name}.npy", ids, text_bytes=4 * count, tokenizer="random")
        for run in range(runs):
            out, began = Path(folder, str(run)), time.perf_counter()
            options = ["--data", str(data), "--out", str(out), "--train.log_every", "1"]
            training = subprocess.Popen(
                [sys.executable, "-m", "lm", "train", "cpu-demo", *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            metrics = out / "metrics.jsonl"
            while training.poll() is None and not (metrics.exists() and metrics.stat().st_size):
                time.sleep(0.005)
            seconds.append(time.perf_counter() - began)
            if training.poll() is not None:
                raise SystemExit(f"lm train cpu-demo ended with status {training.returncode} before its first step")
            training.kill()
            training.wait()
    return statistics.median(seconds)


def flops_a_token() -> float:
    from accounting import training_flops
    from lm.config import ModelConfig

    shape = ModelConfig(VOCAB, CONTEXT, LAYERS, WIDTH, HEADS, HIDDEN).shape()
    return int(training_flops(shape, pairs="causal").total) / CONTEXT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="all of them through torch.compile too")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--write", type=Path, help="a file that has the table between two marks, which is renewed")
    options = parser.parse_args()
    several, contenders, cost = multiprocessing.get_context("spawn"), {}, flops_a_token()
    for compile in (False, True) if options.compile else (False,):
        for name in MAKERS if compile else (*MAKERS, RATE):
            here, there = several.Pipe()
            process = several.Process(
                target=serve, args=(name, compile, options.precision, options.threads, there), daemon=True
            )
            process.start()
            contenders[name, compile] = (process, here, [], [])
    for turn in range(options.rounds + 2):
        for _, pipe, times, worked in contenders.values():
            pipe.send(True)
            seconds, cpu = pipe.recv()
            if turn > 1:  # the first two steps allocate, and compile
                times.append(seconds)
                worked.append(cpu)
    lines = [
        "| | ms a step | tokens/s | GFLOP/s | of the matmul rate | CPU ms a step | peak memory | `lm` is faster by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    _, pipe, times, _ = contenders.pop((RATE, False))
    pipe.send(False)
    rate = 2 * LARGE**3 / statistics.median(times)
    for (name, compile), (_, pipe, times, worked) in contenders.items():
        pipe.send(False)
        peak = pipe.recv()
        mine = contenders["lm", compile][2]
        factor = statistics.median(theirs / own for theirs, own in zip(times, mine, strict=True))
        middle, busy = statistics.median(times), statistics.median(worked)
        speed = TOKENS / middle
        lines.append(
            f"| {name}{', compiled' if compile else ''} | {middle * 1e3:,.0f} | {speed:,.0f} | "
            f"{speed * cost / 1e9:,.0f} | {speed * cost / rate:.0%} | {busy * 1e3:,.0f} | {peak / 1e6:,.0f} MB | "
            f"{'' if name == 'lm' else f'{factor:.2f} ×'} |"
        )
    import torch
    import transformers

    lines.append("")
    lines.append(
        f"torch {torch.__version__}, transformers {transformers.__version__}, {options.threads} threads, "
        f"{options.precision}, {options.rounds} rounds in turns, medians; the factor is the median over the rounds. "
        f"Large matrices were multiplied at {rate / 1e9:,.0f} GFLOP/s in the same turns."
    )
    lines.append("")
    lines.append(f"`lm train cpu-demo` writes the line of its first step {start():.1f} s after it is called.")
    table = "\n".join(lines)
    print(table)
    if options.write is not None:
        text = options.write.read_text()
        before, rest = text.split(MARKS[0])
        after = rest.split(MARKS[1])[1]
        options.write.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()
