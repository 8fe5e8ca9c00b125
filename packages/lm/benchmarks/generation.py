"""Tokens a second of generation: this package beside transformers on the same weights, taking turns; prompt and rest
apart.

python benchmarks/generation.py [--rounds 7] [--threads 2] [--run RUN --data heldout.npy]
    [--readme docs/design/performance/lm.md]

The weights are random, in the shape of the 5.3-million-parameter model that the figures of transformers elsewhere are
for, or those of --run. With --data, what int8 weights cost in bits per byte is said too. --readme writes the table into
its region.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from lm import to_huggingface
from lm.config import ModelConfig
from lm.data import open_tokens
from lm.generation.sampling import Sampling
from lm.generation.scheduler import Scheduler
from lm.interop.loading import load
from lm.model import Transformer
from lm.ops.cpu import build as building
from lm.ops.cpu.int8 import quantized
from lm.training.validation import evaluate

CONFIG = ModelConfig(4096, 256, 4, 256, 4, 704)
BEGIN, END = "<!-- generation -->", "<!-- end of generation -->"

Measured = tuple[list[int], float, float]  # tokens, seconds of the prompt and its first token, seconds a token after it


def ours(model: Transformer, *, native: bool | None = None) -> Callable[[list[int], int], Measured]:
    def measure(prompt: list[int], count: int) -> Measured:
        began = time.perf_counter()
        batch = Scheduler(model, rows=1, native=native)
        text = batch.add(prompt, max_new_tokens=count, sampling=Sampling(temperature=0))
        batch.step()
        first = time.perf_counter() - began
        while batch.sequences:
            batch.step()
        return text.tokens, first, (time.perf_counter() - began - first) / (count - 1)

    return measure


def theirs(folder: Path) -> Callable[[list[int], int], Measured]:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()

    def generate(ids: Tensor, count: int) -> tuple[list[int], float]:
        began = time.perf_counter()
        tokens = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
        return tokens[0, ids.shape[1] :].tolist(), time.perf_counter() - began

    def measure(prompt: list[int], count: int) -> Measured:
        ids = torch.tensor([prompt])
        _, first = generate(ids, 1)
        tokens, whole = generate(ids, count)
        return tokens, first, (whole - first) / (count - 1)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--run", help="a run, or another model, instead of random weights")
    parser.add_argument("--data", help="a token file: what int8 weights cost on it")
    parser.add_argument("--readme", help="a file to write the table into, between its marks")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    busy = os.getloadavg()[0]
    logging.disable()
    torch.manual_seed(0)
    model = load(options.run) if options.run else Transformer(CONFIG).eval()
    context = model.config.context_length
    prompt = torch.randint(model.config.vocab_size, (context // 8,)).tolist()
    count = min(200, context - len(prompt))
    small = quantized(model)
    with tempfile.TemporaryDirectory() as folder:
        programs = {
            "lm": ours(model),
            "lm, steps in PyTorch": ours(model, native=False),
            "transformers": theirs(to_huggingface(model, Path(folder) / "model")),
            "lm, int8 weights": ours(small),
        }
        seen: dict[str, list[Measured]] = {name: [] for name in programs}
        for turn in range(options.rounds + 1):
            for name, program in programs.items():
                measured = program(prompt, count)
                if turn:  # the first warms up
                    seen[name].append(measured)
    first = {name: statistics.median(m[1] for m in runs) for name, runs in seen.items()}
    pace = {name: statistics.median(m[2] for m in runs) for name, runs in seen.items()}
    parameters = sum(p.numel() for p in model.parameters())
    lines = [
        f"{parameters / 1e6:.1f} million parameters, greedy, batch 1, a prompt of {len(prompt)} tokens and {count} "
        f"after it; torch {torch.__version__}, transformers {sys.modules['transformers'].__version__}, "
        f"{options.threads} threads of {processor()}, at a load of {busy:.1f} when it began; medians of "
        f"{options.rounds} rounds in turn.",
        "",
        "| | prompt and first token, ms | tokens/s after it | times transformers |",
        "|---|---|---|---|",
    ]
    for name in programs:
        ratio = statistics.median(t[2] / o[2] for t, o in zip(seen["transformers"], seen[name], strict=True))
        lines.append(f"| {name} | {1e3 * first[name]:.1f} | {1 / pace[name]:,.0f} | {ratio:.1f} |")
    lines += ["", f"Steps of lm are {Scheduler(model).decoder.how}."]
    if compiler := shutil.which(building.compiler()):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            building.compile_to(Path(folder, "step.so"), compiler, "float", building.source("forward"), "-march=native")
            lines[-1] += f" Compiling them took {time.perf_counter() - began:.1f} s, once on a machine."
    same = seen["lm"][0][0] == seen["transformers"][0][0]
    lines += ["", f"lm and transformers wrote {'the same tokens' if same else 'different tokens'}."]
    if options.data:
        tokens = open_tokens(options.data)
        scores = [evaluate(m, tokens, max_tokens=65536).bits_per_byte for m in (model, small)]
        if scores[0] is not None and scores[1] is not None:
            lines.append(
                f"On {Path(options.data).name} int8 weights score {scores[1]:.4f} bits per byte, and float32 "
                f"{scores[0]:.4f}: {scores[1] - scores[0]:+.4f}."
            )
    print("\n".join(lines))
    if options.readme:
        path = Path(options.readme)
        text, times = re.subn(f"(?s){BEGIN}.*{END}", "\n".join([BEGIN, *lines, END]), path.read_text())
        if not times:
            parser.error(f"{path} has no region between {BEGIN} and {END}")
        path.write_text(text)


def processor() -> str:
    """The machine's name for its processor."""
    try:
        match = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
