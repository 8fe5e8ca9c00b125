"""The packages that count the FLOPs of a model, and the formula in our own components that each one's figure is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import transformers
from calflops import calculate_flops
from deepspeed.profiling.flops_profiler import FlopsProfiler
from fvcore.nn import FlopCountAnalysis
from llm_analysis.analysis import LLMAnalysis
from llm_analysis.config import ModelConfig, get_gpu_config_by_name
from ptflops import get_model_complexity_info
from thop import profile
from torch.utils.flop_counter import FlopCounterMode
from torchinfo import summary

from accounting import TransformerShape, forward_flops, parameters

LENGTH = 1024


class Logits(torch.nn.Module):
    """The model with nothing but ids going in and logits coming out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any) -> Any:
        # a mask that is made already: making one looks at values, which the meta device has not
        mask = torch.zeros(1, 1, ids.shape[1], ids.shape[1], device=ids.device)
        return self.model(ids, attention_mask=mask, use_cache=False).logits


def built(config: Any, attention: str, device: str) -> Logits:
    config = copy.deepcopy(config)  # which from_config writes to
    # one after the other, not grouped: a counter that knows no grouped product would miss the experts
    config._experts_implementation = "eager"
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return Logits(model.eval())


def by_torch(model: Logits, ids: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        model(ids)
    return int(counter.get_total_flops())


def by_fvcore(model: Logits, ids: Any) -> int:
    found = FlopCountAnalysis(model, ids)
    return int(found.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total())


def by_calflops(model: Logits, ids: Any) -> int:
    words = {"print_results": False, "output_as_string": False, "include_backPropagation": False}
    return int(calculate_flops(model=model, kwargs={"ids": ids}, forward_mode="forward", **words)[0])


def by_deepspeed(model: Logits, ids: Any) -> int:
    profiler = FlopsProfiler(model)
    profiler.start_profile()
    model(ids)
    found = int(profiler.get_total_flops())
    profiler.end_profile()
    return found


def by_ptflops(model: Logits, ids: Any) -> int:
    words = {"as_strings": False, "print_per_layer_stat": False, "verbose": False, "backend": "aten"}
    return int(get_model_complexity_info(model, (1,), input_constructor=lambda _: {"ids": ids}, **words)[0])


def by_thop(model: Logits, ids: Any) -> int:
    return int(profile(copy.deepcopy(model), inputs=(ids,), verbose=False)[0])


def by_torchinfo(model: Logits, ids: Any) -> int:
    return int(summary(model, input_data=[ids], verbose=0, device=ids.device).total_mult_adds)


def by_llm_analysis(shape: TransformerShape) -> int:
    """From the sizes alone; a d_ff that is no multiple of d_model it refuses."""
    sizes = {"num_layers": shape.num_layers, "n_head": shape.num_heads, "hidden_dim": shape.d_model}
    sizes |= {"vocab_size": shape.vocab_size, "max_seq_len": shape.context_length, "ffn_embed_dim": shape.d_ff}
    analysis = LLMAnalysis(ModelConfig(name="audited", **sizes), get_gpu_config_by_name("a100-sxm-40gb"))
    return int(analysis.get_num_flops_fwd_total(1, LENGTH))


def without_scores(shape: TransformerShape) -> int:
    counted = forward_flops(shape, LENGTH)
    return int(counted.total) - int(counted["scores"])


def norm_elements(shape: TransformerShape) -> int:
    """5 for each number that a LayerNorm reads; RMSNorms are written out in transformers and no module is seen."""
    return 5 * shape.norms * LENGTH * shape.d_model if shape.norm == "layernorm" else 0


def functions(shape: TransformerShape) -> int:
    """One for each number that torch's softmax or SiLU gives, and for each bias that addmm adds."""
    T, L = LENGTH, shape.num_layers
    found = L * shape.num_heads * T * T + norm_elements(shape)
    if shape.ffn == "swiglu":  # Gemma's GELU is written out too
        found += L * shape.active_experts * shape.d_ff * T
    if shape.experts:
        found += L * T * shape.experts
    if (
        shape.bias
    ):  # GPT-2's GELU is written out, its projections are addmm, whose bias is counted once, not for each position
        e = shape.head_width
        found += L * ((shape.num_heads + 2 * shape.kv_heads) * e + 2 * shape.d_model + shape.d_ff)
    return found


def linear_biases(shape: TransformerShape) -> int:
    """One for each position and bias of what queries, keys and values, or with bias=True all products, are."""
    e, d = shape.head_width, shape.d_model
    each = (shape.num_heads + 2 * shape.kv_heads) * e if shape.biased_qkv else 0
    return LENGTH * shape.num_layers * (each + (2 * d + shape.d_ff if shape.bias else 0))


def linear_modules(shape: TransformerShape) -> int:
    """Weights times positions of torch's Linears; GPT-2's products are none, experts are no modules of their own."""
    count, bias = parameters(shape), shape.num_layers * (shape.num_heads + 2 * shape.kv_heads) * shape.head_width
    found = shape.vocab_rows * shape.d_model
    if shape.norm == "layernorm":
        return LENGTH * (found + 4 * shape.norms * shape.d_model)
    found += int(count["attention"]) - (bias if shape.biased_qkv else 0)
    return LENGTH * (found + (0 if shape.experts else int(count["ffn"])))


def once_a_sequence(shape: TransformerShape) -> int:
    """The parameters of every module, a tied head's too; of GPT-2's Conv1D times its outputs; of a router times
    positions."""
    count, V, d, f = parameters(shape), shape.vocab_rows, shape.d_model, shape.d_ff
    found = int(count["embedding"]) + int(count["positions"]) + int(count["norms"]) + V * d
    if shape.norm == "layernorm":
        inputs_outputs = ((d, 3 * d), (d, d), (d, f), (f, d))
        return found + shape.num_layers * sum(wide * (deep * wide + wide) for deep, wide in inputs_outputs)
    found += int(count["attention"]) + LENGTH * int(count["router"])
    return found + (0 if shape.experts else int(count["ffn"]))


def total(shape: TransformerShape) -> int:
    return int(forward_flops(shape, LENGTH).total)


def six_n(shape: TransformerShape) -> int:
    """6 × tokens × (all parameters without embedding and positions; a head that is not tied stays)."""
    count = parameters(shape)
    return 6 * LENGTH * (int(count.total) - int(count["embedding"]) - int(count["positions"]))


def by_trainer(model: Logits, ids: Any) -> int:
    """transformers.Trainer.floating_point_ops, whose whole formula this is."""
    return 6 * ids.numel() * int(model.model.num_parameters(exclude_embeddings=True))


COUNTERS: dict[str, tuple[str, Callable[[Logits, Any], int], Callable[[TransformerShape], int], str]] = {
    "torch FlopCounterMode, eager attention": ("eager", by_torch, total, "the same"),
    "torch FlopCounterMode, fused attention": (
        "sdpa",
        by_torch,
        without_scores,
        "the fused kernel of a CPU is not in its table: exactly the scores are missing",
    ),
    "fvcore": (
        "eager",
        by_fvcore,
        lambda shape: total(shape) // 2 + norm_elements(shape),
        "a multiplication and its addition are one; LayerNorm is 5 a number",
    ),
    "calflops": (
        "eager",
        by_calflops,
        lambda shape: total(shape) + functions(shape),
        "also one for each number out of softmax and activation, 5 for LayerNorm, one for each bias of an addmm",
    ),
    "deepspeed": (
        "eager",
        by_deepspeed,
        lambda shape: total(shape) + functions(shape),
        "as calflops; on the meta device it counts products with a bias twice, so here only what is computed",
    ),
    "ptflops, aten": (
        "eager",
        by_ptflops,
        lambda shape: total(shape) // 2 + linear_biases(shape),
        "a multiplication and its addition are one; one for each position and bias",
    ),
    "thop": (
        "eager",
        by_thop,
        linear_modules,
        "torch's Linear modules alone, a multiplication and its addition being one: no scores, no experts, of GPT-2, "
        "whose products are modules of transformers' own, nothing but the head; LayerNorm is 4 a number",
    ),
    "torchinfo, mult-adds": (
        "eager",
        by_torchinfo,
        once_a_sequence,
        "a module's parameters once a sequence, whatever its length, experts not at all; of GPT-2's modules, whose "
        "name begins with Conv, times their outputs",
    ),
    "transformers Trainer, forward and backward": (
        "eager",
        by_trainer,
        six_n,
        "6 a parameter and token: no scores, norms and biases as if they were products, a tied head not at all",
    ),
}
