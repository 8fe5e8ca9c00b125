"""Matrix products of a training step by both of torch's libraries, taking turns: what lm.ops.cpu.products chooses by.

python benchmarks/products.py [--threads 1] [--rounds 9]

float32, GFLOP/s of CPU time, the best of the rounds: forward, the gradient of what came in, and that of the weight.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from lm.ops.cpu import products

SHAPES = [(1024, 128, 384), (1024, 344, 128), (4096, 256, 768), (4096, 256, 1408), (4096, 704, 256), (1024, 256, 4096)]
Product = Callable[[Tensor, Tensor, Tensor], Tensor]
WAYS: dict[str, tuple[Product, Product]] = {  # of x (rows, in), weight (out, in), grad (rows, out): MKL's, oneDNN's
    "forward": (lambda x, w, g: F.linear(x, w), lambda x, w, g: products.product(x, w)),
    "to input": (lambda x, w, g: g @ w, lambda x, w, g: products.product(g, w.T)),
    "to weight": (lambda x, w, g: g.T @ x, lambda x, w, g: products.weight_gradient(g, x)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| rows, in, out | " + " | ".join(f"{way}: MKL | oneDNN" for way in WAYS) + " |")
    print("|---|" + "---:|" * 2 * len(WAYS))
    for rows, inputs, outputs in SHAPES:
        tensors = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)
        calls = [call for both in WAYS.values() for call in both]
        least = [float("inf")] * len(calls)
        for turn in range(options.rounds + 1):
            for at, call in enumerate(calls):
                began = time.process_time()
                call(*tensors)
                if turn:
                    least[at] = min(least[at], time.process_time() - began)
        rates = (2 * rows * inputs * outputs / seconds / 1e9 for seconds in least)
        print(f"| {rows:,}, {inputs}, {outputs} | " + " | ".join(f"{rate:.0f}" for rate in rates) + " |")
    names = (line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line)
    print(f"\n{next(names, 'unknown processor')}, torch {torch.__version__}, {options.threads} threads; ", end="")
    print(f"chosen here: {'oneDNN' if products.has_fast_onednn() else 'MKL'}")


if __name__ == "__main__":
    main()
