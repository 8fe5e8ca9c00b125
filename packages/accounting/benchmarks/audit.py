"""Our figures beside those of the packages that count too, shape by shape, and why they differ: writes
docs/design/audit.md.

nox -s audit, or in an environment with torch and PACKAGES:
    python packages/accounting/benchmarks/audit.py [--check]

Models are built by transformers from the shapes' own config.json, on the meta device. Every difference is a formula in
our own components, and the page says so only where that formula gives the other's figure to the last digit; else this
program fails.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import os
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
os.environ.update(DS_BUILD_OPS="0", DS_ACCELERATOR="cpu")

import torch  # noqa: E402
import transformers  # noqa: E402
from accelerate.commands.estimate import estimate_training_usage  # noqa: E402
from accelerate.utils import calculate_maximum_sizes  # noqa: E402
from audit_counters import COUNTERS, LENGTH, built, by_llm_analysis, total  # noqa: E402
from torchinfo import summary  # noqa: E402

from accounting import (  # noqa: E402
    SHAPES,
    Policy,
    TransformerShape,
    forward_flops,
    from_huggingface,
    optimizer_state,
    parameters,
    training_memory,
)
from accounting.counting.parameters import tensors  # noqa: E402

PAGE = Path(__file__).resolve().parents[3] / "docs/design/audit.md"
PACKAGES = (
    *("torch", "transformers", "fvcore", "calflops", "deepspeed", "ptflops", "thop", "torchinfo", "llm-analysis"),
    *("accelerate", "bitsandbytes"),
)


def llama(shape: TransformerShape, **more: Any) -> dict[str, Any]:
    """What configurations of Llama's kind have in common."""
    return {
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.context_length,
        "num_hidden_layers": shape.num_layers,
        "hidden_size": shape.d_model,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "intermediate_size": shape.d_ff,
        "tie_word_embeddings": shape.tied_embeddings,
        **more,
    }


def configuration(name: str, shape: TransformerShape) -> Any:
    """The transformers configuration of one of our named shapes."""
    if shape.position == "learned":
        sizes = {"n_embd": shape.d_model, "n_layer": shape.num_layers, "n_head": shape.num_heads}
        return transformers.GPT2Config(vocab_size=shape.vocab_size, n_positions=shape.context_length, **sizes)
    if name.startswith("mixtral"):
        chosen = {"num_local_experts": shape.experts, "num_experts_per_tok": shape.experts_per_token}
        return transformers.MixtralConfig(**llama(shape, sliding_window=None, **chosen))
    if name.startswith("mistral"):
        return transformers.MistralConfig(**llama(shape, sliding_window=shape.sliding_window))
    if name.startswith("qwen2"):
        return transformers.Qwen2Config(**llama(shape))
    if shape.experts and name.startswith("qwen3"):
        chosen = {"num_experts": shape.experts, "num_experts_per_tok": shape.experts_per_token}
        return transformers.Qwen3MoeConfig(**llama(shape, moe_intermediate_size=shape.d_ff, **chosen))
    if name.startswith("qwen3"):
        return transformers.Qwen3Config(**llama(shape))
    if name.startswith("gemma-2-"):
        return transformers.Gemma2Config(**llama(shape, sliding_window=shape.sliding_window))
    if name.startswith("gemma-3-"):
        return transformers.Gemma3TextConfig(**llama(shape, sliding_window=shape.sliding_window))
    if name.startswith("gemma"):
        return transformers.GemmaConfig(**llama(shape))
    return transformers.LlamaConfig(**llama(shape))


# some counters, and all where experts are chosen, want values: these are computed on the CPU
SMALL = {
    "gpt2, 2 × 64": TransformerShape(
        1000, 1024, 2, 64, 4, 256, ffn="gelu", norm="layernorm", position="learned", tied_embeddings=True, bias=True
    ),
    "llama, 2 × 64": TransformerShape(1000, 2048, 2, 64, 4, 172, num_kv_heads=2),
    "qwen2, 2 × 64": TransformerShape(1000, 2048, 2, 64, 4, 172, num_kv_heads=1, qkv_bias=True),
    "mixtral, 2 × 64": TransformerShape(1000, 2048, 2, 64, 4, 96, num_kv_heads=2, experts=4, experts_per_token=2),
}
WANT_VALUES = ("torch FlopCounterMode, fused attention", "deepspeed")


def audited() -> list[str]:
    return [
        "gpt2",
        "gpt2-xl",
        "gpt2-xl-swiglu",
        "tinyllama-1.1b",
        "llama-3-8b",
        "mistral-7b",
        "mixtral-8x7b",
        *SMALL,
    ] + [name for name in SHAPES if name.startswith(("qwen", "gemma"))]


