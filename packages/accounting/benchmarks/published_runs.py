"""step_time() beside published training runs: the table of docs/design/cluster-plans.md and the range of every plan.

python packages/accounting/benchmarks/published_runs.py [--fit | --write | --check]

published_runs.csv holds one run a row: layout, batch and published rate, each read in its source (SOURCES). Of an
untuned and a tuned number for one layout the tuned one is there. The rule for holding out does not look at rates: a
run whose SHA-256 of model, device, layout and framework is a multiple of HELD_OUT is never fitted. Rows that are left
out are shown, and neither fitted nor counted: those "not re-read" are from an earlier table, whose papers could not be
read again; those "untuned" have a reason on the page. --fit prints the constants of step_time.py that the other runs
give; --write makes the table, planning/runs.csv and planning/accuracy.csv; --check fails where they are not up to date.
"""

from __future__ import annotations

import csv
import hashlib
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from accounting import SHAPES, ByteRate, Layout, Policy, TransformerShape, parameters, training_flops
from accounting.hardware.devices import Device, device
from accounting.hardware.interconnect import Interconnect, interconnect
from accounting.layer import Attention, FeedForward, LatentAttention, Layer
from accounting.planning import step_time as constants
from accounting.planning.accuracy import PublishedRun, nearest
from accounting.planning.step_time import StepTime, step_time

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs/design/cluster-plans.md"
SUMMARIES = tuple(HERE.parent / "src/accounting/planning" / name for name in ("runs.csv", "accuracy.csv"))
START, END = "<!-- published runs -->", "<!-- end of published runs -->"
KEY = ("model", "device", "devices", "tensor", "pipeline", "virtual stages", "context", "expert", "zero")
KEY += ("sequence parallel", "micro-batch", "batch", "length", "precision", "framework")
# constants that the runs fit, all together
FITTED = ("FLASH2", "FLASH3", "PASSES", "HIDDEN", "FP8", "EXPERT_PASSES", "EXPERT_WIDTH")
UNITS = {"tokens/s/device": "tok/s", "hardware": "TFLOP/s with recomputation", "model": "TFLOP/s"}
UNITS["half"] = "TFLOP/s by half of the pairs"
HELD_OUT = 3  # of so many runs one is never fitted
# kernels of attention by framework, where it is not the fastest of the device
KERNELS = dict.fromkeys(("llm-foundry", "torchtitan", "KempnerForge"), "flash2")

SOURCES = {
    "megatron-2021": ("Narayanan et al. 2021, tables 1 and 2", "https://arxiv.org/abs/2104.04473"),
    "megatron-2022": ("Korthikanti et al. 2022, table 5", "https://arxiv.org/abs/2205.05198"),
    "palm": ("Chowdhery et al. 2022, table 3", "https://arxiv.org/abs/2204.02311"),
    "llama-3": ("Llama Team 2024, table 4", "https://arxiv.org/abs/2407.21783"),
    "llm-foundry": (
        "MosaicML llm-foundry, scripts/train/benchmarking, July 2025",
        "https://github.com/mosaicml/llm-foundry/blob/main/scripts/train/benchmarking/README.md",
    ),
    "torchtitan-2024": (
        "torchtitan, docs/performance.md, 2024",
        "https://github.com/pytorch/torchtitan/blob/041336434916bdc0f88c1f89fda176fd3c2092e4/docs/performance.md",
    ),
    "torchtitan-h100": (
        "torchtitan, benchmarks/llama3_h100_202412, December 2024",
        "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md",
    ),
    "torchtitan-async": (
        "torchtitan, benchmarks/asyncTP_llama3_h100, vanilla tensor parallelism, June 2025",
        "https://github.com/pytorch/torchtitan/blob/main/benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md",
    ),
    "kempner": (
        "KempnerForge, benchmarks/mfu_scaling, April 2026",
        "https://github.com/KempnerInstitute/KempnerForge/blob/main/benchmarks/mfu_scaling/mfu_scaling.md",
    ),
    "automodel": (
        "NVIDIA NeMo AutoModel, docs/performance-summary, August 2026",
        "https://github.com/NVIDIA-NeMo/Automodel/blob/main/docs/performance-summary.mdx",
    ),
    "megatron-bridge-26.04": (
        "NVIDIA Megatron-Bridge, performance summary archive, container 26.04.01",
        "https://docs.nvidia.com/nemo/megatron-bridge/latest/performance-summary-archive.html",
    ),
    "megatron-bridge-25.11": (
        "NVIDIA Megatron-Bridge, performance summary archive, container 25.11",
        "https://docs.nvidia.com/nemo/megatron-bridge/latest/performance-summary-archive.html",
    ),
    **{
        f"dgxc-{release}": (
            f"NVIDIA dgxc-benchmarking, READMEs of release {release}",
            f"https://github.com/NVIDIA/dgxc-benchmarking/tree/v{release.replace('24.11', '24.11.1')}",
        )
        for release in ("24.11", "25.04", "25.05")
    },
    "megatron-moe": (
        "Megatron-LM, megatron/core/transformer/moe/README, MCore v0.9",
        "https://github.com/NVIDIA/Megatron-LM/blob/core_r0.9.0/megatron/core/transformer/moe/README.md",
    ),
    "megatron-model-zoo": (
        "Megatron-MoE-ModelZoo, best_practice/qwen3, forced balance",
        "https://github.com/yanring/Megatron-MoE-ModelZoo/tree/main/best_practice/qwen3",
    ),
    "megatron-bridge-26.04.00": (
        "NVIDIA Megatron-Bridge, performance summary archive, container 26.04",
        "https://docs.nvidia.com/nemo/megatron-bridge/latest/performance-summary-archive.html",
    ),
    "maxtext-v4": (
        "MaxText, configs/tpu/v4, August 2026",
        "https://github.com/AI-Hypercomputer/maxtext/tree/main/src/maxtext/configs/tpu/v4",
    ),
    "maxtext-v5e": (
        "MaxText, configs/tpu/v5e, August 2026",
        "https://github.com/AI-Hypercomputer/maxtext/tree/main/src/maxtext/configs/tpu/v5e",
    ),
    "maxtext-v5p": (
        "MaxText, configs/tpu/v5p, August 2026",
        "https://github.com/AI-Hypercomputer/maxtext/tree/main/src/maxtext/configs/tpu/v5p",
    ),
    "tpu-recipes": (
        "Google tpu-recipes, training/trillium, August 2026",
        "https://github.com/AI-Hypercomputer/tpu-recipes/tree/main/training/trillium",
    ),
}


