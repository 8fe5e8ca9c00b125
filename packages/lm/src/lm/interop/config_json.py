"""A config.json read setting by setting, by the table of its family; unknown settings are refused."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from lm.config import FrozenTable
from lm.families.parts import FULL, SLIDING, FamilyConfig
from lm.interop.shapes import NAMES, config_type

MOST_LAYERS = 1 << 14
Value = TypeVar("Value")
REQUIRED: Any = object()

# What says nothing of what the model computes: names, dtypes, training, special tokens, and how it is run.
HARMLESS = {
    "architectures", "attention_dropout", "attn_implementation", "attn_pdrop", "auto_map", "bos_token_id",
    "cache_implementation", "chunk_size_feed_forward", "classifier_dropout", "dtype", "embd_pdrop",
    "embedding_dropout", "eos_token_id", "gradient_checkpointing", "hidden_dropout", "id2label", "initializer_range",
    "is_decoder", "is_encoder_decoder", "label2id", "mask_token_id", "model_max_length", "model_type", "n_ctx",
    "name_or_path", "output_attentions", "output_hidden_states", "output_router_logits", "pad_token_id",
    "predict_special_tokens", "pretraining_tp", "problem_type", "resid_pdrop", "residual_dropout", "return_dict",
    "router_jitter_noise", "sep_token_id", "task_specific_params", "tie_encoder_decoder", "tokenizer_class",
    "torch_dtype", "transformers_version", "unk_token_id", "use_bfloat16", "use_cache",
}  # fmt: skip
HARMLESS_BEGINNINGS = ("_", "summary_", "unsloth_")


class Settings:
    """The settings of a config.json; errors begin with `source`."""

    def __init__(self, table: Mapping[str, Any], source: object) -> None:
        self.table, self.source = dict(table), source

    def take(self, name: str, kind: type[Value], default: Any = REQUIRED) -> Any:
        """A setting of this kind. ValueError: it is of another, or is missing and has no default."""
        value = self.table.pop(name, None)
        if value is None:
            if default is REQUIRED:
                raise ValueError(f"{self.source}: the setting {name!r} is missing")
            return default
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise ValueError(f"{self.source}: {name!r} is {value!r}, and should be {kind.__name__}")
        return value

    def only(self, name: str, supported: tuple[Any, ...], default: Any) -> Any:
        """A setting that is supported with some values only. ValueError: it has another, which is named."""
        value = self.table.pop(name, None)
        value = default if value is None else value
        if value not in supported:
            several = f"it is one of {', '.join(map(str, supported))}"
            only = f"only {supported[0]!r} is" if len(supported) < 3 else several
            raise ValueError(f"{self.source}: {name} = {value!r} is not supported: {only}")
        return value

    def nothing_left(self) -> None:
        """ValueError: there is a setting that nobody took, and it may change what the model computes."""
        for name, value in self.table.items():
            harmless = name in HARMLESS or name.startswith(HARMLESS_BEGINNINGS)
            if not harmless and value not in (None, False, 0, 0.0, [], {}):
                shown = f"{name} = {str(value)[:60]}"
                raise ValueError(f"{self.source}: {shown} is not supported: remove it if it changes no result")


def from_config(table: Mapping[str, Any], source: object) -> FamilyConfig:
    """The configuration that a config.json describes. ValueError: what this version does not do, by name."""
    settings = Settings(table, source)
    model_type = settings.table.pop("model_type", None)
    if model_type not in NAMES:
        raise ValueError(f"{source}: model_type {model_type!r} is not supported: it is one of {', '.join(NAMES)}")
    kind = config_type(model_type)
    layers = settings.table.get("num_hidden_layers")
    if isinstance(layers, int) and layers > MOST_LAYERS:  # refused before a list of them is made
        raise ValueError(f"{source}: num_hidden_layers is {layers:,}, and at most {MOST_LAYERS:,} are read")
    # Settings that change nothing, other names of one setting, and settings that are supported with some values only.
    for name in kind.ignored:
        settings.table.pop(name, None)
    for alias, name in kind.aliases.items():
        value = settings.table.pop(alias, None)
        if value is not None and settings.table.setdefault(name, value) != value:
            raise ValueError(f"{source}: {alias} = {value!r} contradicts {name} = {settings.table[name]!r}")
    for name, supported in kind.fixed.items():
        settings.only(name, supported, supported[0])
    # Every other setting by the field that it is, of the type that the field declares.
    hints, fields = typing.get_type_hints(kind), {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {"family": model_type, "rope_parameters": rope_parameters(settings, kind)}
    pattern = settings.take("sliding_window_pattern", int, kind.full_every)
    for setting, name in kind.settings().items():
        default = fields[name].default
        if settings.table.get(setting, default) is None and type(None) in typing.get_args(hints[name]):
            settings.table.pop(setting, None)
            values[name] = None
            continue
        value = settings.take(setting, basic(hints[name]), REQUIRED if default is dataclasses.MISSING else default)
        values[name] = tuple(value) if isinstance(value, list) else value
    if pattern is not None and not values["layer_types"]:
        values["layer_types"] = tuple(SLIDING if (i + 1) % pattern else FULL for i in range(values["num_layers"]))
    rope = values["rope_parameters"]
    if rope.get("rope_type") == "dynamic":  # Hugging Face's scales from the context on, without an end
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
    theta = settings.take("rope_theta", float, kind.default_theta)
    share = settings.take("partial_rotary_factor", float, kind.default_partial)
    local, local_theta = kind.local_theta, theta
    if local is not None and local[0] != "rope_theta":
        local_theta = settings.take(local[0], float, local[1])
    today, before = (settings.take(key, dict, None) for key in ("rope_parameters", "rope_scaling"))
    tables: dict[str, Any] = before or today or {}

    def complete(table: Mapping[str, Any], theta: float) -> dict[str, Any]:
        older = table.get("type", "default")
        kind_of = str(table.get("rope_type", older))
        rest = {name: value for name, value in table.items() if name != "type" and value is not None}
        rest = {"rope_theta": theta, **rest, "rope_type": kind.rope_renamed.get(kind_of, kind_of)}
        rest.setdefault("partial_rotary_factor", share)
        if rest["partial_rotary_factor"] == 1.0:
            del rest["partial_rotary_factor"]
        if rest["rope_type"] in ("longrope", "llama3", "yarn"):
            name = "original_max_position_embeddings"
            rest.setdefault(name, settings.table.get(name) or settings.table.get("max_position_embeddings"))
        return rest

    if local is None:
        return complete(tables, theta)
    if not {SLIDING, FULL} & tables.keys():
        tables = {FULL: tables}  # of older files, which scale these layers alone
    own = Settings(tables, settings.source)
    return {name: complete(own.take(name, dict, {}), base) for name, base in ((FULL, theta), (SLIDING, local_theta))}
