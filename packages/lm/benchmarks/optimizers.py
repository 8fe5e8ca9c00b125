"""A board of optimizers, and of changes beside them: steps of a tiny model to a held-out loss, over ten seeds.

nox -s bench -- optimizers DATA --out board.jsonl [--only adamw muon …] [--entries FILE.py]
nox -s bench -- optimizers --table board.jsonl

DATA is a folder of token files with held-out text. An entry's learning rate is searched in factors of two, on seeds
that are not the board's. Each line of the file is a run; the same command continues. The rate is constant after the
warm-up, so that the steps to a loss do not depend on where a schedule ends. The table has the mean of the steps over
the seeds, their standard deviation, and the p-value of Welch's test against the first entry.

An entry is an Entry below. FILE.py has a dict ENTRIES of more of them: `from optimizers import Entry`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import runpy
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lm
from lm.config import ModelConfig
from lm.data import Mixture, open_data
from lm.loss import chunked_cross_entropy
from lm.model import Transformer
from lm.optimizer import AVERAGE, Muon, adamw, average_weights, averaged, parameter_groups

MODEL = ModelConfig(1024, context_length=64, num_layers=3, d_model=96, num_heads=3, d_ff=256)  # 0.53 million weights
BATCH = 8  # rows of a step
WARMUP = 20  # steps
STEPS = 400  # at most
EVERY = 20  # steps from one evaluation to the next; the step at which the loss is reached is between them, on a line
TARGET = 3.9  # nats a token
HELDOUT = 8192  # tokens of an evaluation, always the same ones
SEEDS = range(10)
SEARCH_SEEDS = (100, 101)

Make = Callable[[Transformer, float], torch.optim.Optimizer]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row of the board: an optimizer of a model and a rate, and what differs from the plain model and training."""

    make: Make
    rate: float  # where the search begins
    model: dict[str, Any] = dataclasses.field(default_factory=dict)  # settings of ModelConfig
    prepare: Callable[[Transformer], None] | None = None  # changes the weights before the first step
    ema: float = 0.0  # of the weights, whose average is then evaluated
    first_rows: int = BATCH  # rows of the first step; the batch grows to BATCH on a line over the first 200


