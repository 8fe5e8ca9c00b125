"""Weights under the names of other programs: a table has the parts of each of lm's tensors."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.families import build, family
from lm.families.parts import GPT2_NAMES, LLAMA_NAMES, QK_NORM_NAMES, FamilyConfig
from lm.model import Transformer
from lm.ops.cpu.stored import Rows, StoredEmbedding, StoredLinear

Table = dict[str, tuple["Part", ...]]


@dataclass(frozen=True)
class Part:
    """A tensor of the other program, which is `rows` successive rows of one of lm's."""

    name: str
    rows: int
    transposed: bool = False  # it is (in, out), and lm's is (out, in)


def to_halves(rows: Tensor, head_dim: int) -> Tensor:
    """Rows of queries or keys (heads · head_dim, …) that are rotated in pairs (2i, 2i + 1), in the order of halves."""
    if len(rows) % head_dim:
        return rows  # a damaged file's, refused by its shape
    return rows.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)  # type: ignore[no-untyped-call, no-any-return]


def to_neighbours(rows: Tensor, head_dim: int) -> Tensor:
    """The inverse of to_halves."""
    return rows.unflatten(0, (-1, 2, head_dim // 2)).transpose(1, 2).flatten(0, 2)  # type: ignore[no-untyped-call, no-any-return]


def table(config: ModelConfig, *, in_gguf: bool = False) -> Table:
    """The tensors of a Hugging Face folder that make up each of lm's; GPT-2's matrices are (in, out) but in GGUF."""
    is_gpt2 = not isinstance(config, FamilyConfig) and config.position == "learned"
    names = GPT2_NAMES if is_gpt2 else LLAMA_NAMES | QK_NORM_NAMES
    if isinstance(config, FamilyConfig):
        names = family(config.family).names
    q, kv, parts = config.num_heads * config.head_width, config.kv_heads * config.head_width, Table()
    for name, shape in shapes(config).items():
        pattern = re.sub(r"\.\d+\.", ".*.", name)
        kind = "" if pattern in names else pattern[pattern.rindex(".") :]  # ".weight" or ".bias" of a module
        hf_names = names[pattern.removesuffix(kind)]
        hf_names = (hf_names,) if isinstance(hf_names, str) else hf_names
        rows = config.vocab_size if name in ("embedding.weight", "head.weight") else shape[0]
        sizes = [q, kv, kv] if len(hf_names) == 3 else [rows // len(hf_names)] * len(hf_names)
        numbers = re.findall(r"\.(\d+)\.", name)
        numbered = [one.replace("*", "{}").format(*numbers) + kind for one in hf_names]
        transposed = is_gpt2 and not in_gguf and len(shape) == 2 and pattern.startswith("blocks")
        parts[name] = tuple(Part(part, size, transposed) for part, size in zip(numbered, sizes, strict=True))
    return parts


@functools.lru_cache(maxsize=4)
def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each of our tensors, by name."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in build(config).state_dict().items()}


def exported(model: Transformer, *, in_gguf: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's weights by a Hugging Face folder's names, without padding rows; GPT-2's absent biases are 0."""
    config, state = model.config, model.state_dict()
    if config.position == "learned":
        config = dataclasses.replace(config, bias=True, qkv_bias=None, output_bias=None, ffn_bias=None)
        state = {name: state[name] if name in state else torch.zeros(size) for name, size in shapes(config).items()}
    for name, parts in table(config, in_gguf=in_gguf).items():
        pieces = torch.split(state[name][: sum(part.rows for part in parts)], [part.rows for part in parts])
        for part, rows in zip(parts, pieces, strict=True):
            yield part.name, (rows.t() if part.transposed else rows).contiguous()


def imported(
    tensors: Mapping[str, Tensor],
    table: Table,
    config: ModelConfig,
    source: object,
    rows: Mapping[str, list[Rows]] | None = None,
) -> Transformer:
    """Return a model in eval mode of another program's tensors, in float32. rows: matrices by lm's names that stay as
    the file has them; such a model is not trained. ValueError: a tensor is missing, has another shape, or is not a part
    of the model."""
    expected = shapes(config)
    state: dict[str, Tensor] = {}
    for name, parts in table.items():
        if name in (rows or ()):
            continue
        pieces = []
        for part in parts:
            shape = (part.rows, *expected[name][1:])
            tensor = tensors.get(part.name)
            if tensor is None:
                raise ValueError(f"{source}: the tensor {part.name!r} is missing")
            want = shape[::-1] if part.transposed else shape
            if (own := tuple(tensor.shape)) != want:
                raise ValueError(f"{source}: the tensor {part.name!r} is {own}, and the configuration makes it {want}")
            if not tensor.is_floating_point():
                raise ValueError(f"{source}: the tensor {part.name!r} holds {tensor.dtype}, which is no floating point")
            pieces.append(tensor.float().t() if part.transposed else tensor.float())
        state[name] = torch.cat(pieces) if len(pieces) > 1 else pieces[0].contiguous()
    unknown = sorted(tensors.keys() - {part.name for parts in table.values() for part in parts})
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ValueError(f"{source}: the tensor {unknown[0]!r}{more} has no place in a model of this configuration")
    return built(config, state, rows)


def built(
    config: ModelConfig, state: Mapping[str, Tensor], rows: Mapping[str, list[Rows]] | None = None
) -> Transformer:
    """A model in eval mode with these weights; rows: see imported."""
    with torch.device("meta"):
        model = build(config)
    for name, matrix in (rows or {}).items():
        path = name.removesuffix(".weight")
        owner, _, attribute = path.rpartition(".")
        layer: StoredEmbedding | StoredLinear = StoredLinear(matrix, state.get(f"{path}.bias"))
        if path == "embedding":
            layer = StoredEmbedding(matrix, float(getattr(model.embedding, "scale", 1.0)))
        setattr(model.get_submodule(owner), attribute, layer)
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(rows is None).eval()