def resolved(shape: TransformerShape) -> tuple[Any, ...]:
    """What two ways of writing a shape have in common."""
    return parameters(shape).terms, forward_flops(shape, LENGTH, pairs="causal").terms, shape.context_length


def one_shape(name: str, problems: list[str]) -> tuple[list[str], list[str]]:
    """Rows for the tables of parameters and of FLOPs."""
    shape = SMALL[name] if name in SMALL else SHAPES[name]
    config = configuration(name, shape)
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        read = from_huggingface(str(Path(folder, "config.json")))
    if resolved(read) != resolved(shape):
        problems.append(f"{name}: its config.json reads as {read}")
    ours = int(parameters(shape).total)
    device = "cpu" if name in SMALL else "meta"
    models = {how: built(config, how, device) for how in (("eager", "sdpa") if name in SMALL else ("eager",))}
    theirs = int(models["eager"].model.num_parameters())
    without = int(models["eager"].model.num_parameters(exclude_embeddings=True))
    count = parameters(shape)
    explained = ours - int(count["embedding"]) - int(count["positions"])
    if theirs != ours or without != explained:
        problems.append(f"{name}: parameters {ours} and {theirs}, without embeddings {explained} and {without}")
    ids = torch.zeros(1, LENGTH, dtype=torch.int64, device=device)
    flops: list[str] = []
    modules = "which experts run is a value"
    if not (shape.experts and device == "meta"):
        seen = int(summary(models["eager"], input_data=[ids], verbose=0, device=device).total_params)
        if seen != ours + (shape.vocab_rows * shape.d_model if shape.tied_embeddings else 0):
            problems.append(f"{name}: torchinfo sees {seen:,} parameters")
        modules = f"{seen:,}"
    rows = [f"| {name} | {ours:,} | {theirs:,} | {without:,} | {modules} |"]
    if shape.experts and device == "meta":  # which expert a token goes to is a value
        return rows, flops
    for counter, (how, counted, formula, _) in COUNTERS.items():
        if device == "meta" and counter in WANT_VALUES:
            continue
        try:
            found = counted(models[how], ids)
        except Exception as error:  # a stranger's program may fail in any way; the page then says how
            flops.append(f"| {name} | {counter} | does not run: {type(error).__name__} | | |")
            problems.append(f"{name}: {counter} fails with {error!r:.300}")
            continue
        mine = 3 * total(shape) if "backward" in counter else total(shape)
        if found != formula(shape):
            problems.append(
                f"{name}: {counter} gives {found:,}, explained is {formula(shape):,}, off by {found - formula(shape):,}"
            )
        flops.append(f"| {name} | {counter} | {found:,} | {mine:,} | {mine - found:+,} |")
    return rows, flops


def from_sizes(problems: list[str]) -> list[str]:
    """llm-analysis' FLOPs, which looks at no model, beside ours; of the shapes that it does not refuse."""
    rows = []
    for name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt2-swiglu", "gpt2-xl-swiglu"):
        shape, found = SHAPES[name], by_llm_analysis(SHAPES[name])
        third = int(forward_flops(shape, LENGTH)["ffn"]) // 3 if shape.gated else 0
        if found != total(shape) - third:
            problems.append(f"llm-analysis, {name}: {found:,}, explained is {total(shape) - third:,}")
        rows.append(f"| {name} | {found:,} | {total(shape):,} | {total(shape) - found:+,} |")
    return rows


def by_accelerate(problems: list[str]) -> list[str]:
    """Bytes that accelerate estimates for training with Adam in fp32, beside ours of the step and of a sequence's
    peak."""
    rows = []
    for name in ("gpt2", "gpt2-xl", "tinyllama-1.1b", "llama-3-8b", "qwen3-0.6b", "gemma-3-1b"):
        shape = SHAPES[name]
        model = built(configuration(name, shape), "eager", "meta").model
        buffers = sum(buffer.nbytes for buffer in model.buffers())
        found = estimate_training_usage(calculate_maximum_sizes(model)[0], "float32")["step"]
        memory = training_memory(shape, 1, LENGTH)
        step = next(int(phase.total) for phase in memory.phases if phase.title == "optimizer step")
        if found != step + 4 * buffers:
            problems.append(f"accelerate, {name}: {found:,} bytes, explained {step + 4 * buffers:,}")
        rows.append(f"| {name} | {found:,} | {step:,} | {4 * buffers:,} | {int(memory.total):,} |")
    return rows


