"""The budget of low-rank adapters against lm's model with adapters beside its frozen matrices.

Parameters, FLOPs and saved activations are equal as integers; the peak of a step is within three percent.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the model needs torch, which is not installed")
pytest.importorskip("lm", reason="the model is in lm, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

import model_shapes  # noqa: E402
from live_bytes import kept_by_autograd  # noqa: E402
from model_shapes import peak_of_step, random_config, some_batch, step_loss  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.autograd import Function  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import lm.attention  # noqa: E402
import lm.lora  # noqa: E402
import lm.model  # noqa: E402
from accounting import Policy, TransformerShape  # noqa: E402
from lm.config import ModelConfig, TrainConfig  # noqa: E402
from lm.loss import cross_entropy  # noqa: E402
from lm.model import Transformer  # noqa: E402
from lm.training.budget import trained_shape  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def fresh_tables() -> Iterator[None]:
    yield
    lm.attention.causal_bias.cache_clear()
    lm.attention.rope_cache.cache_clear()


class Adapted(nn.Module):
    """A frozen matrix, of whose rows some have an adapter: base x + B A x."""

    def __init__(self, base: Any, rows: list[tuple[int, bool]], rank: int) -> None:
        super().__init__()
        self.base = base
        ends = list(itertools.accumulate(count for count, _ in rows))
        self.slices = [slice(end - count, end) for end, (count, _) in zip(ends, rows, strict=True)]
        like = {"dtype": base.weight.dtype}
        self.down = nn.ModuleList(
            nn.Linear(base.in_features, rank, bias=False, **like) if has else nn.Identity() for _, has in rows
        )
        self.up = nn.ModuleList(
            nn.Linear(rank, count, bias=False, **like) if has else nn.Identity() for count, has in rows
        )

    def forward(self, x: Any) -> Any:
        y = self.base(x)
        if len(self.slices) == 1 and isinstance(self.down[0], nn.Linear):
            return y.add_(self.up[0](self.down[0](x)))
        for part, down, up in zip(self.slices, self.down, self.up, strict=True):
            if isinstance(down, nn.Linear):
                y[..., part] += up(down(x))
        return y


def with_adapters(model: Transformer, shape: TransformerShape) -> Transformer:
    """The model, frozen, with adapters where the shape has them."""
    model.requires_grad_(False)
    # PEFT's enable_input_require_grads()
    model.embedding.register_forward_hook(lambda _module, _inputs, output: output.requires_grad_())
    config, targets, rank = model.config, set(shape.adapted), shape.lora_rank or 0
    queries, keys = config.num_heads * config.head_width, config.kv_heads * config.head_width
    for block in model.blocks:
        attention: Any = block.attention
        qkv = (
            [(queries + 2 * keys, True)]
            if "qkv" in targets
            else [(queries, "query" in targets), (keys, "key" in targets), (keys, "value" in targets)]
        )
        attention.qkv = Adapted(attention.qkv, qkv, rank)
        attention.output = Adapted(attention.output, [(config.d_model, "output" in targets)], rank)
        ffn: Any = block.ffn
        if config.ffn == "swiglu":
            both = (
                [(2 * config.d_ff, True)]
                if "gate_up" in targets
                else [(config.d_ff, "gate" in targets), (config.d_ff, "up" in targets)]
            )
            ffn.gate_up = Adapted(ffn.gate_up, both, rank)
        else:
            ffn.up = Adapted(ffn.up, [(config.d_ff, "up" in targets)], rank)
        ffn.down = Adapted(ffn.down, [(config.d_model, "down" in targets)], rank)
    return model


def random_case(seed: int) -> tuple[ModelConfig, TransformerShape, random.Random]:
    rng = random.Random(seed)
    config = replace(random_config(rng), norm_placement="pre")
    gated = config.ffn == "swiglu"
    names = ["query", "key", "value", "output", *(["gate", "up", "down"] if gated else ["up", "down"])]
    targets = tuple(rng.sample(names, rng.randint(1, len(names)))) if rng.random() < 0.7 else None
    if rng.random() < 0.2:
        targets = ("qkv", "output", *(("gate_up",) if gated else ("up",)))
    return config, replace(config.shape(), lora_rank=rng.randint(1, 6), lora_targets=targets), rng


@pytest.mark.parametrize("seed", range(30))
def test_parameters_flops_and_saved_activations(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config, shape, rng = random_case(seed)
    batch, length = rng.randint(1, 3), rng.randint(2, config.context_length)
    kernel, narrow = rng.choice(["eager", "fused"]), rng.random() < 0.3 and config.norm != "layernorm"
    monkeypatch.setattr(lm.attention, "MATMUL_KEYS", 1 << 30 if kernel == "eager" else 0)
    model = Transformer(config)
    if narrow:
        model = model.bfloat16()
    model = with_adapters(model, shape)
    assert accounting.parameters(shape).total == sum(parameter.numel() for parameter in model.parameters())
    assert accounting.trained_parameters(shape) == sum(one.numel() for one in model.parameters() if one.requires_grad)
    ids, targets = some_batch(config, batch, length)
    policy = Policy(precision="bf16" if narrow else "fp32", attention_kernel=kernel, norm_kernel="composite")
    for loss in ("plain", "chunked"):
        predicted = accounting.saved_activations(shape, batch, length, policy=replace(policy, loss=loss))
        saved = kept_by_autograd(lambda loss=loss: step_loss(model, ids, targets, loss), model.parameters())
        assert predicted.total == saved, loss
    if kernel == "eager":  # whose matrix multiplications torch counts one by one
        with FlopCounterMode(display=False) as counted:
            cross_entropy(model(ids), targets, reduction="sum").backward()
        assert accounting.training_flops(shape, length, batch).total == counted.get_total_flops()


class InFourBits(Function):
    """A frozen matrix as bitsandbytes multiplies by it: made in bf16 when it is used, with nothing saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.weight = weight
        return x.bfloat16() @ weight.bfloat16().T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (grad @ ctx.weight.to(grad.dtype)).float(), None


