"""The budget against a GPU: the predicted peak of a training step beside torch's max_memory_allocated(), shape by
shape.

    python packages/accounting/benchmarks/gpu_memory.py [--page] [--shape NAME …]

Trains lm's model for three steps in each row and compares the peak of the third step, phase by phase, with the
prediction; fails if a peak is off by more than 2%. --page writes the table between the marks of
docs/design/performance/accounting.md. Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from accounting import PhaseKind, Policy, TrainingMemory, training_memory
from lm.config import ModelConfig
from lm.loss import CHUNK_BYTES, chunked_cross_entropy, cross_entropy, kernel_on
from lm.model import Transformer
from lm.ops.cpu import fused
from lm.optimizer import adamw

PAGE = Path(__file__).resolve().parents[3] / "docs" / "design" / "performance" / "accounting.md"
BEGIN, END = "<!-- gpu-memory: begin -->", "<!-- gpu-memory: end -->"
TOLERANCE = 0.02


@dataclasses.dataclass(frozen=True)
class Row:
    """A model, a batch, and how it is trained."""

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
ROWS = (
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


@dataclasses.dataclass(frozen=True)
class Measured:
    """Peak bytes in forward and loss, in the backward pass, and in the optimizer's step."""

    forward: int
    backward: int
    step: int

    @property
    def peak(self) -> int:
        return max(self.forward, self.backward, self.step)


def library_bytes() -> int:
    """Bytes that cuBLAS allocates for itself at its first matmul, forward and backward, in each dtype."""
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    for dtype in (torch.float32, torch.bfloat16):
        (x.to(dtype) @ x.to(dtype)).sum().backward()
    x.grad = None
    del x
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def peak_since_last_call() -> int:
    """Bytes at the allocator's peak since the last call; starts the next measurement."""
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return peak


def measure(row: Row) -> Measured:
    """Train three steps and measure the third, when the optimizer has its state and the allocator its segments."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = fused.fuse(Transformer(row.config))
        ids, targets = (torch.randint(0, row.config.vocab_size, (row.batch, row.length)) for _ in range(2))
    optimizer = adamw(model, 1e-3)
    peaks: list[int] = []
    for _ in range(3):
        peak_since_last_call()
        loss = forward(model, ids, targets, row)
        peaks = [peak_since_last_call()]
        loss.backward()  # type: ignore[no-untyped-call]
        peaks.append(peak_since_last_call())
        optimizer.step()
        peaks.append(peak_since_last_call())
        optimizer.zero_grad(set_to_none=True)
        del loss
    return Measured(*peaks)


def forward(model: Transformer, ids: Tensor, targets: Tensor, row: Row) -> Tensor:
    with torch.autocast("cuda", torch.bfloat16, enabled=row.precision == "autocast"):
        if row.loss == "plain":
            return cross_entropy(model(ids), targets, reduction="sum")
        hidden, vocab = model.hidden(ids), row.config.vocab_size
        return chunked_cross_entropy(
            hidden, model.head_weight, targets, vocab_size=vocab, reduction="sum", chunk_bytes=CHUNK_BYTES["cuda"]
        )


def predict(row: Row, device: str = "cpu") -> TrainingMemory:
    """Predict the memory of a training step; the device decides which kernel computes the loss."""
    dtype = torch.bfloat16 if row.precision == "autocast" else torch.float32
    return training_memory(
        row.config.shape(),
        row.batch,
        row.length,
        policy=Policy(
            precision=row.precision,
            loss=row.loss,
            loss_kernel=kernel_on(torch.device(device), dtype),
            logits_chunk_bytes=CHUNK_BYTES["cuda"],
            allocator="cuda",
        ),
    )


def phases(memory: TrainingMemory) -> tuple[int, int, int]:
    """Return the predicted peaks in forward and loss, in the backward pass, and in the optimizer's step."""
    peaks = dict.fromkeys(PhaseKind, 0)
    for phase in memory.phases:
        peaks[phase.kind] = max(peaks[phase.kind], int(phase.total))
    return peaks[PhaseKind.FORWARD], peaks[PhaseKind.BACKWARD], peaks[PhaseKind.OPTIMIZER_STEP]


def table(rows: tuple[Row, ...], show: Callable[[list[str]], None]) -> tuple[list[str], list[str]]:
    """Return lines of Markdown, and a sentence for each peak beyond the tolerance.

    show: called with the lines after each row.
    """
    library = library_bytes()
    lines = [
        "| shape | batch × positions | precision | loss | forward | backward | step "
        "| peak, predicted | peak, measured | off |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    wrong = []
    for row in rows:
        gc.collect()
        torch.cuda.empty_cache()  # or blocks of an earlier row would be split at other places than a new process's
        memory, expected = measure(row), predict(row, "cuda")
        predicted, measured = int(expected.total), memory.peak - library
        off = predicted / measured - 1
        parts = [
            f"{expected_bytes / 1e6:,.1f} / {(measured_bytes - library) / 1e6:,.1f}"
            for expected_bytes, measured_bytes in zip(
                phases(expected), (memory.forward, memory.backward, memory.step), strict=True
            )
        ]
        lines.append(
            f"| {row.name} | {row.batch} × {row.length:,} | {row.precision} | {row.loss} | {' | '.join(parts)} "
            f"| {predicted / 1e6:,.1f} | {measured / 1e6:,.1f} | {off:+.2%} |"
        )
        show(lines)
        if abs(off) > TOLERANCE:
            wrong.append(
                f"{row.name}, {row.precision}, {row.loss}: {predicted:,} predicted, {measured:,} measured ({off:+.2%})"
            )
    return lines, wrong


def write(lines: list[str], caption: str) -> None:
    """Write the table between the marks of the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([before + BEGIN, caption, "", *lines, END + after]), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; status 1 where a peak is off by more than the tolerance, 2 for a mistake or no CUDA."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--page", action="store_true", help="write the table into docs/design/performance/accounting.md"
    )
    parser.add_argument("--shape", action="append", help="only rows of this name")
    options = parser.parse_args(arguments)
    rows = tuple(row for row in ROWS if not options.shape or row.name in options.shape)
    if not rows:
        print(f"gpu_memory: no row is called {', '.join(options.shape)}", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("gpu_memory: no CUDA device is available", file=sys.stderr)
        return 2
    command = "python packages/accounting/benchmarks/gpu_memory.py"
    device = torch.cuda.get_device_name()
    caption = f"Predicted / measured MB (10^6 bytes) on {device}, torch {torch.__version__}: `{command}`."
    print(caption)

    def show(lines: list[str]) -> None:
        print(lines[-1], flush=True)
        if options.page:  # after each row, so that an interrupted run leaves the rows it measured
            part = "" if len(lines) == len(rows) + 2 else f" ({len(lines) - 2} of {len(rows)} rows: interrupted)"
            write(lines, caption.removesuffix(".") + part + ".")

    _, wrong = table(rows, show)
    for sentence in wrong:
        print(f"gpu_memory: more than {TOLERANCE:.0%} off: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
