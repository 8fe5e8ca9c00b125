"""`accounting check`: the tensors of a folder of safetensors files beside the count of its config.json."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

from accounting.commands.tables import Answer, columns, titled, wrapped
from accounting.counting.parameters import parameters
from accounting.models.files import contents, find
from accounting.models.safetensors import Stored, stored
from accounting.units import Bytes, human

# what a name says that a tensor is beside the text model's parameters, the first that matches
BESIDE = (
    ("scales of quantised weights", r"scale|zero_point|\.absmax|quant_(map|state)|nested_absmax|g_idx|qzeros"),
    ("towers of other inputs", r"(^|\.)(vision|visual|audio|image|multi_modal|mm_projector|speech)"),
    ("tables that are computed", r"rotary_emb|inv_freq|\.masked_bias$|\.attn\.bias$|attention\.bias$|position_ids$"),
    ("corrections of routers", r"e_score_correction_bias|expert_bias"),
)


def check(options: argparse.Namespace) -> Answer:
    """Tensors by kind with elements and bytes, and the difference from the count."""
    folder = options.folder
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{folder} is no folder: give one with config.json and safetensors files")
    shape, settings = find(folder), contents(os.path.join(folder, "config.json"))
    tensors = stored(folder)
    kinds: dict[str, list[Stored]] = {}
    for one in tensors:
        kinds.setdefault(kind(one, shape.num_layers, shape.tied_embeddings), []).append(one)
    counted = int(parameters(shape).total)
    own = sum(one.elements * packed(one) for one in kinds.get("parameters", []))
    records: list[dict[str, Any]] = [
        {
            "name": name,
            "tensors": len(some),
            "elements": sum(one.elements for one in some),
            "bytes": sum(one.size for one in some),
        }
        for name, some in kinds.items()
    ]
    table = [("", "tensors", "elements", "bytes", "")]
    table += [
        (one["name"], f"{one['tensors']:,}", f"{one['elements']:,}", f"{one['bytes']:,}", human(Bytes(one["bytes"])))
        for one in records
    ]
    difference = own - counted
    words = f"the count of config.json is {counted:,} parameters, the files have {own:,}"
    verdict = "they are equal" if not difference else f"the files have {difference:+,}"
    if difference and settings.get("quantization_config"):
        verdict += ", which packed formats of quantised weights may explain"
    records.append({"name": "counted", "tensors": None, "elements": counted, "bytes": None})
    records.append({"name": "difference", "tensors": None, "elements": difference, "bytes": None})
    formats = sorted({one.dtype for one in tensors})
    note = f"{words}: {verdict}; formats {', '.join(formats)}"
    return Answer("\n".join([titled(f"{folder}, {len(tensors):,} tensors", columns(table)), wrapped(note)]), records)


def kind(one: Stored, layers: int, tied: bool) -> str:
    """The kind of a tensor, by its name."""
    for name, expression in BESIDE:
        if re.search(expression, one.name):
            return name
    depth = re.search(r"\.(?:layers|h|blocks|block)\.(\d+)\.", f".{one.name}")
    if depth and int(depth[1]) >= layers:
        return "layers for further tokens"
    if tied and re.fullmatch(r"(.*\.)?(lm_head|embed_out)\.weight", one.name):
        return "a copy of the tied head"
    return "parameters"


def packed(one: Stored) -> int:
    """Weights in one element of a tensor: two of 4 bits in a byte of MXFP4's blocks."""
    return 2 if one.dtype == "U8" and one.name.endswith("_blocks") else 1