class Lion(torch.optim.Optimizer):
    """w ← (1 - lr · decay) w - lr · sign(β₁ m + (1 - β₁) g); m ← β₂ m + (1 - β₂) g. (Chen et al. 2023,
    arXiv:2302.06675)"""

    def __init__(self, model: Transformer, lr: float, betas: tuple[float, float] = (0.9, 0.99), decay: float = 0.1):
        self.betas = betas
        super().__init__(parameter_groups(model, lr, decay), {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(torch.sign(m.lerp(p.grad, 1 - self.betas[0])), alpha=group["lr"])
                m.lerp_(p.grad, 1 - self.betas[1])


class ScheduleFree(torch.optim.Optimizer):
    """AdamW whose weights are between z, which a step moves, and the average x of z. (Defazio et al. 2024,
    arXiv:2405.15682, algorithm 1)

    The gradient is taken at y = (1 - β₁) z + β₁ x, the weights of the model in training. x is evaluated: it is the
    AVERAGE of lm.optimizer.averaged.
    """

    def __init__(self, model: Transformer, lr: float, betas: tuple[float, float] = (0.9, 0.99), decay: float = 0.1):
        self.betas, self.steps = betas, 0
        super().__init__(parameter_groups(model, lr, decay), {})
        for group in self.param_groups:
            group["squares"] = 0.0  # of the rates so far

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.steps += 1
        beta1, beta2 = self.betas
        for group in self.param_groups:
            lr = group["lr"]
            group["squares"] += lr * lr
            for p in group["params"]:
                if not (state := self.state[p]):
                    state |= {"z": p.detach().clone(), AVERAGE: p.detach().clone(), "v": torch.zeros_like(p)}
                z, x, v = state["z"], state[AVERAGE], state["v"]
                v.lerp_(p.grad.square(), 1 - beta2)
                z.addcdiv_(p.grad, (v / (1 - beta2**self.steps)).sqrt() + 1e-8, value=-lr)
                z.sub_(p, alpha=lr * group["weight_decay"])
                x.lerp_(z, lr * lr / group["squares"])
                p.copy_(z.lerp(x, beta1))


@torch.no_grad()
def zero_outputs(model: Transformer) -> None:
    """Set the matrices that write to the residual stream to zero, so that each block begins as the identity."""
    for name, parameter in model.named_parameters():
        if name.endswith(("attention.output.weight", "ffn.down.weight")):
            parameter.zero_()


def adamw_rates(model: Transformer, lr: float, embedding: float = 1.0, head: float = 1.0) -> torch.optim.Optimizer:
    """AdamW whose embedding and head learn at these multiples of the rate."""
    return adamw(model, lr, (0.9, 0.99), embedding_lr=embedding * lr, head_lr=head * lr)


ADAMW, NORMUON = partial(adamw, betas=(0.9, 0.99)), partial(Muon, betas=(0.9, 0.99), normalize_rows=True)
ENTRIES = {
    "adamw": Entry(ADAMW, 8e-3),
    "muon": Entry(partial(Muon, betas=(0.9, 0.99)), 8e-3),
    "normuon": Entry(NORMUON, 8e-3),
    "lion": Entry(Lion, 1e-3),
    "schedule-free": Entry(ScheduleFree, 8e-3),
    "adamw, averaged weights": Entry(ADAMW, 8e-3, ema=0.95),
    "adamw, embedding rate x 4": Entry(partial(adamw_rates, embedding=4), 8e-3),
    "adamw, zero outputs": Entry(ADAMW, 8e-3, prepare=zero_outputs),
    "adamw, batch warm-up": Entry(ADAMW, 8e-3, first_rows=2),
    "adamw, window 16": Entry(ADAMW, 8e-3, {"sliding_window": 16}),
    "adamw, qk norm": Entry(ADAMW, 8e-3, {"qk_norm": True}),
    "adamw, value embeddings": Entry(ADAMW, 8e-3, {"value_embeddings": True}),
    "adamw, softcap 15": Entry(ADAMW, 8e-3, {"logit_softcap": 15.0}),
    "adamw, relu2": Entry(ADAMW, 8e-3, {"ffn": "relu2", "d_ff": 384}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--out", type=Path, default=Path("optimizers.jsonl"))
    parser.add_argument("--only", nargs="+", metavar="ENTRY")
    parser.add_argument("--entries", help="a Python file with a dict ENTRIES")
    parser.add_argument("--target", type=float, default=TARGET, help="nats a token")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table:
        return print_table([json.loads(line) for line in options.table.read_text().splitlines()])
    torch.set_num_threads(1)
    entries = ENTRIES | (runpy.run_path(options.entries)["ENTRIES"] if options.entries else {})
    data = open_data(options.data)
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    results = {(line["entry"], line["rate"], line["seed"]): line["steps"] for line in lines}

    def steps_of(name: str, rate: float, seed: int) -> float:
        if (name, rate, seed) not in results:
            began = time.process_time()
            steps = steps_to(options.target, entries[name], rate, seed, data)
            seconds = round(time.process_time() - began, 1)
            line = {"entry": name, "rate": rate, "seed": seed, "steps": steps, "seconds": seconds}
            with options.out.open("a") as file:
                print(json.dumps(line), file=file)
            results[name, rate, seed] = steps
        return results[name, rate, seed]

    for name in options.only or entries:
        rate = best_rate(
            lambda rate, name=name: sum(steps_of(name, rate, seed) for seed in SEARCH_SEEDS), entries[name]
        )
        for seed in SEEDS:
            steps_of(name, rate, seed)


def best_rate(cost: Callable[[float], float], entry: Entry) -> float:
    """The rate that costs least, with both its neighbours in factors of two searched."""
    rate, costs = entry.rate, dict[float, float]()
    while True:
        for near in (rate / 2, rate, rate * 2):
            if near not in costs:
                costs[near] = cost(near)
        if (best := min(costs, key=costs.__getitem__)) == rate:
            return rate
        rate = best


def steps_to(target: float, entry: Entry, rate: float, seed: int, data: Mixture) -> float:
    """The steps after which the held-out loss is at the target, on a line between evaluations; STEPS if it is not."""
    torch.manual_seed(seed)
    model = lm.fuse(Transformer(dataclasses.replace(MODEL, vocab_size=data.highest + 1, **entry.model)))
    if entry.prepare is not None:
        entry.prepare(model)
    optimizer = entry.make(model, rate)
    (heldout,) = data.heldout.values()
    last, last_step = float("inf"), 0
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * group["lr_ratio"] * min(1.0, step / (WARMUP + 1))
        rows = min(BATCH, entry.first_rows + step * (BATCH - entry.first_rows) // 200)
        inputs, targets = data.batch(seed, step - 1, 0, 1, BATCH, MODEL.context_length)
        loss_of(model, inputs[:rows], targets[:rows]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if entry.ema:
            average_weights(optimizer, entry.ema, step)
        if step % EVERY == 0:
            with averaged(optimizer):
                loss = lm.evaluate(model, heldout, max_tokens=HELDOUT).loss
            if loss <= target:
                return round(last_step + (step - last_step) * (last - target) / (last - loss), 1)
            last, last_step = loss, step
    return float(STEPS)


def loss_of(model: Transformer, inputs: Tensor, targets: Tensor) -> Tensor:
    return chunked_cross_entropy(model.hidden(inputs), model.head_weight, targets, softcap=model.config.logit_softcap)


def print_table(lines: list[dict[str, Any]]) -> None:
    from scipy.stats import ttest_ind

    steps, rates, seconds = dict[str, list[float]](), dict[str, float](), dict[str, list[float]]()
    for line in lines:
        if line["seed"] in SEEDS:
            steps.setdefault(line["entry"], []).append(line["steps"])
            seconds.setdefault(line["entry"], []).append(line["seconds"] / line["steps"])
            rates[line["entry"]] = line["rate"]
    base, *_ = steps.values()
    print("| entry | rate | seeds | steps | standard deviation | against the first | p | CPU ms a step |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, own in sorted(steps.items(), key=lambda item: statistics.mean(item[1])):
        mean, ratio = statistics.mean(own), statistics.mean(own) / statistics.mean(base)
        p = "-" if own is base else f"{ttest_ind(own, base, equal_var=False).pvalue:.1g}"
        cells = [name, f"{rates[name]:.2g}", len(own), f"{mean:.0f}", f"{statistics.stdev(own):.0f}", f"{ratio:.2f} ×"]
        print("|", " | ".join(map(str, [*cells, p, f"{1000 * statistics.median(seconds[name]):.0f}"])), "|")


if __name__ == "__main__":
    main()
