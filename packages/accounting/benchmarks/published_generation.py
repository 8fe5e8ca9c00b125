"""infer's bounds beside what engines were measured to reach, and its free cache beside vLLM's logs.

python packages/accounting/benchmarks/published_generation.py

The last lines are REACHED of planning/inference.py, from the least to the greatest part of each kind of run. Figures of
weights in formats that are counted only nearly (llama.cpp's Q4) are left out.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from accounting import DEVICES, SHAPES, Storage, TransformerShape, generation_time, prefill_time
from accounting.planning.inference import engine_for, free_cache

SOURCES = {
    "xiongjie": "XiongjieDai, GPU-Benchmarks-on-LLM-Inference, llama.cpp, May 2024",
    "gpt-fast": "pytorch-labs/gpt-fast, README",
    "litgpt": "Lightning-AI/litgpt, tutorials",
    "llama.cpp": "llama.cpp, discussion 4167",
    "amd": "AMD, vLLM performance results on MI300X",
    "oracle": "Oracle Cloud, Llama 3.1 405B on OCI with MI300X, vLLM",
}
# model, storage, utilization, and GiB for the cache: llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md;
# the 120B's parts add up to 0.95 of the device
LOGS = (
    ("llama-3-8b", Storage(), 0.9, 51.38),
    ("qwen3-0.6b", Storage(), 0.9, 64.45),
    ("qwen3-32b", Storage(), 0.9, 4.45),
    ("gpt-oss-20b", Storage("mxfp4"), 0.9, 50.28),
    ("gpt-oss-120b", Storage("mxfp4"), 0.95, 3.33),
    ("llama-3-70b", Storage("fp8", devices=2), 0.9, 32.0),
)
MODELS = {
    **SHAPES,
    "llama-2-70b": TransformerShape(32000, 4096, 80, 8192, 64, 28672, num_kv_heads=8),
    "llama-3.1-405b": TransformerShape(128256, 131072, 126, 16384, 128, 53248, num_kv_heads=8),
    "qwen3-32b": TransformerShape(151936, 40960, 64, 5120, 64, 25600, num_kv_heads=8, head_dim=128, qk_norm=True),
}


def logs() -> list[tuple[str, float, float]]:
    """(model, predicted GiB for the cache on an H100, logged GiB)."""
    device = DEVICES["h100"]
    return [
        (
            name,
            free_cache(MODELS[name], device, replace(engine_for(device), utilization=utilization), storage=storage)
            / 2**30,
            logged,
        )
        for name, storage, utilization, logged in LOGS
    ]


def parts() -> list[tuple[str, dict[str, str], float]]:
    """(kind, row of published_generation.csv, part of the bound that was reached)."""
    with open(Path(__file__).with_suffix(".csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    result = []
    for row in rows:
        batch, prompt, output = (int(row[name]) for name in ("batch", "prompt", "output"))
        shape, device = MODELS[row["model"]], DEVICES[row["device"]]
        storage = Storage(row["weights"], devices=int(row["devices"]))
        if row["kind"] == "prefill":
            bound = batch * prompt / float(prefill_time(shape, device, prompt, batch, storage=storage).seconds)
        else:
            bound = generation_time(shape, device, prompt, output, batch, storage=storage).tokens_per_second
        result.append((row["kind"], row, float(row["published"]) / bound))
    return result


def reached() -> dict[str, tuple[float, float]]:
    """The least and the greatest part by kind."""
    kinds: dict[str, list[float]] = {}
    for kind, _, part in parts():
        kinds.setdefault(kind, []).append(part)
    return {kind: (round(min(some), 2), round(max(some), 2)) for kind, some in kinds.items()}


if __name__ == "__main__":
    for name, predicted, logged in logs():
        print(f"{name}: {predicted:.2f} GiB for the cache, {logged:.2f} logged, {predicted / logged - 1:+.1%}")
    for kind, row, part in parts():
        print(f"{kind}: {row['model']} {row['weights']} on {row['devices']} × {row['device']}: {part:.0%}")
    print(reached())
