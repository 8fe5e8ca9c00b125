"""The budget against a GPU: the predicted peak of a training step beside torch's max_memory_allocated(), shape by
shape.

    python tools/gpu_memory.py [--page] [--stand-in] [--shape NAME …]

Trains lm's model for three steps in each row, and compares the most bytes of the third, phase by phase, with the
prediction; fails if a peak is off by more than 2%. --page writes the table between the marks of
docs/design/performance/accounting.md. Without CUDA it says so and stops, unless --stand-in lets it measure the tensors
alive on the CPU and replay their lives in the allocator's rules (tools/caching_allocator.py), with shapes small enough
for that.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from caching_allocator import CachingAllocator
from live_bytes import Live
from torch import Tensor

import lm.attention
from accounting import PhaseKind, Policy, TrainingMemory, training_memory
from lm.config import ModelConfig
from lm.loss import CHUNK_BYTES, chunked_cross_entropy, cross_entropy, kernel_on
from lm.model import Transformer
from lm.ops.cpu import fused, products
from lm.optimizer import adamw

PAGE = Path(__file__).parent.parent / "docs" / "design" / "performance" / "accounting.md"
BEGIN, END = "<!-- gpu-memory: begin -->", "<!-- gpu-memory: end -->"
TOLERANCE = 0.02


@dataclasses.dataclass(frozen=True)
class Row:
    """What is trained, and how."""

    name: str
    config: ModelConfig
    batch: int
    length: int
    precision: str = "fp32"
    loss: str = "plain"


def gpt2(layers: int, width: int, heads: int) -> ModelConfig:
    return ModelConfig(
        50257,
        1024,
        layers,
        width,
        heads,
        4 * width,
        ffn="gelu",
        norm="layernorm",
        position="learned",
        tied_embeddings=True,
        bias=True,
    )


SMALL, MEDIUM = ModelConfig(50257, 1024, 12, 768, 12, 3072), ModelConfig(50257, 1024, 24, 1024, 16, 4096)
ON_GPU = (
    Row("gpt2", gpt2(12, 768, 12), 8, 1024),
    Row("gpt2", gpt2(12, 768, 12), 8, 1024, "autocast"),
    Row("gpt2", gpt2(12, 768, 12), 8, 1024, "autocast", "chunked"),
    Row("gpt2-medium", gpt2(24, 1024, 16), 8, 1024, "autocast", "chunked"),
    Row("gpt2-large", gpt2(36, 1280, 20), 4, 1024, "autocast", "chunked"),
    Row("gpt2-swiglu", SMALL, 1, 1024),
    Row("gpt2-swiglu", SMALL, 8, 1024),
    Row("gpt2-swiglu", SMALL, 8, 1024, "fp32", "chunked"),
    Row("gpt2-swiglu", SMALL, 32, 512, "autocast"),
    Row("gpt2-medium-swiglu", MEDIUM, 4, 1024, "autocast", "chunked"),
    Row("grouped", dataclasses.replace(SMALL, num_kv_heads=4), 8, 1024, "autocast", "chunked"),
)
STAND_INS = (
    Row("wide vocabulary", ModelConfig(16000, 128, 2, 256, 4, 1024), 4, 128),
    Row("deep", ModelConfig(512, 256, 8, 256, 4, 1024), 8, 256),
    Row("deep", ModelConfig(512, 256, 8, 256, 4, 1024), 8, 256, "fp32", "chunked"),
    Row("deep", ModelConfig(512, 256, 8, 256, 4, 1024), 8, 256, "autocast", "chunked"),
    Row("GPT-2's kind", dataclasses.replace(gpt2(6, 256, 4), vocab_size=2048, context_length=256), 8, 256),
    Row("few tokens", ModelConfig(4000, 256, 4, 256, 4, 1024), 1, 16),
)


@dataclasses.dataclass(frozen=True)
class Measured:
    """Bytes: the most in forward and loss, in the backward, and in the optimizer's step; what was asked for at the
    peak."""

    forward: int
    backward: int
    step: int
    asked: int | None

    @property
    def peak(self) -> int:
        return max(self.forward, self.backward, self.step)


class Replay(Live):
    """Live tensors of the CPU as blocks of the allocator."""

    def __init__(self) -> None:
        self.allocator = CachingAllocator()
        self.blocks: dict[int, Any] = {}
        super().__init__()

    def made(self, key: int, size: int) -> None:
        self.blocks[key] = self.allocator.allocate(size)

    def gone(self, key: int, size: int) -> None:
        super().gone(key, size)
        self.allocator.free(self.blocks.pop(key))


class OnCuda:
    """torch's own counters, less what its libraries had taken before there was a model."""

    device = "cuda"

    @contextlib.contextmanager
    def watching(self, known: list[Tensor]) -> Iterator[OnCuda]:
        yield self

    def library_bytes(self) -> int:
        """What cuBLAS takes for itself, forward and backward, at its first product in each kind of number."""
        x = torch.randn(64, 64, device=self.device, requires_grad=True)
        for dtype in (torch.float32, torch.bfloat16):
            (x.to(dtype) @ x.to(dtype)).sum().backward()
        x.grad = None
        del x
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    def forget(self) -> None:
        """Gives freed memory back, as a new process has none: blocks of an earlier row are split at other places."""
        torch.cuda.empty_cache()

    def restart(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

    def most(self) -> int:
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    def asked(self) -> int | None:
        found = torch.cuda.memory_stats().get("requested_bytes.all.peak")
        return None if found is None else int(found)


class StandIn:
    """The same from the CPU's tensors and the allocator's rules."""

    device = "cpu"
    replay: Replay

    @contextlib.contextmanager
    def watching(self, known: list[Tensor]) -> Iterator[StandIn]:
        self.replay = Replay()
        for tensor in known:
            self.replay.add(tensor)
        with self.replay:
            yield self

    def library_bytes(self) -> int:
        return 0

    def forget(self) -> None:
        """Nothing: each row has an allocator of its own."""

    def restart(self) -> None:
        self.replay.allocator.most_allocated = self.replay.allocator.allocated
        self.replay.most = self.replay.now

    def most(self) -> int:
        return self.replay.allocator.most_allocated

    def asked(self) -> int | None:
        return self.replay.most


def measure(row: Row, meter: OnCuda | StandIn) -> Measured:
    """Three steps of training; the third is watched, when the optimizer has its state and the allocator its
    segments."""
    torch.manual_seed(0)
    with torch.device(meter.device):
        model = fused.fuse(Transformer(row.config))
        ids, targets = (torch.randint(0, row.config.vocab_size, (row.batch, row.length)) for _ in range(2))
    optimizer = adamw(model, 1e-3)
    marks: list[int] = []
    asked: list[int] = []
    with meter.watching([*model.parameters(), ids, targets]):

        def mark() -> None:
            marks.append(meter.most())
            asked.append(meter.asked() or 0)
            meter.restart()

        for _ in range(3):
            marks.clear()
            asked.clear()
            meter.restart()
            loss = forward(model, ids, targets, row)
            mark()
            loss.backward()  # type: ignore[no-untyped-call]
            mark()
            optimizer.step()
            mark()
            optimizer.zero_grad(set_to_none=True)
            del loss
    return Measured(*marks, asked=max(asked) or None)


def forward(model: Transformer, ids: Tensor, targets: Tensor, row: Row) -> Tensor:
    numbers: Any = contextlib.nullcontext()
    if row.precision == "autocast":
        numbers = torch.autocast(ids.device.type, torch.bfloat16)
    with numbers:
        if row.loss == "plain":
            return cross_entropy(model(ids), targets, reduction="sum")
        hidden, vocab = model.hidden(ids), row.config.vocab_size
        return chunked_cross_entropy(
            hidden, model.head_weight, targets, vocab_size=vocab, reduction="sum", chunk_bytes=CHUNK_BYTES["cuda"]
        )


def predict(row: Row, device: str = "cpu") -> TrainingMemory:
    """device: where it is trained, which decides what computes the loss."""
    products = torch.bfloat16 if row.precision == "autocast" else torch.float32
    return training_memory(
        row.config.shape(),
        row.batch,
        row.length,
        policy=Policy(
            precision=row.precision,
            norm_kernel="normalised",
            loss=row.loss,
            loss_kernel=kernel_on(torch.device(device), products),
            logits_chunk_bytes=CHUNK_BYTES["cuda"],
            allocator="cuda",
        ),
    )


def phases(memory: TrainingMemory) -> tuple[int, int, int]:
    """Predicted bytes of what Measured has: forward and loss, backward, step."""
    found = dict.fromkeys(PhaseKind, 0)
    for phase in memory.phases:
        found[phase.kind] = max(found[phase.kind], int(phase.total))
    return found[PhaseKind.FORWARD], found[PhaseKind.BACKWARD], found[PhaseKind.OPTIMIZER_STEP]


def never(*tensors: Tensor) -> bool:
    """What in_full_precision and products.takes say on a GPU."""
    return False


@contextlib.contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """The operations that a GPU gets: the fused kernel, and none of those that are for a CPU alone."""
    with (
        mock.patch.object(lm.attention, "MATMUL_KEYS", 0),
        # no mock, which would keep every x that it is called with
        mock.patch.object(fused, "in_full_precision", never),
        mock.patch.object(products, "takes", never),
    ):
        lm.attention.causal_bias.cache_clear()
        yield


def table(
    rows: tuple[Row, ...], meter: OnCuda | StandIn, say: Callable[[list[str]], None]
) -> tuple[list[str], list[str]]:
    """Lines of Markdown, and what is further off than the tolerance. say: gets all lines so far after each row."""
    library = meter.library_bytes()
    lines = [
        "| shape | batch × positions | numbers | loss | forward | backward | step "
        "| peak, predicted | peak, measured | off |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    wrong = []
    for row in rows:
        gc.collect()
        meter.forget()
        found, expected = measure(row, meter), predict(row, meter.device)
        predicted, measured = int(expected.total), found.peak - library
        off = predicted / measured - 1
        parts = [
            f"{wanted / 1e6:,.1f} / {(got - library) / 1e6:,.1f}"
            for wanted, got in zip(phases(expected), (found.forward, found.backward, found.step), strict=True)
        ]
        lines.append(
            f"| {row.name} | {row.batch} × {row.length:,} | {row.precision} | {row.loss} | {' | '.join(parts)} "
            f"| {predicted / 1e6:,.1f} | {measured / 1e6:,.1f} | {off:+.2%} |"
        )
        say(lines)
        if abs(off) > TOLERANCE:
            wrong.append(
                f"{row.name}, {row.precision}, {row.loss}: {predicted:,} predicted, {measured:,} measured ({off:+.2%})"
            )
    return lines, wrong


def write(lines: list[str], caption: str) -> None:
    """Puts the table between the marks of the page."""
    words = PAGE.read_text(encoding="utf-8")
    before, _, rest = words.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([before + BEGIN, caption, "", *lines, END + after]), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "--page", action="store_true", help="write the table into docs/design/performance/accounting.md"
    )
    options.add_argument("--stand-in", action="store_true", help="on the CPU, with the allocator's rules replayed")
    options.add_argument("--shape", action="append", help="only rows of this name")
    chosen = options.parse_args(arguments)
    if not chosen.stand_in and not torch.cuda.is_available():
        print("gpu_memory: there is no CUDA device here: --stand-in replays the allocator on the CPU", file=sys.stderr)
        return 2
    rows = tuple(
        row for row in (STAND_INS if chosen.stand_in else ON_GPU) if not chosen.shape or row.name in chosen.shape
    )
    if not rows:
        print(f"gpu_memory: no row is called {', '.join(chosen.shape)}", file=sys.stderr)
        return 2
    meter: OnCuda | StandIn = StandIn() if chosen.stand_in else OnCuda()
    where = "the CPU, with the CUDA allocator's rules replayed" if chosen.stand_in else torch.cuda.get_device_name()
    command = f"python tools/gpu_memory.py{' --stand-in' * chosen.stand_in}"
    caption = f"Predicted / measured MB (10^6 bytes) on {where}, torch {torch.__version__}: `{command}`."
    print(caption)

    def say(lines: list[str]) -> None:
        print(lines[-1], flush=True)
        if chosen.page:  # after each row, so that a machine that goes away leaves what was measured
            part = "" if len(lines) == len(rows) + 2 else f" ({len(lines) - 2} of {len(rows)} rows: it was stopped)"
            write(lines, caption.removesuffix(".") + part + ".")

    with as_on_a_gpu() if chosen.stand_in else contextlib.nullcontext():
        _, wrong = table(rows, meter, say)
    for words in wrong:
        print(f"gpu_memory: more than {TOLERANCE:.0%} off: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
