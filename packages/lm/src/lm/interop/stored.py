"""Matrices that stay in the types and the mapped memory of their file (see lm.ops.cpu.stored)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.interop.gguf_models import KINDS, ROTATED, Fields, tensor_names
from lm.interop.shapes import name_of
from lm.interop.tensors import Part, Table, shapes, to_halves
from lm.ops.cpu.stored import BLOCKS, FLOATS, Rows

MATRICES = tuple(f".{name}.weight" for name in ("qkv", "output", "gate_up", "up", "down"))
KIND_OF = {dtype: kind for kind, dtype in FLOATS.items()}
MULTIPLIED = (*FLOATS, *BLOCKS)
Matrices = dict[str, list[Rows]]


def matrices(config: ModelConfig, table: Table, rows_of: Callable[[Part], list[Rows]]) -> Matrices:
    """Rows of embedding, head and linear layers by our names; not of those that are transposed or lack tensors."""
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
        kind = None if tensor is None else KIND_OF.get(tensor.dtype)
        return [] if tensor is None or kind is None else [Rows(kind, tensor.contiguous())]

    return rows_of


def gguf_rows(config: ModelConfig, fields: Fields, used: set[str]) -> Callable[[Part], list[Rows]]:
    """The rows of the tensors of a GGUF file, whose names come to `used`."""
    family = name_of(config)
    names = tensor_names(family, config.num_layers, fields.gguf)

    def rows_of(part: Part) -> list[Rows]:
        places, number = names(part.name)
        result = []
        for place in places:
            kind = fields.tensors[place].tensor_type.name if place in fields.tensors else ""
            if kind not in MULTIPLIED:
                return []
            data = torch.from_numpy(fields.tensors[place].data)
            data = data.view(FLOATS[kind]) if kind in FLOATS else data
            data = data if number is None else data[number]  # of one expert
            if KINDS[family].turns_neighbours and ROTATED.search(place):
                data = to_halves(data, config.head_width)
            result.append(Rows(kind, data))
        used.update(places)
        return result

    return rows_of
