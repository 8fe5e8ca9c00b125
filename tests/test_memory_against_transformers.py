"""The memory of training families that lm does not have, against transformers' models: what is alive after a forward
pass, as integers, and the peak of a step.

Two things of theirs are put in the place of others: a norm and an attention that save what fused kernels save, where
the policy says "fused", and of Llama 4 and for peaks experts that are matrices of their own and read gathered tokens.
Of BLOOM, Falcon and GPT-J, whose code has an attention of its own, that between its projections is Llama's, and of
BLOOM the GELU is torch's. In place of LayerNorms are some that keep statistics in fp32, as torch's do on a GPU alone.
"""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the models need torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="the models are in transformers, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")
pytest.importorskip("lm", reason="the loss is in lm, which is not installed")

from family_configs import small_config  # noqa: E402
from live_bytes import Live, recomputed  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.autograd import Function  # noqa: E402
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts  # noqa: E402
from transformers.masking_utils import eager_mask  # noqa: E402

from accounting import Policy  # noqa: E402
from lm.loss import cross_entropy  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


class FusedRMSNorm(Function):
    """Saves its input and one statistic a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, eps: float) -> Tensor:
        scale = x.float().square().mean(-1, keepdim=True).add(eps).rsqrt()
        ctx.save_for_backward(x, weight, scale)
        out = (x.float() * scale).to(x.dtype)
        return out if weight is None else out * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, scale = ctx.saved_tensors
        normal = x.float() * scale
        inner = grad.float() if weight is None else grad.float() * weight.float()
        of_x = scale * (inner - normal * (inner * normal).mean(-1, keepdim=True))
        of_weight = None if weight is None else (grad.float() * normal).flatten(0, -2).sum(0).to(weight.dtype)
        return of_x.to(x.dtype), of_weight, None


class FusedAttention(Function):
    """Causal attention that saves queries, keys, values, output and one log-sum-exp a row, as FlashAttention does.

    q (batch, heads, seq, width), k and v with as many heads or fewer; sinks (heads,) or None; window: positions seen.
    """

    @staticmethod
    def scores(q: Tensor, k: Tensor, scale: float, window: int | None) -> Tensor:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        at = torch.arange(q.shape[2])
        seen = at[:, None] >= at
        if window is not None:
            seen &= at[:, None] - at < window
        return (q @ k.transpose(2, 3) * scale).float().masked_fill(~seen, float("-inf"))

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Any, scale: float, window: int | None) -> Tensor:
        scores = FusedAttention.scores(q, k, scale, window)
        total = scores.logsumexp(-1)  # (batch, heads, seq)
        if sinks is not None:
            total = torch.logaddexp(total, sinks.float()[:, None].expand_as(total))
        group = q.shape[1] // v.shape[1]
        out = (scores - total[..., None]).exp().to(v.dtype) @ v.repeat_interleave(group, 1)
        out = out.transpose(1, 2).contiguous()  # (batch, seq, heads, width), as the next matrix reads it
        ctx.save_for_backward(q, k, v, out, total, sinks)
        ctx.scale, ctx.window = scale, window
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, out, total, sinks = ctx.saved_tensors
        group = q.shape[1] // k.shape[1]
        weights = (FusedAttention.scores(q, k, ctx.scale, ctx.window) - total[..., None]).exp()
        grad = grad.transpose(1, 2).float()
        row = (grad * out.transpose(1, 2).float()).sum(-1, keepdim=True)
        of_scores = weights * (grad @ v.repeat_interleave(group, 1).transpose(2, 3).float() - row) * ctx.scale

        def of_heads(all_heads: Tensor, like: Tensor) -> Tensor:
            return all_heads.unflatten(1, (-1, group)).sum(2).to(like.dtype)

        of_sinks = None
        if sinks is not None:
            of_sinks = -((sinks.float()[:, None] - total).exp()[..., None] * row).sum((0, 2, 3)).to(sinks.dtype)
        of_q = (of_scores @ k.repeat_interleave(group, 1).float()).to(q.dtype)
        of_k = of_heads(of_scores.transpose(2, 3) @ q.float(), k)
        return of_q, of_k, of_heads(weights.transpose(2, 3) @ grad, v), of_sinks, None, None


def fused_attention(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, scaling: float, **rest: Any) -> Any:
    return FusedAttention.apply(q, k, v, rest.get("s_aux"), scaling, rest.get("sliding_window")), None


class FusedLayerNorm(Function):
    """Saves its input and two statistics a row in fp32, as torch's does on a GPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Any) -> Tensor:
        out, mean, scale = torch.native_layer_norm(x.float(), x.shape[-1:], None, None, 1e-5)
        ctx.save_for_backward(x, weight, mean, scale)
        out = out.to(x.dtype) * weight
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, mean, scale = ctx.saved_tensors
        of_x, of_weight, of_bias = torch.ops.aten.native_layer_norm_backward(
            grad.float(), x.float(), x.shape[-1:], mean, scale, weight.float(), weight.float(), [True, True, True]
        )
        return (
            of_x.to(x.dtype),
            of_weight.to(weight.dtype),
            of_bias.to(weight.dtype) if ctx.needs_input_grad[2] else None,
        )


