"""The families' config.json and tensors, by what each family's file says of them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from lm import families
from lm.config import FrozenTable
from lm.families.parts import FULL, SLIDING, FamilyConfig
from lm.interop.hf_config import REQUIRED, Settings
from lm.model import Transformer

MOST_LAYERS = 1 << 14


def from_config(table: Mapping[str, Any], source: object) -> FamilyConfig:
    """The configuration that a config.json describes.

    ValueError: what it asks for and this version does not do, by name.
    """
    settings = Settings(table, source)
    model_type = settings.take("model_type", str)
    layers = settings.table.get("num_hidden_layers")
    if isinstance(layers, int) and layers > MOST_LAYERS:  # refused before a list of them is made
        raise ValueError(f"{source}: num_hidden_layers is {layers:,}, and at most {MOST_LAYERS:,} are read")
    kind: type[FamilyConfig] = families.family(model_type).Config
    for name in kind.ignored:
        settings.table.pop(name, None)
    for alias, name in kind.aliases.items():
        value = settings.table.pop(alias, None)
        if value is not None and settings.table.setdefault(name, value) != value:
            raise ValueError(f"{source}: {alias} = {value!r} contradicts {name} = {settings.table[name]!r}")
    for name, supported in kind.fixed.items():
        settings.only(name, supported, supported[0])
    hints, fields = typing.get_type_hints(kind), {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {"family": model_type, "rope_parameters": rope_parameters(settings, kind)}
    pattern = settings.take("sliding_window_pattern", int, kind.full_every)
    for theirs, ours in kind.settings().items():
        default = fields[ours].default
        is_null = (
            theirs in settings.table and settings.table[theirs] is None and type(None) in typing.get_args(hints[ours])
        )
        if is_null:
            settings.table.pop(theirs)
            values[ours] = None
            continue
        value = settings.take(theirs, basic(hints[ours]), REQUIRED if default is dataclasses.MISSING else default)
        values[ours] = tuple(value) if isinstance(value, list) else value
    if pattern is not None and not values["layer_types"]:
        values["layer_types"] = tuple(SLIDING if (i + 1) % pattern else FULL for i in range(values["num_layers"]))
    rope = values["rope_parameters"]
    if rope.get("rope_type") == "dynamic":  # theirs scales from the context on, without an end
        original = rope.setdefault("original_max_position_embeddings", values["context_length"])
        values["context_length"] = int(original * rope.get("factor", 1.0))
    values["rope_parameters"] = FrozenTable(rope)
    settings.nothing_left()
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def basic(hint: Any) -> type:
    """The type that JSON has for a field's."""
    options = [hint] if typing.get_origin(hint) is not types.UnionType else typing.get_args(hint)
    kind = next(option for option in options if option is not type(None))
    return list if typing.get_origin(kind) is tuple else kind


def rope_parameters(settings: Settings, kind: type[FamilyConfig]) -> dict[str, Any]:
    """Today's rope_parameters, of a file that has them or that has rope_theta and rope_scaling."""
    theta = settings.take(kind.theta_name, float, kind.default_theta)
    share = settings.take(kind.partial_name, float, kind.default_partial)
    local = kind.local_theta
    local_theta = (
        None if local is None else theta if local[0] == "rope_theta" else settings.take(local[0], float, local[1])
    )
    today, before = (settings.take(key, dict, None) for key in ("rope_parameters", "rope_scaling"))
    tables: dict[str, Any] = before or today or {}

    def complete(table: Mapping[str, Any], theta: float) -> dict[str, Any]:
        older = table.get("type", "default")
        kind_of = table.get("rope_type", older)
        rest = {name: value for name, value in table.items() if name != "type" and value is not None}
        rest = {"rope_theta": theta, **rest, "rope_type": kind.rope_renamed.get(kind_of, kind_of)}
        rest.setdefault("partial_rotary_factor", share)
        if rest["partial_rotary_factor"] == 1.0:
            del rest["partial_rotary_factor"]
        if rest["rope_type"] in ("longrope", "llama3", "yarn"):
            original = settings.table.get("original_max_position_embeddings") or settings.table.get(
                "max_position_embeddings"
            )
            rest.setdefault("original_max_position_embeddings", original)
        return rest

    if local_theta is None:
        return complete(tables, theta)
    if not {SLIDING, FULL} & tables.keys():
        tables = {FULL: tables}  # of older files, which scale these layers alone
    return {
        FULL: complete(tables.get(FULL) or {}, theta),
        SLIDING: complete(tables.get(SLIDING) or {}, local_theta),
    }


