"""Adapters as PEFT's folders: adapter_config.json and adapter_model.safetensors, written of a run and read as a model.

PEFT has an adapter beside each matrix of transformers; lm has one beside queries, keys and values together, and one
beside gate and up. Written, each part has the whole A and its own rows of B; read, the parts are added to their rows.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.families import family
from lm.families.parts import FamilyConfig, FamilyModel
from lm.files import read_json
from lm.interop.model_folder import read_safetensors, replacing
from lm.interop.tensors import Part, Table, table
from lm.lora import A, B, M, put_beside, scale_of, sum_of
from lm.model import Transformer
from lm.ops.cpu.products import is_linear
from lm.training import checkpoint
from lm.training.checkpoint import CHECKPOINTS
from lm.training.run import best_step, is_run, read

CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
# Settings of theirs that may have these values alone, and change nothing then.
FIXED: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (None, True, False, "gaussian", "eva", "orthogonal", "mica"),  # others change the base
    "modules_to_save": (None, []),
    "alpha_pattern": (None, {}),
    "layer_replication": (None,),
    "target_parameters": (None, []),
    "trainable_token_indices": (None,),
    "lora_bias": (None, False),
    "alora_invocation_tokens": (None,),
}


def table_of(config: ModelConfig) -> Table:
    """Their tensors that make up each of ours. ValueError: they have our numbers in another order."""
    if isinstance(config, FamilyConfig) and family(config.family).to_hf is not FamilyModel.to_hf:
        remedy = "merge its adapters by `lm export`"
        raise ValueError(f"PEFT has other adapters of {config.family}, whose matrices it cuts in another way: {remedy}")
    return table(config)


def to_peft(
    run_dir: str | Path,
    folder: str | Path,
    *,
    base: str | None = None,
    step: int | Literal["best", "average"] | None = None,
) -> Path:
    """Write the adapters of a run as a folder that PEFT loads; nothing appears at `folder` until it is complete.

    Args:
        run_dir: The run, which trained adapters.
        folder: The folder to write.
        base: The model beside which they stand: its folder, or its name on the Hub (default: what the run began with).
        step: The checkpoint of this step, or "best" (default: the newest).

    Returns:
        The path of the folder.

    Raises:
        ValueError: The run trained no adapters, or PEFT has no such ones.
        FileExistsError: `folder` holds something that no export of ours wrote.
    """
    run = read(run_dir)
    train = run.train
    if train is None or not train.lora_rank:
        raise ValueError(f"{run_dir} trained no adapters: export it as a model, `lm export {run_dir} --out FOLDER`")
    if step == "average":
        raise ValueError("the average of adapters is exported as a model: `lm export RUN --step average --out FOLDER`")
    number = best_step(run_dir) if step == "best" else step
    saved = checkpoint.load(Path(run_dir) / CHECKPOINTS, number, weights_only=True)
    if saved is None:
        raise FileNotFoundError(f"the run in {run_dir} has no checkpoint yet: train it for longer")
    tensors, targets = dict[str, Tensor](), set[str]()
    for ours, parts in table_of(run.model).items():
        layer = ours.removesuffix("weight")
        if layer + A not in saved.model:
            continue
        a, m = saved.model[layer + A], saved.model.get(layer + M)
        for part, rows in rows_of(parts):
            name = part.name.removesuffix(".weight")
            targets.add(name.rpartition(".")[2])
            tensors[f"{PREFIX}{name}.lora_A.weight"] = a.clone()
            tensors[f"{PREFIX}{name}.lora_B.weight"] = saved.model[layer + B][rows].clone()
            if m is not None:
                tensors[f"{PREFIX}{name}.lora_magnitude_vector"] = m[rows].clone()
    about = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base or origin_of(Path(run_dir)),
        "r": train.lora_rank,
        "lora_alpha": train.lora_alpha,
        "lora_dropout": train.lora_dropout,
        "target_modules": sorted(targets),
        "use_rslora": train.lora_rslora,
        "use_dora": train.lora_dora,
        "fan_in_fan_out": run.model.position == "learned",
        "bias": "none",
        "inference_mode": True,
    }
    with replacing(folder) as target:
        safetensors.torch.save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
        (target / CONFIG).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return Path(folder)


def from_peft(folder: str | Path, base: Transformer) -> Transformer:
    """Add the adapters of a PEFT folder to a model's weights, in place, and return it. ValueError: see adapters_of."""
    weights = base.state_dict()
    with torch.no_grad():
        for name, rows, a, b, m, scale in adapters_of(folder, base):
            weight = weights[name][rows]
            weight.copy_(sum_of(weight, a, b, m, scale))
    return base