class Norm(nn.Module):
    """A norm in the place of transformers' own: fused, or torch's."""

    def __init__(self, of: Any, kernel: str) -> None:
        super().__init__()
        self.weight, self.bias, self.kernel = getattr(of, "weight", None), getattr(of, "bias", None), kernel
        self.centred = "LayerNorm" in type(of).__name__

    def forward(self, x: Tensor) -> Tensor:
        if self.centred:
            return FusedLayerNorm.apply(x, self.weight, self.bias)
        if self.kernel == "fused":
            return FusedRMSNorm.apply(x, self.weight, 1e-6)
        return nn.functional.rms_norm(x, x.shape[-1:] if self.weight is None else self.weight.shape, self.weight, 1e-6)


class Gathered(nn.Module):
    """Llama 4's mixture of experts, of which each reads the tokens that chose it: with a shared one."""

    def __init__(self, of: Any) -> None:
        super().__init__()
        self.router, self.shared, self.top_k = of.router, of.shared_expert, of.top_k
        self.gate_up = nn.ParameterList(of.experts.gate_up_proj.detach().transpose(1, 2).contiguous().unbind())
        self.down = nn.ParameterList(of.experts.down_proj.detach().transpose(1, 2).contiguous().unbind())

    def forward(self, x: Tensor) -> Any:
        flat = x.reshape(-1, x.shape[-1])
        scores, chosen = nn.functional.linear(flat, self.router.weight).topk(self.top_k)
        weights = scores.float().sigmoid()
        out = self.shared(flat)
        for expert, (gate_up, down) in enumerate(zip(self.gate_up, self.down, strict=True)):
            token, slot = (chosen == expert).nonzero(as_tuple=True)
            gate, up = nn.functional.linear((flat[token] * weights[token, slot, None]).to(flat.dtype), gate_up).chunk(
                2, -1
            )
            out = out.index_add(0, token, nn.functional.linear(nn.functional.silu(gate) * up, down))
        return out, scores


class Apart(nn.Module):
    """The experts of DeepSeek V3 or gpt-oss as transformers computes them, each with matrices of its own.

    There they are slices of one tensor, and the gradient of every slice is as large as the whole of it.
    """

    def __init__(self, of: Any) -> None:
        super().__init__()
        self.of_gpt_oss = hasattr(of, "gate_up_proj_bias")
        names = ["gate_up_proj", "down_proj", *(["gate_up_proj_bias", "down_proj_bias"] if self.of_gpt_oss else [])]
        for name in names:
            setattr(self, name, nn.ParameterList(one.clone() for one in getattr(of, name).detach().unbind()))
        self.activated = of._apply_gate if self.of_gpt_oss else lambda both: silu_of_gate(*both.chunk(2, -1))

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for expert, (gate_up, down) in enumerate(zip(self.gate_up_proj, self.down_proj, strict=True)):
            slot, token = torch.where((chosen == expert).T)
            if self.of_gpt_oss:
                hidden = self.activated(x[token] @ gate_up + self.gate_up_proj_bias[expert])
                given = hidden @ down + self.down_proj_bias[expert]
            else:
                given = nn.functional.linear(self.activated(nn.functional.linear(x[token], gate_up)), down)
            out.index_add_(0, token, (given * weights[token, slot, None]).to(out.dtype))
        return out


def silu_of_gate(gate: Tensor, up: Tensor) -> Tensor:
    return nn.functional.silu(gate) * up