def _gpt(layers: int, width: int, heads: int, vocabulary: int = 51200) -> TransformerShape:
    return TransformerShape(
        vocabulary,
        2048,
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


def _nemotron(layers: int, width: int, heads: int, hidden: int) -> TransformerShape:
    return TransformerShape(256000, 4096, layers, width, heads, hidden, num_kv_heads=8, ffn="relu2", norm="layernorm")


def _maxtext(layers: int, width: int, heads: int, hidden: int) -> TransformerShape:
    return TransformerShape(32000, 2048, layers, width, heads, hidden, head_dim=128)


GPT = {"1.7b": (24, 2304, 24), "3.6b": (30, 3072, 32), "7.5b": (36, 4096, 32), "18b": (40, 6144, 48)}
GPT |= {"22b": (48, 6144, 64), "39b": (48, 8192, 64), "76b": (60, 10240, 80), "145b": (80, 12288, 96)}
GPT |= {"175b": (96, 12288, 96), "310b": (96, 16384, 128), "530b": (105, 20480, 128), "1t": (128, 25600, 160)}
MPT = {"1b": (24, 2048, 16), "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40)}
MPT |= {"30b": (48, 7168, 56), "70b": (80, 8192, 64)}
MAXTEXT = {"16b": (32, 4096, 64, 28672), "22b": (48, 6144, 24, 24576), "32b": (32, 8192, 64, 28672)}
MAXTEXT |= {"52b": (32, 12288, 32, 49152), "64b": (64, 8192, 64, 28672), "128b": (64, 8192, 128, 57344)}
MAXTEXT |= {"256b": (64, 16384, 128, 57344), "512b": (128, 16384, 128, 57344)}
MAVERICK = FeedForward(experts=128, experts_per_token=1, shared_d_ff=8192, router="sigmoid_of_input")
KIMI = LatentAttention(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
MODELS = {
    **{f"gpt-{name}": _gpt(*sizes) for name, sizes in GPT.items()},
    **{f"mpt-{name}": _gpt(*sizes, vocabulary=50368) for name, sizes in MPT.items()},
    **{f"maxtext-{name}": _maxtext(*sizes) for name, sizes in MAXTEXT.items()},
    "palm-540b": TransformerShape(
        256000, 2048, 118, 18432, 48, 73728, num_kv_heads=1, head_dim=256, tied_embeddings=True
    ),
    "llama-2-13b": TransformerShape(32000, 4096, 40, 5120, 40, 13824),
    "llama-2-70b": TransformerShape(32000, 4096, 80, 8192, 64, 28672, num_kv_heads=8),
    "llama-3.1-405b": TransformerShape(128256, 8192, 126, 16384, 128, 53248, num_kv_heads=8),
    "kempner-7b": TransformerShape(128256, 4096, 32, 4096, 32, 14336, num_kv_heads=8),
    "kempner-13b": TransformerShape(128256, 4096, 40, 5120, 40, 17920, num_kv_heads=8),
    "qwen3-235b-a22b": TransformerShape(
        151936,
        4096,
        94,
        4096,
        64,
        1536,
        num_kv_heads=4,
        head_dim=128,
        qk_norm=True,
        experts=128,
        experts_per_token=8,
    ),
    "kimi-k2": TransformerShape(
        163840,
        4096,
        61,
        7168,
        64,
        2048,
        leading=(Layer(KIMI, FeedForward(18432)),),
        layers=(Layer(KIMI, FeedForward(experts=384, experts_per_token=8, shared_d_ff=2048, router="sigmoid")),),
    ),
    "llama-3-8b-lora": replace(SHAPES["llama-3-8b"], lora_rank=16),
    "llama-3-70b-lora": replace(SHAPES["llama-3-70b"], lora_rank=16),
    "llama-3.1-405b-8-layers": TransformerShape(128256, 8192, 8, 16384, 128, 53248, num_kv_heads=8),
    "nemotron-4-15b": _nemotron(32, 6144, 48, 24576),
    "nemotron-4-340b": _nemotron(96, 18432, 96, 73728),
    "gpt-5b": _gpt(24, 4096, 32),
    **{
        name: TransformerShape(
            *(131072, 8192, layers, 6144, 48, 32768),
            num_kv_heads=8,
            ffn="geglu",
            tied_embeddings=True,
            post_norm=True,
            experts=8,
            experts_per_token=2,
        )
        for name, layers in (("grok-1", 64), ("grok-1-8-layers", 8), ("grok-1-16-layers", 16))
    },
    "llama-4-maverick": TransformerShape(
        *(202048, 8192, 48, 5120, 40, 8192),
        num_kv_heads=8,
        head_dim=128,
        layers=tuple(
            Layer(
                Attention(8192, chunked=True) if (at + 1) % 4 else Attention(rotated=False),
                MAVERICK if at % 2 else FeedForward(16384),
            )
            for at in range(4)
        ),
    ),
}
# H100s of Meta's Grand Teton: HBM2e of 2.4 TB/s, and 500 of 700 W, which nothing here counts
DEVICES = {"h100-500w": replace(device("h100"), bandwidth=ByteRate(2.4e12))}
# runs within one slice never use its network, of which no figure is needed
JOINED = {
    "h100-500w": interconnect("h100"),
    "tpu-v4": Interconnect(3072, ByteRate(100e9), ByteRate(3.125e9), "Jouppi et al. 2023; Chowdhery et al. 2022"),
    "tpu-v5p": Interconnect(6144, ByteRate(600e9), ByteRate(600e9), "Google Cloud documentation, TPU v5p"),
    "kempner": replace(interconnect("h200"), node_size=4),
}


class Run:
    """A published run, of one row of published_runs.csv."""

    def __init__(self, row: dict[str, str]) -> None:
        self.row = row
        whole = {name: int(row[name]) for name in KEY if row[name].isdigit()}
        shape = MODELS.get(row["model"]) or SHAPES[row["model"]]
        self.length = whole["length"]
        self.shape = replace(shape, context_length=max(self.length, shape.context_length))
        self.device: Device = DEVICES.get(row["device"]) or device(row["device"])
        joined = JOINED.get(row["source"]) or JOINED.get(row["device"])
        self.joined_by = joined or interconnect(row["device"])
        self.devices, self.batch, self.micro_batch = whole["devices"], whole["batch"], whole["micro-batch"]
        self.virtual_stages = whole["virtual stages"]
        data = self.devices // (whole["tensor"] * whole["pipeline"] * whole["context"])
        self.layout = Layout(
            data,
            whole["tensor"],
            whole["pipeline"],
            whole["zero"],
            row["sequence parallel"] == "yes",
            self.batch // (data * self.micro_batch),
            context=whole["context"],
            expert=whole["expert"],
        )
        self.policy = Policy(
            precision="bf16" if row["precision"] == "bf16" else "fp8",
            attention_kernel=row["attention"],
            activation_checkpointing=row["checkpointing"],
            gradient_dtype=row["gradients"],
        )
        self.kernel = KERNELS.get(row["framework"])
        self.published = float(row["published"])
        self.counted = not row["left out"]
        self.fitted = self.counted and int(self.key, 16) % HELD_OUT > 0
        self.kind = "mixture" if self.shape.most_experts > 1 else "dense"

    @property
    def key(self) -> str:
        """SHA-256 of the run without its rate: decides which runs are held out."""
        return hashlib.sha256("|".join(self.row[name] for name in KEY).encode()).hexdigest()

    def step(self) -> StepTime:
        """The predicted step."""
        return step_time(
            self.shape,
            self.layout,
            self.device,
            self.joined_by,
            self.micro_batch,
            self.length,
            policy=self.policy,
            pairs="full" if self.policy.attention_kernel == "eager" else "causal",
            virtual_stages=self.virtual_stages,
            kernel=self.kernel,
        )

    def rate(self, step: StepTime) -> float:
        """The predicted rate in the unit of the published one: TFLOP/s count all pairs of positions, "half" ones half
        of them, as the sources do, and "hardware" ones what is recomputed too."""
        seconds = float(step.total) * self.devices
        if self.row["unit"].startswith("tokens"):
            return self.batch * self.length / seconds
        recompute = "full" if self.row["unit"].startswith("hardware") else "none"
        pairs = "half" if self.row["unit"].startswith("half") else "full"
        flops = training_flops(self.shape, self.length, self.batch, pairs=pairs, recompute=recompute)
        return int(flops.total) / seconds / 1e12

    def error(self) -> float:
        """Part by which the predicted rate is above the published one."""
        return self.rate(self.step()) / self.published - 1


def runs() -> list[Run]:
    """Every run of the table."""
    with open(HERE / "published_runs.csv", encoding="utf-8", newline="") as file:
        return [Run(row) for row in csv.DictReader(file)]


def beside(run: Run) -> PublishedRun:
    """The run as planning/accuracy.py reads it."""
    active = int(parameters(run.shape, active=True).total)
    name = run.device.name
    took = round(1 + run.error(), 2)  # a rate predicted too high by a part is a time predicted too short by it
    precision, framework, model = (run.row[key] for key in ("precision", "framework", "model"))
    return PublishedRun(run.kind, model, name, run.devices, framework, precision, run.length, active, took, run.fitted)


def summary() -> tuple[str, str]:
    """runs.csv, every counted run beside its prediction; accuracy.csv, errors of the runs that were never fitted."""
    counted = [run for run in runs() if run.counted]
    every = [beside(run) for run in counted]
    names = [field.name for field in fields(PublishedRun)]
    lines = [",".join(names)]
    for one in every:
        values = {name: getattr(one, name) for name in names} | {"fitted": "yes" if one.fitted else "no"}
        lines.append(",".join(str(values[name]) for name in names))
    totals = ["kind,runs,held out,devices,frameworks,median,largest,covered"]
    for kind in ("dense", "mixture"):
        some = [one for one in every if one.kind == kind]
        unseen = [one for one in some if not one.fitted]
        sizes = [abs(one.took - 1) for one in unseen]
        counts = [len(some), len(unseen), len({one.device for one in some}), len({one.framework for one in some})]
        figures = [statistics.median(sizes), max(sizes), sum(map(within(every), unseen)) / len(unseen)]
        totals.append(",".join([kind, *map(str, counts), *(f"{figure:.3f}" for figure in figures)]))
    return "\n".join(lines) + "\n", "\n".join(totals) + "\n"


def within(every: list[PublishedRun]) -> Callable[[PublishedRun], bool]:
    """True if a run lies in the range of its nearest runs, without those of its own model, device and framework."""

    def inside(one: PublishedRun) -> bool:
        own = (one.model, one.device, one.framework)
        near = nearest(one, device(one.device), [run for run in every if (run.model, run.device, run.framework) != own])
        return min(run.took for run in near) <= one.took <= max(run.took for run in near)

    return inside


def table() -> str:
    """The runs as a Markdown table, with the errors below it."""
    lines = [
        "| model | devices | layout | published | predicted | error | most of the rest of the step | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs():
        step, row, layout = run.step(), run.row, run.layout
        parts = {"zero": layout.zero, "tensor": layout.tensor, "context": layout.context, "expert": layout.expert}
        words = [f"{name} {size}" for name, size in (*parts.items(), ("pipeline", layout.pipeline)) if size > 1]
        rest = {name: float(seconds) for name, seconds in step.parts.items() if name != "matmul"}
        most = max(rest, key=rest.__getitem__)
        unit = UNITS[row["unit"].split()[0]]
        precision = "" if row["precision"] == "bf16" else f"; {row['precision']}"
        error = f"{run.rate(step) / run.published - 1:+.0%}"
        lines.append(
            f"| {row['model']} | {run.devices:,} × {row['device']} | {', '.join(words) or 'replicas'}; "
            f"{run.micro_batch} × {run.length:,}; {row['checkpointing']}{precision} | {run.published:,.0f} {unit} | "
            f"{run.rate(step):,.0f} | {error if run.fitted else f'**{error}**' if run.counted else f'*{error}*'} | "
            f"{most} {rest[most] / float(step.total):.0%} | {row['source']} |"
        )
    lines.append("")
    for row in csv.DictReader(summary()[1].splitlines()):
        lines.append(
            f"{row['kind'].capitalize()}: {row['runs']} runs on {row['devices']} kinds of device by "
            f"{row['frameworks']} frameworks. The {row['held out']} that no constant was fitted to: median error "
            f"{float(row['median']):.0%}, largest {float(row['largest']):.0%}; {float(row['covered']):.0%} of them lie "
            "in the range of the runs most like them, without those of their own model, device and framework."
        )
        lines.append("")
    kinds = [(int(row["held out"]), float(row["covered"])) for row in csv.DictReader(summary()[1].splitlines())]
    unseen, inside = sum(count for count, _ in kinds), sum(round(count * part) for count, part in kinds)
    lines += [f"Of all {unseen} that were never fitted {inside} ({inside / unseen:.0%}) lie in their range.", ""]
    lines += [f"- {name}: [{title}]({address})" for name, (title, address) in SOURCES.items()]
    return "\n".join(lines)


def page() -> str:
    """The page with the table as it is now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    return f"{before}{START}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


def fit() -> dict[str, float]:
    """The constants of step_time.py with the least mean square logarithm of predicted over published rate, over the
    fitted runs, by Gauss-Newton steps in the constants' logarithms; they are left set."""
    some = [run for run in runs() if run.fitted]
    logs = {name: math.log(getattr(constants, name)) for name in FITTED}

    def residuals(moved: str = "", by: float = 0.0) -> list[float]:
        for name, value in logs.items():
            setattr(constants, name, math.exp(value + (by if name == moved else 0)))
        return [math.log1p(run.error()) for run in some]

    for _ in range(20):
        here = residuals()
        slopes = [[(b - a) / 1e-4 for a, b in zip(here, residuals(name, 1e-4), strict=True)] for name in logs]
        normal = [
            [math.fsum(map(math.prod, zip(row, other, strict=True))) for other in slopes]
            + [-math.fsum(map(math.prod, zip(row, here, strict=True)))]
            for row in slopes
        ]
        moves = solved(normal)
        for name, move in zip(logs, moves, strict=True):
            logs[name] += max(-0.5, min(0.5, move))
        if max(map(abs, moves)) < 1e-3:
            break
    residuals()
    return {name: math.exp(value) for name, value in logs.items()}


def solved(rows: list[list[float]]) -> list[float]:
    """The solution of linear equations, the right side last in each row, by Gauss-Jordan elimination."""
    for place in range(len(rows)):
        best = max(range(place, len(rows)), key=lambda row: abs(rows[row][place]))
        rows[place], rows[best] = rows[best], rows[place]
        rows[place] = [value / rows[place][place] for value in rows[place]]
        for row in range(len(rows)):
            if row != place:
                rows[row] = [a - rows[row][place] * b for a, b in zip(rows[row], rows[place], strict=True)]
    return [row[-1] for row in rows]


if __name__ == "__main__":
    if "--fit" in sys.argv[1:]:
        print(*(f"{name} = {value:.3g}" for name, value in fit().items()), sep="\n")
    elif "--write" in sys.argv[1:]:
        for file, text in zip(SUMMARIES, summary(), strict=True):
            file.write_text(text, encoding="utf-8")
        PAGE.write_text(page(), encoding="utf-8")
    elif "--check" in sys.argv[1:]:
        tables = tuple(file.read_text(encoding="utf-8") for file in SUMMARIES)
        if tables != summary() or PAGE.read_text(encoding="utf-8") != page():
            sys.exit("runs.csv, accuracy.csv or cluster-plans.md is not up to date: run published_runs.py --write")
    else:
        print(table())
