"""Models in GGUF, both ways: llama.cpp's architecture of each, its settings, and the names of its tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm.attention import rope_frequencies
from lm.config import FrozenTable, ModelConfig
from lm.extras import need
from lm.families import rope as ropes
from lm.families.parts import FULL, SLIDING, FamilyConfig
from lm.interop.shapes import ROPE_NAMES, as_family, config_type, name_of
from lm.interop.tensors import exported, table, to_halves, to_neighbours
from lm.model import Transformer

# llama.cpp's keys of the sizes that all models have, and our fields.
SIZES = {
    "context_length": "context_length",
    "embedding_length": "d_model",
    "block_count": "num_layers",
    "feed_forward_length": "d_ff",
    "attention.head_count": "num_heads",
    "attention.head_count_kv": "kv_heads",
    "vocab_size": "vocab_size",
}
EXPERT = re.compile(r"model\.layers\.(\d+)\..*\.experts\.(\d+)\.(\w+)\.(weight|bias)")
ROTATED = re.compile(r"\.attn_[qk]\.(weight|bias)")
EXPERT_PARTS = {"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
# The settings that are a family's own, by llama.cpp's keys, and our fields.
GEMMA = {"final_logit_softcapping": "logit_softcap", "attn_logit_softcapping": "attn_logit_softcapping"}
GRANITE = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
EXPERTS = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}
LOCAL_EXPERTS = EXPERTS | {"expert_count": "num_local_experts"}
EXPERT_WIDTH = "expert_feed_forward_length"
# Layers of the Gemmas 2 and 3 of 27 billion parameters, whose scores have a factor that no file names.
LAYERS_OF_27B = {"gemma2": 46, "gemma3_text": 62}
ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
SCALING_KEY = "groundup.rope.scaling"
ORIGINAL = "original_max_position_embeddings"
MOST_ROPE_FACTOR = 1e-6  # how far from 1 a factor may be that changes nothing


@dataclass(frozen=True)
class Kind:
    """A family in llama.cpp: its name there, and the settings that llama.cpp has of it."""

    architecture: str
    settings: Mapping[str, str] = field(default_factory=dict)  # its own, by llama.cpp's keys, and our fields
    windows: int = 0  # every layer of this number sees all, the others have windows; 0: none has one
    scalings: tuple[str, ...] = ("default", "linear", "yarn")  # the rope_types that it has
    turns_neighbours: bool = False  # it rotates pairs (2i, 2i + 1), and the folder pairs (i, i + width / 2)
    norms_above_one: bool = False  # weights of norms are written with 1 added
    only: Mapping[str, Any] = field(default_factory=dict)  # settings that it has with one value alone


class Fields:
    """The header of a file, and its tensors; errors begin with its path."""

    def __init__(self, path: Path) -> None:
        gguf = need("gguf", "GGUF", "groundup-lm[gguf]")
        with open(path, "rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError(f"{path} is not a GGUF file")
        try:
            reader = gguf.GGUFReader(path, "c")  # torch wants memory that may be written
            self.settings = {name: field.contents() for name, field in reader.fields.items()}
        except (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError) as error:
            raise ValueError(f"{path} is damaged or cut short: export or download it again ({error})") from None
        self.path, self.gguf = path, gguf
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def get(self, name: str, default: Any = None) -> Any:
        return self.settings.get(name, default)

    def need(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise ValueError(f"{self.path}: {name} is missing")
        return value

    def at(self, name: str, default: Any = None) -> Any:
        """A setting of the architecture."""
        return self.get(f"{self.get('general.architecture')}.{name}", default)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors, by name."""
        return {name: tuple(int(size) for size in reversed(one.shape)) for name, one in self.tensors.items()}

    def array(self, name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The values of a tensor. ValueError: its type of numbers is not read."""
        one = self.tensors[name]
        try:
            array = self.gguf.quants.dequantize(one.data, one.tensor_type)
        except (RuntimeError, ValueError, KeyError) as error:
            raise ValueError(f"{self.path}: {name} has numbers of the type {one.tensor_type.name}: {error}") from None
        return np.array(array, dtype=np.float32).reshape(self.shapes[name])


ROPES = ("default", "linear", "yarn", "llama3")
KINDS = {
    "cohere": Kind("command-r", {"logit_scale": "logit_scale"}, only={"use_qk_norm": False}),
    "cohere2": Kind("cohere2", {"logit_scale": "logit_scale"}, windows=4),
    "gemma": Kind("gemma", norms_above_one=True),
    "gemma2": Kind("gemma2", GEMMA, windows=2, norms_above_one=True, only={"query_scale": 1.0}),
    "gemma3_text": Kind(
        "gemma3", GEMMA, windows=6, norms_above_one=True, only={"query_scale": 1.0, "attn_logit_softcapping": None}
    ),
    "glm4": Kind("glm4", only={"bias": True}),
    "gpt2": Kind("gpt2", only={"activation_function": "gelu_new"}),
    "gpt_neox": Kind("gptneox", {"use_parallel_residual": "use_parallel_residual"}, only={"hidden_act": "gelu"}),
    "gpt_oss": Kind(
        "gpt-oss", LOCAL_EXPERTS | {EXPERT_WIDTH: "d_ff"}, windows=2, only={"swiglu_alpha": 1.702, "swiglu_limit": 7.0}
    ),
    "granite": Kind("granite", GRANITE, scalings=ROPES, turns_neighbours=True),
    "llama": Kind("llama", scalings=ROPES, turns_neighbours=True),
    "mistral": Kind("llama", scalings=ROPES, turns_neighbours=True),
    "mixtral": Kind("llama", LOCAL_EXPERTS, turns_neighbours=True),
    "olmo2": Kind("olmo2"),
    "olmo3": Kind("olmo2", windows=4),
    "olmoe": Kind("olmoe", EXPERTS | {EXPERT_WIDTH: "d_ff"}, only={"norm_topk_prob": False}),
    "phi3": Kind("phi3", scalings=("default", "longrope")),
    "qwen2": Kind("qwen2"),
    "qwen3": Kind("qwen3", only={"bias": False}),
    "qwen3_moe": Kind(
        "qwen3moe",
        EXPERTS | {EXPERT_WIDTH: "moe_intermediate_size"},
        only={"norm_topk_prob": True, "mlp_only_layers": (), "decoder_sparse_step": 1},
    ),
    "smollm3": Kind("smollm3", scalings=ROPES, turns_neighbours=True),
    "starcoder2": Kind("starcoder2", only={"use_bias": True}),
}


def kind_of(config: FamilyConfig) -> Kind:
    """llama.cpp's kind of a family. ValueError: it does not have this model, with the setting."""
    kind = KINDS[config.family]
    for lack in lacks(config, kind):
        raise ValueError(f"llama.cpp's {kind.architecture} has no {lack}: such a model is not exported to GGUF")
    return kind


def lacks(config: FamilyConfig, kind: Kind) -> Iterator[str]:
    """Yield the settings of a model that its kind does not have in llama.cpp."""
    for name, value in kind.only.items():
        if getattr(config, name) != value:
            yield f"{name} {getattr(config, name)!r}"
    for layer in range(config.num_layers):
        window, is_rotated = config.window(layer), config.rope_of(layer) is not None
        slides = kind.windows > 0 and (layer + 1) % kind.windows > 0
        if (window is not None) != slides and (window is None or kind.windows or window < config.context_length):
            yield f"window {window!r} of layer {layer}"
        if config.family == "smollm3" and is_rotated == ((layer + 1) % 4 == 0):
            yield f"layer {layer} that is{'' if is_rotated else ' not'} rotated"
    for parameters in config.rope_tables.values():
        if parameters.get("rope_type", "default") not in kind.scalings:
            yield f"rope_type {parameters['rope_type']!r}"
        if not parameters.get("truncate", True) and config.family != "gpt_oss":
            yield f"truncate {parameters['truncate']!r}"
    if config.num_layers == LAYERS_OF_27B.get(config.family):  # llama.cpp scales their scores as 27B's
        yield f"{config.num_layers} layers with query_scale {config.query_scale}"
    for name in GEMMA.values() if config.family == "gemma2" else ():
        if getattr(config, name) is None:  # llama.cpp reads the usual bend from a file without one
            yield f"{name} None"
    if config.family == "olmoe" and config.kv_heads != config.num_heads:
        yield f"num_kv_heads {config.kv_heads}"


def describe(writer: Any, c: FamilyConfig, gguf: Any) -> None:
    """The sizes of a model, its windows, its rotation and the family's own settings."""
    kind = kind_of(c)
    for key, name in SIZES.items():
        writer.add_uint32(f"{kind.architecture}.{key}", getattr(c, name))
    (writer.add_layer_norm_eps if c.norm == "layernorm" else writer.add_layer_norm_rms_eps)(c.norm_eps)
    if c.position != "rope":
        return
    writer.add_key_length(c.head_width)
    writer.add_value_length(c.head_width)
    if kind.windows:
        assert c.sliding_window is not None
        writer.add_sliding_window(c.sliding_window)
        if c.family == "olmo3":
            writer.add_sliding_window_pattern([one == SLIDING for one in c.layer_types])
    by_kind = c.rope_tables
    rope = by_kind[FULL]
    writer.add_rope_dimension_count(ropes.rotated_width(rope, c.head_width))
    writer.add_rope_freq_base(rope["rope_theta"])
    if SLIDING in by_kind:
        writer.add_rope_freq_base_swa(by_kind[SLIDING]["rope_theta"])
    scaling = rope.get("rope_type", "default")
    if scaling in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
        original = rope.get(ORIGINAL, c.context_length)
        writer.add_rope_scaling_factor(rope.get("factor") or c.context_length / original)
        if scaling == "linear" and float(np.float32(rope["factor"])) != rope["factor"]:
            describe_scaling(writer, {"factor": rope["factor"]})
        if scaling == "yarn":
            writer.add_rope_scaling_orig_ctx_len(original)
            writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast") or 32.0)
            writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow") or 1.0)
            plain = {**rope, "mscale": None, "attention_factor": None}
            factors = [ropes.attention_factor(parameters, c.context_length) for parameters in (rope, plain)]
            if factors[0] != factors[1]:  # the file's is a multiple of the plain one
                writer.add_rope_scaling_attn_factors(factors[0] / factors[1])
    elif scaling == "longrope":
        writer.add_rope_scaling_orig_ctx_len(rope[ORIGINAL])
        writer.add_rope_scaling_attn_factors(ropes.attention_factor(rope, c.context_length))
    elif scaling == "llama3":
        describe_scaling(writer, {name: rope[name] for name in ROPE_NAMES})
    for key, name in kind.settings.items():
        value, add = getattr(c, name), writer.add_uint32 if "expert" in key else writer.add_float32
        if value is not None:
            (writer.add_bool if isinstance(value, bool) else add)(f"{kind.architecture}.{key}", value)


def describe_scaling(writer: Any, settings: Mapping[str, Any]) -> None:
    """Write under keys of our own where the factors that llama.cpp reads come from, in fp64."""
    for name, value in settings.items():
        if value is not None:
            (writer.add_uint32 if isinstance(value, int) else writer.add_float64)(f"{SCALING_KEY}.{name}", value)


def tensors(model: Transformer, gguf: Any) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors by llama.cpp's names."""
    config = model.config
    rope = as_family(config).rope_tables[FULL]
    if rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", slowing(rope, config.head_width)
    if rope.get("rope_type") == "longrope":
        yield "rope_factors_short.weight", torch.tensor(rope["short_factor"])
        yield "rope_factors_long.weight", torch.tensor(rope["long_factor"])
    family, experts = name_of(config), dict[str, list[Tensor]]()
    kind, names = KINDS[family], tensor_names(family, config.num_layers, gguf)
    for name, tensor in exported(model, in_gguf=True):
        places, number = names(name)
        for place, rows in zip(places, tensor.chunk(len(places)), strict=True):
            if number is not None:
                experts.setdefault(place, []).append(rows)
                continue
            if kind.norms_above_one and place.endswith("norm.weight"):
                rows = rows + 1
            if kind.turns_neighbours and ROTATED.search(place):
                rows = to_neighbours(rows, config.head_width)
            yield place, rows
    for name, matrices in experts.items():
        yield name, torch.stack(matrices)


def folder_tensors(config: ModelConfig, stored: Mapping[str, Tensor], gguf: Any) -> dict[str, Tensor]:
    """The inverse of tensors(): a file's tensors by a folder's names, after from_hf; others keep their own names."""
    family, used, result = name_of(config), set[str](), dict[str, Tensor]()
    kind, names = KINDS[family], tensor_names(family, config.num_layers, gguf)
    for name in (part.name for parts in table(config).values() for part in parts):
        places, number = names(name)
        if not stored.keys() >= set(places):
            continue  # the caller names the tensor that is missing
        used |= set(places)
        rows = torch.cat([stored[place] if number is None else stored[place][number] for place in places])
        if kind.norms_above_one and places[0].endswith("norm.weight"):
            rows = rows - 1
        if kind.turns_neighbours and ROTATED.search(places[0]):
            rows = to_halves(rows, config.head_width)
        result[name] = rows
    return result | {name: stored[name] for name in stored.keys() - used}


def tensor_names(family: str, layers: int, gguf: Any) -> Callable[[str], tuple[list[str], int | None]]:
    """A function from a tensor's name in a folder to the tensors of a file that it is in, and its expert's number."""
    kind = KINDS[family]
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == kind.architecture)
    names = gguf.get_tensor_name_map(architecture, layers)

    def places(name: str) -> tuple[list[str], int | None]:
        expert = EXPERT.fullmatch(name)
        if expert is not None:
            layer, number, part, suffix = expert.groups()
            parts = ("gate", "up") if part == "gate_up_proj" else (EXPERT_PARTS[part],)
            return [f"blk.{layer}.ffn_{part}_exps.{suffix}" for part in parts], int(number)
        key, _, suffix = name.rpartition(".") if name.endswith((".weight", ".bias")) else (name, "", "weight")
        gguf_name = names.get_name(key)
        if gguf_name is None:
            raise ValueError(f"llama.cpp's {kind.architecture} has no tensor {name!r}: such a model has no GGUF")
        return [f"{gguf_name}.{suffix}"], None

    return places


