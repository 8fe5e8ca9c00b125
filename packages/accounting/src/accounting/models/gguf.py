"""Headers of GGUF files (llama.cpp): the shape of the model, and the bytes of its tensors, without their numbers."""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from math import prod
from typing import Any, BinaryIO

from accounting.models.defaults import tables
from accounting.models.families import from_config
from accounting.shape import TransformerShape

MOST = 1 << 24  # entries of a header, or bytes of a text in it
PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@lru_cache(maxsize=8)
def header(path: str) -> tuple[dict[str, Any], dict[str, tuple[str, int, int]]]:
    """The settings that are no lists, and of each tensor the type, elements and bytes; ValueError for another file."""
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"GGUF" or _number(file, "I") not in (2, 3):
                raise ValueError("it does not begin with GGUF and version 2 or 3")
            tensors, settings = _few(_number(file, "Q")), _few(_number(file, "Q"))
            values = {_text(file): _value(file, _number(file, "I")) for _ in range(settings)}
            sizes, types = {}, tables()["gguf types"]  # by ggml's number: the name, elements of a block, its bytes
            for _ in range(tensors):
                name = _text(file)
                elements = prod(_number(file, "Q") for _ in range(min(8, _number(file, "I"))))
                kind, _ = _number(file, "I"), _number(file, "Q")
                word, block, size = types[str(kind)]
                sizes[name] = (word, elements, elements // block * size)
            return values, sizes
    except KeyError as error:
        raise ValueError(f"{path} has tensors or settings of type {error}, which is not known here") from None
    except (ValueError, struct.error, RecursionError) as error:
        raise ValueError(f"{path} is no GGUF file: {error}") from None


def from_gguf(path: str) -> TransformerShape:
    """The shape of the model in a .gguf file, by the family that its architecture names."""
    values, tensors = header(path)
    kind = str(values.get("general.architecture"))
    keys = {f"{kind}.{key}": name for key, name in tables()["gguf settings"].items()}
    config: dict[str, Any] = {name: values[key] for key, name in keys.items() if values.get(key) is not None}
    mixture, width = kind == "llama" and "num_local_experts" in config, max(1, config.get("hidden_size", 1))
    family = "mixtral" if mixture else tables()["gguf families"].get(kind, kind)
    config.setdefault("head_dim", width // max(1, config.get("num_attention_heads", 1)))
    rows = tensors.get("token_embd.weight", ("", 0, 0))[1] // width
    tied = "output.weight" not in tensors
    return from_config({"model_type": family, **config, "vocab_size": rows, "tie_word_embeddings": tied})


def stored(path: str, parameters: int) -> dict[str, int]:
    """Bytes of the tensors by type; ValueError unless they have as many elements, tables of rotations apart."""
    tensors = header(path)[1]
    elements = sum(size for name, (_, size, _) in tensors.items() if not name.startswith("rope_"))
    if parameters != elements:
        raise ValueError(f"expected the {parameters:,} parameters of its family in {path}, got {elements:,}")
    sums: dict[str, int] = {}
    for kind, _, size in tensors.values():
        sums[kind] = sums.get(kind, 0) + size
    return sums


def compute_buffer(shape: TransformerShape, context: int, micro_batch: int = 512, *, flash: bool = True) -> int | None:
    """Bytes in which llama.cpp computes a micro-batch on one device; None for a model unlike Llama.

    Its allocator goes through the graph once and gives each tensor the smallest gap between those that live, or the
    end (ggml-alloc.c). Contexts are of whole 256 positions; flash: attention without score matrices, the default.
    """
    if not shape.plain or shape.most_experts > 1 or shape.post_norm or shape.ffn != "swiglu":
        return None
    number = 4 * min(context, micro_batch)  # bytes of one fp32 number for each position
    scores = -(-context // 256) * 256 * number  # of one head, and as large as a mask in fp32
    width, inner = shape.d_model * number, shape.d_ff * number
    heads, keys = (count * shape.head_width * number for count in (shape.num_heads, shape.kv_heads))
    live: dict[int, int] = {}  # bytes by offset
    highest = 0

    def take(size: int) -> int:
        """The offset of a tensor that lives from now on."""
        nonlocal highest
        size = -(-size // 64) * 64
        gaps, end = [], 0
        for offset in sorted(live):
            gaps.append((offset - end, -end))
            end = offset + live[offset]
        at = -min((gap for gap in gaps if gap[0] >= size), default=(0, -end))[1]
        live[at], highest = size, max(highest, at + size)
        return at

    def free(*offsets: int) -> None:
        for offset in offsets:
            del live[offset]

    # ids, embeddings in their place, positions, places of keys and of values in the cache, mask, rows of the output;
    # attention that is not flash has values by columns, each with a place of its own, and a mask in fp32
    inputs = [number, width, number, 2 * number, *((2 * number, scores // 2) if flash else (2 * keys, scores)), number]
    ids, _, *places, mask, outputs = map(take, inputs)
    residual = take(width)
    free(ids)
    for layer in range(shape.num_layers):
        last = layer == shape.num_layers - 1
        norm, projection, queries = take(width), take(heads), take(heads)
        free(projection)
        values, projection = take(keys), take(keys)
        free(norm)
        rotation = take(keys)
        free(projection, rotation, values, *(places if last else ()))
        if not flash:
            weights = take(scores * shape.num_heads)
            free(queries, *([mask] if last else ()))
            queries = take(heads)
            free(weights)
        output = take(heads)
        free(queries, *([mask] if last and flash else ()))
        attention = take(width)
        free(output)
        if last:  # from here on only the positions with an output
            selection = take(width)
            free(attention)
            attention, rest = selection, take(width)
            free(residual, outputs)
            residual = rest
        free(residual)
        norm, gate, up = take(width), take(inner), take(inner)
        free(norm)
        product = take(inner)
        free(gate, up)
        residual = take(width)
        free(product, attention)
    take(shape.vocab_rows * number)
    return highest


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(form)))[0]


def _few(count: int) -> int:
    if count > MOST:
        raise ValueError(f"it would have {count:,} entries")
    return count


def _text(file: BinaryIO) -> str:
    return file.read(_few(_number(file, "Q"))).decode()


def _value(file: BinaryIO, kind: int) -> Any:
    """A setting; of a list nothing, as no size stands in one."""
    if kind == 8:  # a text
        return _text(file)
    if kind != 9:  # a list
        return _number(file, PLAIN[kind])
    inner, count = _number(file, "I"), _few(_number(file, "Q"))
    if inner in PLAIN:
        file.seek(count * struct.calcsize(PLAIN[inner]), os.SEEK_CUR)
    else:
        for _ in range(count):
            _value(file, inner)
    return None
