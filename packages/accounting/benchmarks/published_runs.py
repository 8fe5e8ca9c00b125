"""step_time() beside published training runs: the table of docs/design/cluster-plans.md.

python packages/accounting/benchmarks/published_runs.py [--write]

Every run's layout, batch and precision are as published; its micro-batch and interleaving are too, where the paper
names them, and else the smallest micro-batch and the interleaving that the paper describes. Rates are published as
model FLOPs (MFU) or with recomputation counted (HFU), and are compared as they were published.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from accounting import ByteRate, Bytes, Device, FLOPRate, Layout, Policy, TransformerShape, training_flops
from accounting.hardware.devices import device
from accounting.hardware.interconnect import Interconnect, interconnect
from accounting.planning.step_time import EFFICIENCY, StepTime, step_time

PAGE = Path(__file__).parents[3] / "docs/design/cluster-plans.md"
START, END = "<!-- published runs -->", "<!-- end of published runs -->"

A100, H100 = device("a100-80gb"), device("h100")
TPU_V4 = Device(
    "tpu-v4",
    {"bf16": FLOPRate(275e12)},
    Bytes(32 * 2**30),
    ByteRate(1228e9),
    "Jouppi et al. 2023, arXiv:2304.01433",
)
# a pod of 4,096 chips in a three-dimensional torus of 50 GB/s links: a ring along one axis sends on two of them
TPU_V4_POD = Interconnect(3072, ByteRate(100e9), ByteRate(3.125e9), "Jouppi et al. 2023; Chowdhery et al. 2022")
UNFUSED = Policy(precision="bf16", attention_kernel="eager", activation_checkpointing="full")
SELECTIVE = Policy(precision="bf16", attention_kernel="eager", activation_checkpointing="selective")
FUSED = Policy(precision="bf16")
REMATERIALISED = Policy(precision="bf16", activation_checkpointing="full")

MEGATRON_2021 = "Narayanan et al. 2021, arXiv:2104.04473, tables 1 and 2"
MEGATRON_2022 = "Korthikanti et al. 2022, arXiv:2205.05198, table 5"
PALM = "Chowdhery et al. 2022, arXiv:2204.02311, table 3"
LLAMA_3 = "Llama Team 2024, arXiv:2407.21783, table 4"


@dataclass(frozen=True)
class Run:
    """A published run.

    Args:
        devices, tensor, pipeline, virtual_stages, batch, micro_batch: the layout, and sequences of a step and a pass.
        utilisation: published part of the dense peak; with_recomputation says whether recomputed FLOPs are in it (HFU).
    """

    name: str
    shape: TransformerShape
    device: Device
    joined_by: Interconnect
    devices: int
    tensor: int
    pipeline: int
    virtual_stages: int
    batch: int
    micro_batch: int
    policy: Policy
    utilisation: float
    with_recomputation: bool
    source: str
    sequence_parallel: bool = False

    @property
    def layout(self) -> Layout:
        data = self.devices // (self.tensor * self.pipeline)
        return Layout(
            data,
            self.tensor,
            self.pipeline,
            1 if data > 1 else 0,
            self.sequence_parallel,
            self.batch // (data * self.micro_batch),
        )

    def predicted(self, efficiency: float = EFFICIENCY) -> tuple[StepTime, float]:
        """The step, and the utilisation that it comes to, counted as the published one is."""
        pairs = "full" if self.policy.attention_kernel == "eager" else "causal"
        step = step_time(
            self.shape,
            self.layout,
            self.device,
            self.joined_by,
            self.micro_batch,
            policy=self.policy,
            pairs=pairs,
            efficiency=efficiency,
            virtual_stages=self.virtual_stages,
        )
        flops = training_flops(self.shape, None, self.batch, recompute="full" if self.with_recomputation else "none")
        return step, int(flops.total) / (float(step.total) * self.devices * float(self.device.peak("bf16")))


def _gpt(layers: int, d_model: int, heads: int) -> TransformerShape:
    return TransformerShape(
        51200,
        2048,
        layers,
        d_model,
        heads,
        4 * d_model,
        ffn="gelu",
        norm="layernorm",
        position="learned",
        tied_embeddings=True,
        bias=True,
    )


def _megatron_2021(
    name: str, sizes: tuple[int, int, int], devices: int, layout: tuple[int, int, int], batch: int, teraflops: float
) -> Run:
    joined = interconnect(A100.name)
    tensor, pipeline, virtual = layout
    return Run(
        name,
        _gpt(*sizes),
        A100,
        joined,
        devices,
        tensor,
        pipeline,
        virtual,
        batch,
        1,
        UNFUSED,
        teraflops / 312,
        True,
        MEGATRON_2021,
    )


def _megatron_2022(
    name: str,
    sizes: tuple[int, int, int],
    devices: int,
    layout: tuple[int, int, int],
    batches: tuple[int, int],
    mfu: float,
) -> Run:
    joined = interconnect(A100.name)
    tensor, pipeline, virtual = layout
    return Run(
        name,
        _gpt(*sizes),
        A100,
        joined,
        devices,
        tensor,
        pipeline,
        virtual,
        *batches,
        SELECTIVE,
        mfu,
        False,
        MEGATRON_2022,
        sequence_parallel=True,
    )


def _llama_3(devices: int, teraflops: float) -> Run:
    joined = interconnect(H100.name)
    shape = TransformerShape(128256, 8192, 126, 16384, 128, 53248, num_kv_heads=8)
    name = f"Llama 3 405B, {devices:,}"
    return Run(
        name,
        shape,
        H100,
        joined,
        devices,
        8,
        16,
        8,
        2048,
        1,
        FUSED,
        teraflops / 989,
        False,
        LLAMA_3,
        sequence_parallel=True,
    )


_175B, _530B, _1T = (96, 12288, 96), (105, 20480, 128), (128, 25600, 160)
_PALM = TransformerShape(256000, 2048, 118, 18432, 48, 73728, num_kv_heads=1, head_dim=256, tied_embeddings=True)
RUNS = (
    _megatron_2021("1.7B", (24, 2304, 24), 32, (1, 1, 1), 512, 137),
    _megatron_2021("3.6B", (30, 3072, 32), 64, (2, 1, 1), 512, 138),
    _megatron_2021("7.5B", (36, 4096, 32), 128, (4, 1, 1), 512, 142),
    _megatron_2021("18B", (40, 6144, 48), 256, (8, 1, 1), 1024, 135),
    _megatron_2021("39B", (48, 8192, 64), 512, (8, 2, 2), 1536, 138),
    _megatron_2021("76B", (60, 10240, 80), 1024, (8, 4, 2), 1792, 140),
    _megatron_2021("145B", (80, 12288, 96), 1536, (8, 8, 2), 2304, 148),
    _megatron_2021("310B", (96, 16384, 128), 1920, (8, 16, 2), 2160, 155),
    _megatron_2021("530B", _530B, 2520, (8, 35, 3), 2520, 163),
    _megatron_2021("1T", _1T, 3072, (8, 64, 2), 3072, 163),
    _megatron_2021("175B, 384", _175B, 384, (8, 12, 2), 1536, 153),
    _megatron_2021("175B, 768", _175B, 768, (8, 12, 2), 1536, 149),
    _megatron_2021("175B, 1,536", _175B, 1536, (8, 12, 2), 1536, 141),
    _megatron_2022("22B", (48, 6144, 64), 8, (8, 1, 1), (4, 4), 0.415),
    _megatron_2022("175B", _175B, 64, (8, 8, 3), (64, 1), 0.514),
    _megatron_2022("530B", _530B, 280, (8, 35, 3), (280, 1), 0.560),
    _megatron_2022("1T", _1T, 512, (8, 64, 1), (512, 1), 0.563),
    Run("PaLM 540B", _PALM, TPU_V4, TPU_V4_POD, 6144, 12, 1, 1, 2048, 1, REMATERIALISED, 0.462, False, PALM),
    _llama_3(8192, 430),
    _llama_3(16384, 400),
)


def errors(efficiency: float = EFFICIENCY) -> list[float]:
    """By how much each prediction is above what was published, as a part of it."""
    return [run.predicted(efficiency)[1] / run.utilisation - 1 for run in RUNS]


def table() -> str:
    """The runs as a Markdown table, with the mean and the largest error below it."""
    lines = [
        "| run | device | layout | published | predicted | error | most of the rest of the step |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in RUNS:
        step, utilisation = run.predicted()
        rest = {name: float(seconds) for name, seconds in step.parts.items() if name != "matmul"}
        most = max(rest, key=rest.__getitem__)
        layout = run.layout
        lines.append(
            f"| {run.name} | {run.devices:,} × {run.device.name} | {layout.data} data × {layout.tensor} tensor × "
            f"{layout.pipeline} pipeline | {run.utilisation:.1%} {'HFU' if run.with_recomputation else 'MFU'} | "
            f"{utilisation:.1%} | {utilisation / run.utilisation - 1:+.0%} | "
            f"{most} {rest[most] / float(step.total):.0%} |"
        )
    found = [abs(error) for error in errors()]
    lines.append("")
    lines.append(
        f"Mean error {sum(found) / len(found):.1%}, largest {max(found):.0%}, at an efficiency of {EFFICIENCY}."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
    if "--write" in sys.argv[1:]:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{START}\n\n{table()}\n\n{END}{after}", encoding="utf-8")