def places(model: Transformer, config: FamilyConfig) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Each of a model's tensors, and the names and rows of the tensors of theirs that it is made of."""
    names = families.family(config.family).NAMES
    for name, tensor in model.state_dict().items():
        module, kind = name.rsplit(".", 1)
        numbers = [part for part in module.split(".") if part.isdecimal()]
        theirs = names.get(".".join("*" if part.isdecimal() else part for part in module.split(".")))
        if theirs is None:  # a tensor that is no module's weight or bias
            theirs, kind = names[".".join("*" if part.isdecimal() else part for part in name.split("."))], ""
        theirs = (theirs,) if isinstance(theirs, str) else theirs
        rows = len(tensor)
        if name == "embedding.weight" or name == "head.weight":
            rows = config.vocab_size
        sizes = [rows // len(theirs)] * len(theirs)
        if len(theirs) == 3:  # queries, keys and values
            q, kv = config.num_heads * config.head_width, config.kv_heads * config.head_width
            sizes = [q, kv, kv]
        yield (
            name,
            [
                (numbered(one, numbers) + (f".{kind}" if kind else ""), size)
                for one, size in zip(theirs, sizes, strict=True)
            ],
        )


def numbered(pattern: str, numbers: list[str]) -> str:
    """The pattern with each * replaced by the next number."""
    for number in numbers:
        pattern = pattern.replace("*", number, 1)
    return pattern


def imported(theirs: dict[str, Tensor], config: FamilyConfig, source: object) -> Transformer:
    """A model in fp32 and eval mode with these tensors.

    ValueError: one is missing, has another shape, or is no part of the model.
    """
    module = families.family(config.family)
    if hasattr(module, "from_theirs"):
        theirs = module.from_theirs(theirs, config)
    return filled(described(config), theirs, config, source)


def described(config: FamilyConfig) -> Transformer:
    """A model of this configuration without values."""
    with torch.device("meta"):
        return families.build(config)


def filled(model: Transformer, theirs: Mapping[str, Tensor], config: FamilyConfig, source: object) -> Transformer:
    """A model from described() with these tensors, which are as after a family's from_theirs; as imported()."""
    state, used = {}, set()
    expected = model.state_dict()
    for name, parts in places(model, config):
        pieces = []
        for their_name, rows in parts:
            tensor = theirs.get(their_name)
            if tensor is None:
                raise ValueError(f"{source}: the tensor {their_name!r} is missing")
            shape = (rows, *expected[name].shape[1:])
            if tuple(tensor.shape) != shape:
                raise ValueError(
                    f"{source}: the tensor {their_name!r} is {tuple(tensor.shape)}, "
                    f"and the configuration makes it {shape}"
                )
            if not tensor.is_floating_point():
                raise ValueError(
                    f"{source}: the tensor {their_name!r} holds {tensor.dtype}, which is no floating point"
                )
            pieces.append(tensor.float())
            used.add(their_name)
        state[name] = torch.cat(pieces) if len(pieces) > 1 else pieces[0].contiguous()
    unknown = sorted(theirs.keys() - used)
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ValueError(f"{source}: the tensor {unknown[0]!r}{more} has no place in a model of this configuration")
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(True).eval()


def named(model: Transformer, config: FamilyConfig) -> dict[str, Tensor]:
    """A model's tensors under their names, before a family's to_theirs."""
    state, tensors = model.state_dict(), dict[str, Tensor]()
    for name, parts in places(model, config):
        pieces = torch.split(state[name][: sum(rows for _, rows in parts)], [rows for _, rows in parts])
        tensors |= {their_name: rows.contiguous() for (their_name, _), rows in zip(parts, pieces, strict=True)}
    return tensors


def exported(model: Transformer, config: FamilyConfig) -> dict[str, Tensor]:
    """A model's tensors as a Hugging Face folder has them."""
    module, tensors = families.family(config.family), named(model, config)
    return module.to_theirs(tensors, config) if hasattr(module, "to_theirs") else tensors