class FourBits(nn.Module):
    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        self.weight, self.in_features, self.out_features = of.weight, of.in_features, of.out_features

    def forward(self, x: Tensor) -> Any:
        return InFourBits.apply(x, self.weight)


@pytest.mark.parametrize("seed", range(12))
def test_qlora_under_autocast(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEFT's prepare_model_for_kbit_training: norms, head and residual stream in fp32, and a copy for each adapter."""
    monkeypatch.setattr(lm.attention, "MATMUL_KEYS", 0)
    config, shape, rng = random_case(seed)
    norm = {"norm": "rmsnorm", "bias": False}
    config, shape = replace(config, **norm), replace(shape, **norm)
    batch, length = rng.randint(1, 3), rng.randint(2, config.context_length)
    model = with_adapters(Transformer(config), shape)
    for module in model.modules():
        if isinstance(module, Adapted):
            module.base = FourBits(module.base)
    ids, targets = some_batch(config, batch, length)

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return step_loss(model, ids, targets, "plain")

    policy = Policy(precision="autocast", frozen_dtype="nf4", norm_kernel="composite")
    predicted = accounting.saved_activations(shape, batch, length, policy=policy)
    assert predicted.total == kept_by_autograd(loss, model.parameters())


@pytest.mark.parametrize("seed", range(12))
def test_adapters_as_lm_trains_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm.attention, "MATMUL_KEYS", 1 << 30)  # explicit products, which torch counts one by one
    rng = random.Random(seed)
    config = random_config(rng)
    rank, batch, length = rng.randint(1, 6), rng.randint(1, 3), rng.randint(2, config.context_length)
    model = lm.lora.add(Transformer(config), rank)
    shape = trained_shape(config, TrainConfig(1, warmup_steps=0, lora_rank=rank))
    assert accounting.parameters(shape).total == sum(parameter.numel() for parameter in model.parameters())
    assert accounting.trained_parameters(shape) == sum(one.numel() for one in model.parameters() if one.requires_grad)
    with FlopCounterMode(display=False) as counted:
        model(torch.randint(0, config.vocab_size, (batch, length)))
    assert accounting.forward_flops(shape, length, batch).total == counted.get_total_flops()


def test_adapters_beside_value_embeddings_are_refused_by_name() -> None:
    config = ModelConfig(50, 8, 2, 16, 2, 24, value_embeddings=True)
    with pytest.raises(ValueError, match=r"lora_rank 2: adapters are not counted for .* value embeddings"):
        trained_shape(config, TrainConfig(1, warmup_steps=0, lora_rank=2))


PEAKS = {name: model_shapes.PEAKS[name] for name in ("loss", "blocks", "ungated", "long")}
PEAKS["step"] = (ModelConfig(300, 128, 3, 64, 4, 256), 1, 8)


@pytest.mark.parametrize("loss", ["plain", "chunked"])
@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize("attention", ["fused", "eager"])
@pytest.mark.parametrize("name", PEAKS)
def test_peak_of_a_step(
    name: str, attention: str, checkpointing: str, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm.attention, "MATMUL_KEYS", 1 << 30 if attention == "eager" else 0)
    config, batch, length = PEAKS[name]
    shape = replace(config.shape(), lora_rank=8)
    policy = Policy(
        attention_kernel=attention, norm_kernel="composite", activation_checkpointing=checkpointing, loss=loss
    )
    predicted = accounting.training_memory(shape, batch, length, policy=policy)
    model = with_adapters(Transformer(config), shape)
    model.set_activation_checkpointing(checkpointing)
    optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), 1e-3, fused=True)
    measured = peak_of_step(model, optimizer, batch, length, loss)
    assert int(predicted.total) == pytest.approx(measured, rel=0.03), predicted.peak.title


@pytest.mark.parametrize(
    "changed", [{"precision": "autocast"}, {"gate_kernel": "fused"}, {"attention_kernel": "blocks"}]
)
def test_memory_that_is_not_counted_is_refused_by_name(changed: dict[str, str]) -> None:
    shape = replace(accounting.SHAPES["llama-3-8b"], lora_rank=8)
    (name, value), *_ = changed.items()
    with pytest.raises(ValueError, match=f"with {name} '{value}'"):
        accounting.training_memory(shape, 1, policy=Policy(**changed))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="with experts 8"):
        accounting.training_memory(replace(accounting.SHAPES["mixtral-8x7b"], lora_rank=8), 1)
    with pytest.raises(ValueError, match="'muon' is of whole matrices"):
        accounting.training_memory(shape, 1, policy=Policy(optimizer="muon"))