def eight_bits(problems: list[str]) -> list[str]:
    """Bytes of bitsandbytes' state after a step, beside ours."""
    import bitsandbytes

    rows = []
    for name, shape in (
        ("4 × 64", TransformerShape(1000, 128, 4, 64, 4, 172)),
        (
            "2 × 96, biases",
            TransformerShape(777, 100, 2, 96, 4, 384, ffn="gelu", norm="layernorm", position="learned", bias=True),
        ),
    ):
        weights = [torch.nn.Parameter(torch.zeros(size)) for count, size in tensors(shape) for _ in range(count)]
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        optimizer = bitsandbytes.optim.AdamW8bit(weights, lr=1e-3)
        optimizer.step()
        states = {
            value.data_ptr(): value.nbytes
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        }
        ours, theirs = int(optimizer_state(shape, policy=Policy(optimizer="adamw8bit")).total), sum(states.values())
        rows.append(f"| {name} | {theirs:,} | {ours:,} |")
        if ours != theirs:
            problems.append(f"bitsandbytes, {name}: {theirs:,} bytes, ours {ours:,}")
    return rows


def paragraph(words: str) -> str:
    return textwrap.fill(words, 120)


def page(problems: list[str]) -> str:
    counts: list[str] = []
    flops: list[str] = []
    for name in audited():
        print(name, file=sys.stderr)
        rows, more = one_shape(name, problems)
        counts += rows
        flops += more
    versions = ", ".join(f"{name} {importlib.metadata.version(name).partition('+')[0]}" for name in PACKAGES)
    reasons = [f"| {name} | {words} |" for name, (_, _, _, words) in COUNTERS.items()]
    return "\n".join(
        [
            "# Audit",
            "",
            paragraph(
                "Our figures beside those of the packages that count too. Written by `nox -s audit` "
                "(benchmarks/audit.py), which builds every model with transformers from its config.json, "
                "lets each package count it, and fails unless each "
                f"difference is, to the last digit, what its reason says. With {versions}."
            ),
            "",
            "## Parameters",
            "",
            paragraph(
                "transformers' `num_parameters()` is ours. Its `exclude_embeddings=True` leaves out the embedding and "
                "learned positions, and with a tied embedding so the head; a head of its own stays. torchinfo counts a "
                "tied head again."
            ),
            "",
            "| shape | ours | transformers | transformers, without embeddings | torchinfo |",
            "|---|---:|---:|---:|---:|",
            *counts,
            "",
            f"## FLOPs of a forward pass over one sequence of {LENGTH:,}",
            "",
            paragraph(
                "Ours are matrix multiplications, a multiplication and an addition being two, scores over all T² "
                'pairs (`pairs="full"`). Trainer\'s are forward and backward, and stand beside ours of both.'
            ),
            "",
            "| counter | why it differs |",
            "|---|---|",
            *reasons,
            "",
            "| shape | counter | theirs | ours | difference |",
            "|---|---|---:|---:|---:|",
            *flops,
            "",
            "## FLOPs from the sizes alone",
            "",
            paragraph(
                "llm-analysis looks at no model. A feed-forward layer has two matrices in it, so that of SwiGLU's "
                "three one is missing; a d_ff that is no multiple of d_model, as of most Llamas, it refuses."
            ),
            "",
            "| shape | llm-analysis | ours | difference |",
            "|---|---:|---:|---:|",
            *from_sizes(problems),
            "",
            "## Bytes of training in fp32",
            "",
            paragraph(
                "accelerate's `estimate-memory` is four times the weights: what is alive in the optimizer's step, "
                "which is ours of that phase, and four times the buffers (rotary frequencies), which have neither "
                f"gradient nor moments. It has no activations, so that a single sequence of {LENGTH:,} takes more: our "
                "peak, with fused attention."
            ),
            "",
            "| shape | accelerate | ours, in the step | its buffers, four times | ours, at the peak of one sequence |",
            "|---|---:|---:|---:|---:|",
            *by_accelerate(problems),
            "",
            "## Bytes of 8-bit AdamW's state",
            "",
            "bitsandbytes' `AdamW8bit` after a step: the same.",
            "",
            "| shape | bitsandbytes | ours |",
            "|---|---:|---:|",
            *eight_bits(problems),
            "",
        ]
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "--check", action="store_true", help="write nothing, and fail if docs/design/audit.md says otherwise"
    )
    check = options.parse_args().check
    problems: list[str] = []
    words = page(problems)
    if check and PAGE.read_text(encoding="utf-8") != words:
        problems.append("docs/design/audit.md says otherwise: run this without --check")
    elif not check and not problems:
        PAGE.write_text(words, encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