CASES = [
    ("deepseek_v3", {}),
    ("deepseek_v3", {"q_lora_rank": None, "first_k_dense_replace": 2, "num_experts_per_tok": 3}),
    ("deepseek_v3", {"first_k_dense_replace": 0, "n_shared_experts": 1}),
    ("gpt_oss", {}),
    ("gpt_oss", {"num_key_value_heads": 4, "num_experts_per_tok": 1}),
    ("gpt_oss", {"num_key_value_heads": 1}),
    ("llama", {}),
    ("llama", {"num_key_value_heads": 4, "attention_bias": True}),
    ("llama4_text", {}),
    ("llama4_text", {"interleave_moe_layer_step": 2, "intermediate_size_mlp": 56, "use_qk_norm": False}),
    ("llama4_text", {"num_hidden_layers": 8, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 56}),
]
DENSE: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("olmo", "olmo2", "smollm3", "exaone4", "phi", "gptj", "cohere", "opt", "bloom")),
    *((name, {}) for name in ("stablelm", "nemotron", "nanochat", "qwen3", "gemma3_text")),
    ("olmo3", {"sliding_window": 5}),
    ("cohere2", {"sliding_window": 5}),
    ("stablelm", {"use_parallel_residual": True}),
    ("falcon", {}),
    ("falcon", {"multi_query": False, "parallel_attn": False, "alibi": True}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
]


def built(family: str, sizes: dict[str, Any], policy: Policy, *, apart: bool = False) -> tuple[nn.Module, Any]:
    """A model that computes as the policy says, and its shape; apart: every expert has matrices of its own."""
    config = small_config(family, sizes)
    implementation = policy.attention_kernel
    if (implementation, policy.activation_checkpointing) != ("eager", "none"):
        inside = fused_attention if implementation == "fused" else eager_attention(family)
        if policy.activation_checkpointing == "selective":
            inside = recomputed(inside)
        implementation = f"{implementation}_{policy.activation_checkpointing}"
        transformers.AttentionInterface.register(implementation, inside)
        if policy.attention_kernel == "eager":
            transformers.AttentionMaskInterface.register(implementation, eager_mask)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager" if family in PROJECTED else implementation
    )
    if family in PROJECTED:
        own_attention(family, model, eager_attention(family) if implementation == "eager" else inside)
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "BloomGelu":
            module.forward = functools.partial(nn.functional.gelu, approximate="tanh")
        parent, _, last = name.rpartition(".")
        if type(module).__name__.endswith("TextMoe"):
            setattr(model.get_submodule(parent), last, Gathered(module))
        elif apart and last == "experts" and family != "llama4_text":
            setattr(model.get_submodule(parent), last, Apart(module))
        elif type(module).__name__.endswith(("RMSNorm", "LayerNorm", "LayerNorm1P")) and family != "olmo":
            setattr(model.get_submodule(parent), last, Norm(module, policy.norm_kernel))
    if policy.activation_checkpointing == "full":
        for layer in layers_of(model):
            layer.forward = recomputed(layer.forward)
    if policy.precision == "bf16":
        model = model.bfloat16()
    return model.train(), accounting.from_config(config.to_dict())


PROJECTED = ("bloom", "falcon", "gptj")