def beside(folder: str | Path, base: Transformer) -> Transformer:
    """Return a model with the adapters of a PEFT folder beside its matrices; it shares the weights of `base`. A holds
    the adapters of a matrix's parts one after the other; each part's rows of B read its own. ValueError: see
    adapters_of; or the weights of `base` are quantized."""
    model = copy.deepcopy(base, {id(tensor): tensor for tensor in (*base.parameters(), *base.buffers())})
    parts = dict[str, list[tuple[slice, Tensor, Tensor, Tensor | None]]]()
    for name, rows, a, b, m, scale in adapters_of(folder, base):
        parts.setdefault(name.removesuffix(".weight"), []).append((rows, a, b * scale, m))
    with torch.no_grad():
        for name, of_layer in parts.items():
            layer = model.get_submodule(name)
            if not is_linear(layer):
                raise ValueError(f"adapters go beside matrices of floating point, and {name} is quantized")
            wide = layer.weight.new_zeros(layer.out_features, sum(len(a) for _, a, _, _ in of_layer))
            column, norms = 0, layer.weight.norm(dim=1)
            for rows, a, b, m in of_layer:
                wide[rows, column : column + len(a)] = b.to(wide)
                column += len(a)
                norms[rows] = norms[rows] if m is None else m.to(norms)
            dora = norms if any(m is not None for *_, m in of_layer) else None
            put_beside(layer, torch.cat([a for _, a, _, _ in of_layer]).to(wide), wide, dora, 1.0)
    return model.eval()


Adapter = tuple[str, slice, Tensor, Tensor, Tensor | None, float]  # name of our matrix, rows, A, B, DoRA's m, scale


def adapters_of(folder: str | Path, base: Transformer) -> Iterator[Adapter]:
    """Yield the adapters of a PEFT folder, each beside rows of a matrix of the model. ValueError: one is not read."""
    folder = Path(folder)
    config = read_json(folder / CONFIG)
    for name, values in FIXED.items():
        if name in config and config[name] not in values:
            raise ValueError(f"{folder}: {name} = {config[name]!r} is not read")
    tensors = {
        name.removeprefix(PREFIX).removesuffix(".weight"): tensor.float()
        for name, tensor in read_safetensors(folder / WEIGHTS).items()
    }
    weights, alpha = base.state_dict(), float(config.get("lora_alpha", 8))
    for ours, parts in table_of(base.config).items():
        for part, rows in rows_of(parts):
            name = part.name.removesuffix(".weight")
            a, b = (tensors.pop(f"{name}.lora_{one}", None) for one in "AB")
            m = tensors.pop(f"{name}.lora_magnitude_vector", None)
            if a is None or b is None:
                continue
            weight = weights[ours][rows]
            if (*b.shape, *a.shape) != (weight.shape[0], len(a), len(a), weight.shape[1]):
                shapes = f"{tuple(b.shape)} and {tuple(a.shape)}"
                raise ValueError(f"{folder}: the adapter of {name} is {shapes}, beside {tuple(weight.shape)}")
            yield ours, rows, a, b, m, scale_of(len(a), alpha, bool(config.get("use_rslora")))
    for name in sorted(tensors):
        raise ValueError(f"{folder}: the tensor {name!r} stands beside no matrix of this model")


def rows_of(parts: tuple[Part, ...]) -> Iterator[tuple[Part, slice]]:
    """Each part of one of our matrices with its rows."""
    begin = 0
    for part in parts:
        yield part, slice(begin, begin + part.rows)
        begin += part.rows


def origin_of(run_dir: Path) -> str:
    """The model that the runs before a run began with: its folder or name, or the first run with weights of its own."""
    source = Path(read(run_dir).start["from"])
    start = read(source).start if is_run(source) else {}
    if start.get("kind") == "import":
        return str(start["from"])
    train = read(source).train if is_run(source) else None
    is_adapted = start.get("kind") == "branch" and train is not None and train.lora_rank
    return origin_of(source) if is_adapted else str(source)