def family_of(architecture: str, fields: Fields) -> str:
    """The family of a file of this architecture, one of KINDS."""
    window = fields.at("attention.sliding_window")
    if architecture == "llama":
        slides = window and window < fields.at("context_length", 0)
        return "mixtral" if fields.at("expert_count") else "mistral" if slides else "llama"
    if architecture == "olmo2" and window:
        return "olmo3"
    return next(family for family, kind in KINDS.items() if kind.architecture == architecture)


def family_config(family: str, sizes: Mapping[str, Any], fields: Fields) -> FamilyConfig:
    """The configuration in a header, the inverse of describe(). ValueError: a setting is not supported, by name."""
    kind = config_type(family)
    settings = set(kind.settings().values())
    values = {**sizes, "family": family} | {name: one for name, one in KINDS[family].only.items() if name in settings}
    if sizes["num_layers"] == LAYERS_OF_27B.get(family):
        raise ValueError(f"{fields.path}: a Gemma of 27 billion parameters is not read from GGUF: take its folder")
    for key, name in KINDS[family].settings.items():
        if (value := fields.at(key)) is not None:
            values[name] = value
    if family.startswith("gemma") and "query_pre_attn_scalar" in settings:
        values["query_pre_attn_scalar"] = sizes["head_dim"]
    for name, tensors in (("bias", ("attn_q", "attn_qkv")), ("mlp_bias", ("ffn_up",))):
        if name in settings:
            values[name] = any(f"blk.0.{tensor}.bias" in fields.tensors for tensor in tensors)
    window = fields.at("attention.sliding_window")
    if window and window < sizes["context_length"] and "sliding_window" not in settings:
        raise ValueError(f"{fields.path}: attention.sliding_window = {window} is not supported of this architecture")
    if "sliding_window" in settings:
        values["sliding_window"] = window or None
    if family == "qwen3" and window and window < sizes["context_length"]:
        values |= {"use_sliding_window": True, "max_window_layers": 0}
    pattern = fields.at("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        values["layer_types"] = tuple(SLIDING if slides else FULL for slides in pattern)
    rope = rope_parameters(kind, values, fields)
    if ORIGINAL in settings:
        values[ORIGINAL] = rope.get(ORIGINAL, sizes["context_length"])
    if kind.local_theta is not None:
        name, default = kind.local_theta
        local = float(fields.at("rope.freq_base_swa", rope["rope_theta"] if name == "rope_theta" else default))
        rope = {FULL: rope, SLIDING: {"rope_theta": local, "rope_type": "default"}}
    own = {name: value for name, value in values.items() if name in (*settings, "family")}
    try:
        return kind(**own, rope_parameters=FrozenTable(rope))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{fields.path}: {error}") from None


def rope_parameters(kind: type[FamilyConfig], values: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """The rotation of the layers that see all, as config.json has it."""
    head_dim, context = values["head_dim"], values["context_length"]
    theta = float(fields.at("rope.freq_base", kind.default_theta))
    rope: dict[str, Any] = {"rope_theta": theta, "rope_type": "default"}
    share = int(fields.at("rope.dimension_count", head_dim)) / head_dim
    if share != 1.0:
        rope["partial_rotary_factor"] = share
    scaling = fields.at("rope.scaling.type", "none")
    factor = float(fields.get(f"{SCALING_KEY}.factor", fields.at("rope.scaling.factor", 1.0)))
    original = {ORIGINAL: fields.at("rope.scaling.original_context_length", context)}
    attention_factor = float(fields.at("rope.scaling.attn_factor", 1.0))
    if "rope_factors_long.weight" in fields.tensors:
        for name in ("short", "long"):
            rope[f"{name}_factor"] = tuple(fields.array(f"rope_factors_{name}.weight").tolist())
        return {**rope, **original, "rope_type": "longrope", "attention_factor": attention_factor}
    if scaling == "linear":
        return {**rope, "rope_type": "linear", "factor": factor}
    if scaling == "yarn":
        rope |= {**original, "rope_type": "yarn", "factor": factor}
        for name, beta in (("beta_fast", 32.0), ("beta_slow", 1.0)):
            rope[name] = fields.at(f"rope.scaling.yarn_{name}", beta)
        rope["attention_factor"] = ropes.attention_factor(rope, context) * attention_factor
        return rope | ({"truncate": False} if values["family"] == "gpt_oss" else {})
    if scaling not in ("none", None):
        raise ValueError(f"{fields.path}: rope scaling {scaling!r} is not supported in a GGUF file")
    return rope if "rope_freqs.weight" not in fields.tensors else rope | scaling_of(fields, rope, head_dim)


def slowing(rope: Mapping[str, Any], head_dim: int) -> Tensor:
    """Factor by which scaling slows each pair's rotation, (width / 2,), float64: llama.cpp's rope_freqs.weight."""
    plain = rope_frequencies(ropes.rotated_width(rope, head_dim), rope["rope_theta"])
    return plain / ropes.frequencies(rope, head_dim, 0, torch.zeros((), dtype=torch.float64))


def scaling_of(fields: Fields, rope: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    """The scaling that rope_freqs.weight comes from: the file's own, linear, or Llama 3's with its usual bounds."""
    factors = torch.from_numpy(fields.array("rope_freqs.weight")).double().flatten()
    own = {name: value for name in ROPE_NAMES if (value := fields.get(f"{SCALING_KEY}.{name}")) is not None}
    if not own and (factors - 1).abs().max() < MOST_ROPE_FACTOR:
        return {}
    factor, contexts = round(float(factors.max()), 6), (8192, 4096, 2048, 16384, 32768)
    usual = [(factor, 1.0, high, context) for context in contexts for high in (4.0, 32.0)]
    candidates = [own] if own else []
    candidates += [{"factor": factor}, *(dict(zip(ROPE_NAMES, values, strict=True)) for values in usual)]
    for candidate in candidates:
        scaling = {**candidate, "rope_type": "llama3" if len(candidate) > 1 else "linear"}
        try:
            slower = slowing({**rope, **scaling}, head_dim)
        except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(f"{fields.path}: the scaling {own} is damaged: {error!r}") from None
        if slower.shape == factors.shape and torch.allclose(slower, factors, rtol=1e-4):
            return scaling
    raise ValueError(f"{fields.path}: the factors of its rotary embedding (rope_freqs.weight) are of no known scaling")
