"""Models whose matrices stay in the types and the mapped memory of their file (see lm.ops.cpu.stored)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.families import build
from lm.interop.gguf_models import KINDS, ROTATED, Fields, folder_table, tensor_names
from lm.interop.tensors import Part, Table, shapes, to_halves
from lm.model import Transformer
from lm.ops.cpu.stored import BLOCKS, FLOATS, Rows, StoredEmbedding, StoredLinear

MATRICES = tuple(f".{name}.weight" for name in ("qkv", "output", "gate_up", "up", "down"))
KIND_OF = {dtype: kind for kind, dtype in FLOATS.items()}
MULTIPLIED = (*FLOATS, *BLOCKS)
Matrices = dict[str, list[Rows]]


def matrices(config: ModelConfig, table: Table, rows_of: Callable[[Part], list[Rows]]) -> Matrices:
    """The rows of the embedding, the head and the linear layers, by our names.

    Those that a file has otherwise, as transposed or with missing tensors, are left to tensors.imported.
    """
    result = Matrices()
    for name, shape in shapes(config).items():
        is_matrix = len(shape) == 2 and (name in ("embedding.weight", "head.weight") or name.endswith(MATRICES))
        if not is_matrix or any(part.transposed for part in table[name]):
            continue
        rows = [one for part in table[name] for one in rows_of(part)]
        if sum(len(one.data) for one in rows) == shape[0] and all(one.columns == shape[1] for one in rows):
            result[name] = rows
    return result


def folder_rows(tensors: Mapping[str, Tensor]) -> Callable[[Part], list[Rows]]:
    """The rows of the tensors of a Hugging Face folder, each in its own dtype."""

    def rows_of(part: Part) -> list[Rows]:
        tensor = tensors.get(part.name)
        if tensor is None or tensor.dtype not in KIND_OF:
            return []
        return [Rows(KIND_OF[tensor.dtype], tensor.contiguous())]

    return rows_of


def gguf_rows(config: ModelConfig, fields: Fields, used: set[str]) -> Callable[[Part], list[Rows]]:
    """The rows of the tensors of a GGUF file, whose names come to `used`."""
    family, _ = folder_table(config)
    names = tensor_names(family, config.num_layers, fields.gguf)

    def rows_of(part: Part) -> list[Rows]:
        places, number = names(part.name)
        if not all(place in fields.tensors and kind_of(fields, place) in MULTIPLIED for place in places):
            return []
        result = []
        for place in places:
            rows = tensor_rows(fields, place, number)
            if KINDS[family].turns_neighbours and ROTATED.search(place):
                rows = Rows(rows.kind, to_halves(rows.data, config.head_width))
            result.append(rows)
            used.add(place)
        return result

    return rows_of


def kind_of(fields: Fields, name: str) -> str:
    return str(fields.tensors[name].tensor_type.name)


def tensor_rows(fields: Fields, name: str, expert: int | None) -> Rows:
    """The rows of a tensor, or of an expert in it."""
    kind, data = kind_of(fields, name), torch.from_numpy(fields.tensors[name].data)
    data = data.view(FLOATS[kind]) if kind in FLOATS else data
    return Rows(kind, data if expert is None else data[expert])


def built_stored(config: ModelConfig, state: Mapping[str, Tensor], rows: Matrices) -> Transformer:
    """A model in eval mode: its matrices are rows as a file has them, all else is in the state. It is not trained."""
    with torch.device("meta"):
        model = build(config)
    for name, parts in rows.items():
        path = name.removesuffix(".weight")
        owner, _, own = path.rpartition(".")
        layer: StoredEmbedding | StoredLinear
        if path == "embedding":
            layer = StoredEmbedding(parts, float(getattr(model.embedding, "scale", 1.0)))
        else:
            layer = StoredLinear(parts, state.get(f"{path}.bias"))
        setattr(model.get_submodule(owner), own, layer)
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(False).eval()
