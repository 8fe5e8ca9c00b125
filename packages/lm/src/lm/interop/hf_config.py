"""A config.json that is read setting by setting: what is not asked for and might matter is refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

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
            only = (
                f"only {supported[0]!r} is" if len(supported) < 3 else f"it is one of {', '.join(map(str, supported))}"
            )
            raise ValueError(f"{self.source}: {name} = {value!r} is not supported: {only}")
        return value

    def nothing_left(self) -> None:
        """ValueError: there is a setting that nobody took, and it may change what the model computes."""
        for name, value in self.table.items():
            harmless = name in HARMLESS or name.startswith(HARMLESS_BEGINNINGS)
            if not harmless and value not in (None, False, 0, 0.0, [], {}):
                shown = f"{name} = {str(value)[:60]}"
                raise ValueError(f"{self.source}: {shown} is not supported: remove it if it changes no result")