def own_attention(family: str, model: Any, inside: Callable[..., Any]) -> None:
    """Put this attention between the projections of a model whose code has one of its own."""

    def between(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Any:
        module.num_key_value_groups = q.shape[1] // k.shape[1]
        out, weights = inside(module, q, k, v, mask, scaling=q.shape[-1] ** -0.5)
        return out.transpose(1, 2), weights

    def bloom(module: Any, hidden: Tensor, residual: Tensor, attention_mask: Any, **rest: Any) -> Any:
        out, _ = between(module, *module._reshape(module.query_key_value(hidden)), attention_mask)
        return residual + module.dense(out.transpose(1, 2).flatten(2)), None

    def falcon(module: Any, hidden: Tensor, alibi: Any, attention_mask: Any, position_embeddings: Any, **_: Any) -> Any:
        q, k, v = (one.transpose(1, 2) for one in module._split_heads(module.query_key_value(hidden)))
        if alibi is None:
            q, k = modeling(family).apply_rotary_pos_emb(q, k, *position_embeddings)
        out, _ = between(module, q, k, v, attention_mask)
        return module.dense(out.transpose(1, 2).flatten(2)), None

    for layer in layers_of(model):
        if family == "gptj":
            layer.attn._attn = functools.partial(between, layer.attn)
        else:
            layer.self_attention.forward = functools.partial(
                {"bloom": bloom, "falcon": falcon}[family], layer.self_attention
            )


def decoder_of(model: Any) -> Any:
    return model.transformer if hasattr(model, "transformer") else model.model


def layers_of(model: Any) -> Any:
    """The blocks of a model, under whatever name it has them."""
    inner = getattr(decoder_of(model), "decoder", decoder_of(model))
    return inner.layers if hasattr(inner, "layers") else inner.h


def eager_attention(family: str) -> Any:
    return modeling("llama" if family in PROJECTED else family).eager_attention_forward


def modeling(family: str) -> Any:
    """The file that a model of transformers is in."""
    config = transformers.AutoConfig.for_model(family)
    return inspect.getmodule(transformers.AutoModelForCausalLM._model_mapping[type(config)])


def loss_of(model: Any, ids: Tensor, targets: Tensor) -> Tensor:
    hidden = decoder_of(model)(ids, use_cache=False).last_hidden_state
    return cross_entropy(model.lm_head(hidden), targets, reduction="sum")


def alive_after_forward(model: Any, batch: int, length: int) -> int:
    """Bytes that are alive after a forward pass, beside parameters, ids, targets and the loss."""
    ids, targets = (torch.randint(0, 500, (batch, length)) for _ in range(2))
    loss_of(model, ids, targets)  # what is made once
    live = Live(known=[*model.parameters(), *model.buffers(), ids, targets])
    before = live.now - 16 * batch * length
    with live:
        result = loss_of(model, ids, targets)
    return live.now - before - result.nbytes


# every three of precision, kernels and batch in all their combinations
SETTINGS = [
    (precision, norm_kernel, attention_kernel, batch)
    for precision in ("fp32", "bf16")
    for norm_kernel in ("fused", "composite")
    for attention_kernel in ("fused", "eager")
    for batch in (1, 3)
    if ((precision == "bf16") + (norm_kernel == "fused") + (attention_kernel == "fused") + (batch == 1)) % 2
]


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize(("family", "sizes"), CASES + DENSE)
def test_saved_activations(family: str, sizes: dict[str, Any], checkpointing: str) -> None:
    if sizes.get("alibi") and checkpointing != "none":
        return  # a mask of every head beside what is saved
    length = random.Random(f"{family} {sizes}").randint(9, 20)
    # of full checkpointing no kernel decides what is saved, but for the masks
    for precision, norm_kernel, attention_kernel, batch in SETTINGS[:: 2 if checkpointing == "full" else 1]:
        policy = Policy(
            precision=precision,
            attention_kernel=attention_kernel,
            norm_kernel=norm_kernel,
            activation_checkpointing=checkpointing,
            model_code="transformers",
        )
        model, shape = built(family, sizes, policy)
        predicted = accounting.saved_activations(shape, batch, length, policy=policy)
        beside = tables_beside(family, shape, length, policy) + arguments(family, shape, batch, length, policy)
        assert alive_after_forward(model, batch, length) == predicted.total + beside, policy


@pytest.mark.parametrize(("precision", "batch"), [("fp32", 3), ("bf16", 1)])
def test_operators_save_the_outputs_of_every_second_matmul(precision: str, batch: int) -> None:
    """Torchtitan's rule of the end of 2024, its attention that of this machine."""
    policy = Policy(precision=precision, activation_checkpointing="operators", model_code="transformers")
    model, shape = built("llama", {}, replace(policy, activation_checkpointing="none"))
    model.set_attn_implementation("sdpa")
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    matmul = torch.ops.aten.mm.default

    def contexts() -> Any:
        counts = {True: 0, False: 0}

        def rule(context: Any, function: Any, *_: Any, **__: Any) -> CheckpointPolicy:
            counts[context.is_recompute] += function == matmul
            saved = function == attention or (function == matmul and counts[context.is_recompute] % 2)
            return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(rule)

    for layer in layers_of(model):
        layer.forward = functools.partial(
            checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False, context_fn=contexts
        )
    predicted = accounting.saved_activations(shape, batch, 16, policy=policy)
    assert alive_after_forward(model, batch, 16) == predicted.total + arguments("llama", shape, batch, 16, policy)


def tables_beside(family: str, shape: Any, length: int, policy: Policy) -> int:
    """Bytes of a family's tables of rotations beyond those counted, which have every dimension of a head once."""
    table = 2 * length * shape.head_width * policy.bytes.activations
    in_fp32 = 2 * length * shape.head_width * 4
    if family == "gptj":  # of each layer, for half of the dimensions of queries and of keys
        return -table if policy.activation_checkpointing == "full" else (shape.num_layers - 1) * table
    if family == "falcon" and policy.activation_checkpointing != "full":
        return 0 if shape.position == "alibi" else 8 * 2 * shape.num_layers  # indices of keys and values
    return {
        **{"olmo": in_fp32 - table, "olmo2": in_fp32 - table, "olmo3": 2 * in_fp32 - table},
        **{"phi": -table // 2, "nemotron": -table // 2, "stablelm": -3 * table // 4},
    }.get(family, 0)


def arguments(family: str, shape: Any, batch: int, length: int, policy: Policy) -> int:
    """Bytes of arguments of what is computed again that autograd has no use for: masks, positions and biases."""
    checkpointing, act = policy.activation_checkpointing, policy.bytes.activations
    if checkpointing == "none":
        return 0
    masks = 2 if 0 < shape.windowed_layers < shape.num_layers else 1
    if policy.attention_kernel == "fused" and family not in PROJECTED:
        masks = 0
    if checkpointing == "selective" and family in ("llama4_text", *PROJECTED):
        positions = 0
    elif family == "bloom":
        positions = batch * shape.num_heads * length * act
    else:
        positions = 8 * length * (batch if family == "opt" else 1)
    return masks * batch * length**2 * act + positions


# wide vocabulary, deep and narrow, wide experts, long sequence: each has its peak in another phase
PEAKS: dict[str, tuple[dict[str, Any], int, int]] = {
    "loss": ({"vocab_size": 6000}, 4, 128),
    "blocks": (
        {"num_hidden_layers": 6, "hidden_size": 128, "moe_intermediate_size": 160, "intermediate_size": 224},
        4,
        128,
    ),
    "embedding": ({"vocab_size": 6000}, 1, 8),
    "long": ({"vocab_size": 300}, 2, 256),
}
KERNELS = [(name, kernel) for name in PEAKS for kernel in ("fused", "eager") if (name, kernel) != ("long", "fused")]


def peak(model: Any, batch: int, length: int, vocab: int) -> int:
    """The most bytes alive in the second step, whose optimizer has its state."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    ids, targets = (torch.randint(0, vocab, (batch, length)) for _ in range(2))

    def step() -> None:
        loss_of(model, ids, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    states = [tensor for state in optimizer.state.values() for tensor in state.values()]
    live = Live(known=[*model.parameters(), *model.buffers(), ids, targets, *states])
    with live:
        step()
    return live.most


# each kind of dense block; that of GPT-J, whose tables are as large as its layers here, has its saved tensors alone
KINDS = ("olmo2", "smollm3", "phi", "cohere2", "opt", "bloom", "nanochat")
PARTS = [("loss", "fused", "none"), ("embedding", "fused", "full")]
PARTS += [("blocks", "eager", one) for one in ("none", "full")] + [("long", "eager", "selective")]


@pytest.mark.parametrize(
    ("family", "sizes"),
    [one for one in DENSE if one[0] in KINDS or len(one[1]) == 2],
)
def test_peak_of_a_step_of_dense_blocks(family: str, sizes: dict[str, Any]) -> None:
    for name, attention_kernel, checkpointing in PARTS:
        larger, batch, length = PEAKS[name]
        widths = {"word_embed_proj_dim": 128, "ffn_dim": 224} if "hidden_size" in larger and family == "opt" else {}
        policy = Policy(
            attention_kernel=attention_kernel, activation_checkpointing=checkpointing, model_code="transformers"
        )
        model, shape = built(family, {**sizes, **larger, **widths, "pad_token_id": None}, policy)
        predicted = accounting.training_memory(shape, batch, length, policy=policy)
        measured = peak(model, batch, length, shape.vocab_size)
        assert int(predicted.total) == pytest.approx(measured, rel=0.025), (name, policy, predicted.peak.title)


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize(("name", "attention_kernel"), KERNELS)  # the fused one's backward here is not fused
@pytest.mark.parametrize("family", dict.fromkeys(family for family, _ in CASES))
def test_peak_of_a_step(family: str, name: str, attention_kernel: str, checkpointing: str) -> None:
    """Within 2%; of gpt-oss 4%: gradients of a token's three experts count together, and are made one by one here."""
    torch.manual_seed(0)  # which expert reads how many tokens moves the peak a little
    sizes, batch, length = PEAKS[name]
    policy = Policy(
        attention_kernel=attention_kernel, activation_checkpointing=checkpointing, model_code="transformers"
    )
    model, shape = built(family, sizes | {"pad_token_id": None}, policy, apart=True)
    predicted = accounting.training_memory(shape, batch, length, policy=policy)
    measured = peak(model, batch, length, shape.vocab_size)
    assert int(predicted.total) == pytest.approx(measured, rel=0.04 if family == "gpt_oss" else 0.02), (
        predicted.peak.title
    )
