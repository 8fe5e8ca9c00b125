"""The gain of each of the fused twins: training steps with all of them, without each, and with none, taking turns.

python benchmarks/twins.py [--shape step|demo] [--precision fp32|bf16] [--rounds 20] [--threads 1]

CPU time of a step, the lowest of the rounds: other work on the machine only adds to it. A twin that gains no more than
a few per cent is not worth its lines. Shapes: that of benchmarks/step.py, and that of the repository's demo.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from lm.config import ModelConfig, TrainConfig
from lm.device import keep_freed_memory
from lm.model import Attention, Transformer
from lm.ops.cpu import fused, products
from lm.training.trainer import Trainer

SHAPES = {  # and sequences in a batch
    "step": (ModelConfig(4096, 256, 4, 256, 4, 704), 16),
    "demo": (ModelConfig(4096, 64, 4, 128, 4, 344, qk_norm=True), 16),
}
WITHOUT: dict[str, set[type[torch.nn.Module]]] = {
    "all": set(),
    "without attention": {Attention},
    "none": {Attention, torch.nn.Linear},
}


@contextlib.contextmanager
def variant(name: str) -> Iterator[None]:
    """Within it, models are fused without what the name says."""
    remaining = {plain: twin for plain, twin in fused.TWINS.items() if plain not in WITHOUT.get(name, set())}
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(fused, "TWINS", remaining))
        if name == "MKL's products":
            stack.enter_context(mock.patch.object(products, "has_fast_onednn", return_value=False))
        if name == "oneDNN's products":
            stack.enter_context(mock.patch.object(products, "has_fast_onednn", return_value=True))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="step")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    shape, batch_size = SHAPES[options.shape]
    batch: Any = tuple(torch.randint(shape.vocab_size, (2, batch_size, shape.context_length)))
    config = TrainConfig(1000, batch_size=batch_size, device="cpu", precision=options.precision, compile="off")
    libraries = ("MKL's products", "oneDNN's products") if options.precision == "fp32" else ()  # bf16 is oneDNN's
    trainers = {}
    for name in (*WITHOUT, *libraries):
        with variant(name):
            trainers[name] = Trainer(Transformer(shape), config)
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for turn in range(options.rounds + 1):
        for name, trainer in trainers.items():
            with variant(name):
                began = time.process_time()
                trainer.train_step(iter([batch]))
                if turn:
                    times[name].append(time.process_time() - began)
    lowest = {name: min(seconds) for name, seconds in times.items()}
    print("| twins | CPU ms a step | against all |\n|---|---:|---:|")
    for name, seconds in lowest.items():
        print(f"| {name} | {seconds * 1e3:.1f} | {seconds / lowest['all']:.3f} |")
    print(f"\ntorch {torch.__version__}, {options.threads} threads, {options.precision}, ", end="")
    print(f"shape `{options.shape}`, {options.rounds} rounds")


if __name__ == "__main__":
    main()
