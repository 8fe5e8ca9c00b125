"""The memory budget against the model: what autograd keeps and what is alive in a step, under every policy that it
names.

Saved activations, states and temporaries are equal as integers; the peak of a step is within two percent, in bf16
and under autocast three.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the model needs torch, which is not installed")
pytest.importorskip("lm", reason="the model is in lm, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

from live_bytes import Live, kept_by_autograd, recomputed  # noqa: E402
from model_shapes import PEAKS, mixture, peak_of_step, random_config, some_batch, step_loss  # noqa: E402

import lm.attention  # noqa: E402
import lm.model  # noqa: E402
from accounting import Policy  # noqa: E402
from accounting.memory.optimizer_state import step_temporaries  # noqa: E402
from lm.config import ModelConfig  # noqa: E402
from lm.model import Transformer  # noqa: E402
from lm.ops.cpu import fused, passes, products  # noqa: E402
from lm.ops.cpu.build import Unavailable  # noqa: E402
from lm.optimizer import adamw  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # said once of query and key norms, whose weights are in fp32 under autocast while the heads are not
    pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight"),
]


ON_CPU = Policy(norm_kernel="composite")  # PyTorch's own


NO_PASSES = Unavailable("the budget is that of PyTorch's own passes")
checked = passes.checked


@pytest.fixture
def run_as(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets how the model computes: explicit score matrices or the fused kernel, what it recomputes."""

    def forget() -> None:
        lm.attention.causal_bias.cache_clear()
        fused.windows.cache_clear()
        lm.attention.rope_cache.cache_clear()

    def choose(*, attention: str = "fused", checkpointing: str = "none", bfloat16_in_c: bool = False) -> None:
        if not bfloat16_in_c:
            monkeypatch.setattr(
                passes, "checked", lambda dtype: NO_PASSES if dtype == torch.bfloat16 else checked(dtype)
            )
        monkeypatch.setattr(lm.attention, "MATMUL_KEYS", 1 << 30 if attention == "eager" else 0)
        monkeypatch.setattr(fused, "MATMUL_KEYS", 1 << 30 if attention == "blocks" else 0)
        if checkpointing == "full":
            monkeypatch.setattr(lm.model.Block, "forward", recomputed(lm.model.Block.forward))
        elif checkpointing == "selective":
            monkeypatch.setattr(lm.model, "attention", recomputed(lm.model.attention))
            monkeypatch.setattr(fused, "attend", recomputed(fused.attend))
        forget()

    yield choose
    forget()


def saved(model: Transformer, ids: Any, targets: Any, loss: str, precision: str) -> int:
    """Bytes of the storages that autograd keeps of a forward pass, the parameters' not among them."""
    return kept_by_autograd(lambda: step_loss(model, ids, targets, loss, precision), model.parameters())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "autocast"])
@pytest.mark.parametrize("seed", range(70))
def test_saved_activations(seed: int, precision: str, run_as: Callable[..., None]) -> None:
    rng = random.Random(f"{seed} {precision}")
    config = random_config(rng)
    batch, length = rng.randint(1, 3), rng.randint(2, config.context_length)
    attention, loss = rng.choice(["eager", "fused", "blocks"]), rng.choice(["plain", "chunked"])
    if precision != "fp32" and attention == "blocks":  # which is for numbers as wide as these
        attention = "eager"
    run_as(attention=attention)
    model = fused.fuse(Transformer(config))
    if precision == "bf16":
        model = model.bfloat16()
    policy = replace(ON_CPU, precision=precision, attention_kernel=attention, loss=loss)
    predicted = accounting.saved_activations(config.shape(), batch, length, policy=policy)
    narrower = 0
    if precision == "bf16" and config.norm == "layernorm":  # a CPU keeps both statistics of each position in bf16
        narrower = 4 * batch * length * config.shape().norms
    assert predicted.total - narrower == saved(model, *some_batch(config, batch, length), loss, precision)


@pytest.mark.parametrize("seed", range(40))
def test_saved_activations_of_experts(seed: int, run_as: Callable[..., None]) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    experts = rng.randint(1, 5)
    run_as(attention="fused")
    model, shape = mixture(config, experts, rng.randint(1, experts))
    fused.fuse(model)
    assert accounting.parameters(shape).total == sum(parameter.numel() for parameter in model.parameters())
    batch, length = rng.randint(1, 3), rng.randint(2, config.context_length)
    predicted = accounting.saved_activations(shape, batch, length, policy=ON_CPU)
    assert predicted.total == saved(model, *some_batch(config, batch, length), "plain", "fp32")


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize("seed", range(40))
def test_what_checkpointing_leaves_alive(seed: int, checkpointing: str, run_as: Callable[..., None]) -> None:
    """After the forward pass: what is recomputed is gone, and all that stays is what was predicted."""
    rng = random.Random(f"{seed} {checkpointing}")
    config = random_config(rng)
    attention = rng.choice(["eager", "fused", "blocks"])
    loss = rng.choice(["plain", "chunked"])
    run_as(attention=attention, checkpointing=checkpointing)
    model, batch, length = fused.fuse(Transformer(config)), rng.randint(1, 3), rng.randint(2, config.context_length)
    ids, targets = some_batch(config, batch, length)
    live = Live(known=[*model.parameters(), ids, targets])
    weights = live.now - 16 * batch * length
    with live:
        result = step_loss(model, ids, targets, loss)
    policy = replace(ON_CPU, attention_kernel=attention, activation_checkpointing=checkpointing, loss=loss)
    predicted = accounting.saved_activations(config.shape(), batch, length, policy=policy)
    # the loss itself; the mask that every layer adds, which autograd has no use for; targets, which chunks do not keep
    beside = result.nbytes + (4 * length**2 if attention == "eager" else 0)
    beside += 8 * batch * length if loss == "chunked" else 0
    assert live.now - weights == predicted.total + beside


def peak(config: ModelConfig, batch: int, length: int, loss: str, precision: str = "fp32", block: int = 1) -> int:
    """The most bytes alive in the second step, whose optimizer has its state."""
    model = fused.fuse(Transformer(config))
    if precision == "bf16":
        model = model.bfloat16()
    return peak_of_step(model, adamw(model, 1e-3), batch, length, loss, precision, block)


@pytest.fixture(autouse=True)
def by_torchs_own_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """As accounting has it: what oneDNN holds beside that has a test of its own below."""
    monkeypatch.setattr(products, "has_fast_onednn", lambda: False)


@pytest.fixture(autouse=True, scope="module")
def warm() -> None:
    """The first training of a process leaves some tensors alive that no later one does."""
    peak(*PEAKS["loss"], "plain", "autocast")


LOSSES, CHECKPOINTED = ("plain", "chunked"), ("selective", "full")
STEPS = [
    *itertools.product(PEAKS, ["fp32"], ["fused", "eager", "blocks"], ["none"], LOSSES),
    *itertools.product(("loss", "blocks", "ungated", "long"), ["fp32"], ["fused", "eager"], CHECKPOINTED, ["chunked"]),
    *itertools.product(PEAKS, ["autocast"], ["fused"], ["none", "full"], LOSSES),
    *itertools.product(PEAKS, ["autocast"], ["fused"], ["selective"], ["chunked"]),
    *itertools.product(PEAKS, ["bf16"], ["fused"], ["none"], LOSSES),
]


@pytest.mark.parametrize(("name", "precision", "attention", "checkpointing", "loss"), STEPS)
def test_peak_of_a_step(
    name: str, precision: str, attention: str, checkpointing: str, loss: str, run_as: Callable[..., None]
) -> None:
    run_as(attention=attention, checkpointing=checkpointing)
    config, batch, length = PEAKS[name]
    policy = replace(ON_CPU, precision=precision, attention_kernel=attention, loss=loss)
    policy = replace(policy, activation_checkpointing=checkpointing)
    predicted = accounting.training_memory(config.shape(), batch, length, policy=policy)
    total = int(predicted.total)
    if precision == "bf16":  # torch keeps the optimizer's state in bf16 then, without master weights
        total += 2 * 2 * int(accounting.parameters(config.shape()).total) - int(predicted["optimizer state"])
    measured = peak(config, batch, length, loss, precision)
    assert total == pytest.approx(measured, rel=0.02 if precision == "fp32" else 0.03), predicted.peak.title


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("loss", ["plain", "chunked"])
def test_peak_by_onednn(loss: str, run_as: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN does not add to what is there: beside the gradient of the head stands what a chunk adds to it."""
    monkeypatch.setattr(products, "has_fast_onednn", lambda: True)
    run_as(attention="fused")
    config, batch, length = PEAKS["loss"]
    policy = replace(ON_CPU, attention_kernel="fused", loss=loss)
    predicted = accounting.training_memory(config.shape(), batch, length, policy=policy)
    beside = 4 * config.vocab_size * config.d_model if loss == "chunked" else 0
    assert peak(config, batch, length, loss) == pytest.approx(int(predicted.total) + beside, rel=0.02)


@pytest.mark.parametrize("loss", ["plain", "chunked"])
@pytest.mark.parametrize("name", PEAKS)
def test_peak_in_c_under_autocast_is_not_above(name: str, loss: str, run_as: Callable[..., None]) -> None:
    """What is computed in C in bf16 keeps less than PyTorch's own passes, of which the budget is."""
    run_as(attention="fused", bfloat16_in_c=True)
    config, batch, length = PEAKS[name]
    policy = replace(ON_CPU, precision="autocast", loss=loss)
    predicted = accounting.training_memory(config.shape(), batch, length, policy=policy)
    assert peak(config, batch, length, loss, "autocast") <= 1.03 * int(predicted.total)


@pytest.mark.parametrize("name", ["loss", "blocks", "ungated", "tied"])
def test_peak_in_blocks_of_512(name: str, run_as: Callable[..., None]) -> None:
    run_as(attention="fused")
    config, batch, length = PEAKS[name]
    exact, rounded = (
        accounting.training_memory(config.shape(), batch, length, policy=replace(ON_CPU, allocator=allocator))
        for allocator in ("exact", "cuda")
    )
    measured, in_blocks = peak(config, batch, length, "plain"), peak(config, batch, length, "plain", block=512)
    assert int(rounded.total) == pytest.approx(in_blocks, rel=0.02)
    # nearly all of the rounding is known: parameters, state, counters and saved tensors
    assert int(rounded.total) - int(exact.total) == pytest.approx(in_blocks - measured, rel=0.15)


def optimizers(model: Transformer, kind: str, step: str) -> list[Any]:
    ways = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False, "fused": False}}[step]
    if kind == "sgd":
        return [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.1, **ways)]
    if kind == "adamw":
        return [torch.optim.AdamW(model.parameters(), 1e-3, **ways)]
    inside = {id(parameter): parameter for parameter in model.blocks.parameters() if parameter.ndim == 2}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in inside]
    return [torch.optim.Muon(inside.values(), 1e-3), torch.optim.AdamW(rest, 1e-3, fused=True)]


@pytest.mark.parametrize("step", ["fused", "foreach", "loop"])
@pytest.mark.parametrize("kind", ["adamw", "sgd", "muon"])
@pytest.mark.parametrize("seed", range(4))
def test_optimizer_state_and_step(seed: int, kind: str, step: str) -> None:
    config = random_config(random.Random(seed + 100))
    model = fused.fuse(Transformer(config))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    both = optimizers(model, kind, step)
    for optimizer in both:
        optimizer.step()
    states = [value for optimizer in both for state in optimizer.state.values() for value in state.values()]
    kept = sum(value.nbytes for value in states if torch.is_tensor(value) and value.ndim)
    assert kept == accounting.optimizer_state(config.shape(), policy=Policy(optimizer=kind)).total
    live = Live(known=[*model.parameters(), *(parameter.grad for parameter in model.parameters())])
    for value in states:
        if torch.is_tensor(value):
            live.add(value)
    before = live.now
    with live:
        for optimizer in both:
            optimizer.step()
    predicted = sum(
        count * size for count, size in step_temporaries(config.shape(), Policy(optimizer=kind, optimizer_step=step))
    )
    # of AdamW, tensor by tensor, the denominator before may still be there; and some scalars
    before_it = (
        4 * max(parameter.numel() for parameter in model.parameters()) if (kind, step) == ("adamw", "loop") else 0
    )
    assert predicted <= live.most - before <= predicted + before_it + 1024


def test_master_weights_in_fp32() -> None:
    """bf16 weights whose optimizer keeps fp32 ones: 2 + 2 + 4 + 8 bytes a parameter, of real tensors."""
    config = PEAKS["blocks"][0]
    model = fused.fuse(Transformer(config)).bfloat16()
    masters = [parameter.detach().float().requires_grad_() for parameter in model.parameters()]
    for parameter, master in zip(model.parameters(), masters, strict=True):
        parameter.grad, master.grad = torch.ones_like(parameter), torch.ones_like(master)
    optimizer = torch.optim.AdamW(masters, 1e-3)
    optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    policy = Policy(precision="bf16")
    state = accounting.optimizer_state(config.shape(), policy=policy)
    assert state.total == sum(tensor.nbytes for tensor in [*masters, *moments])
    step = accounting.training_memory(config.shape(), 1, policy=policy).phases[-1]
    weights = sum(parameter.nbytes + parameter.grad.nbytes for parameter in model.parameters())
    assert step.total == state.total + weights


@pytest.mark.parametrize("precision", ["fp32", "autocast"])
@pytest.mark.parametrize("rows", [9, 40, 200, 512])
def test_peak_by_the_chunk_of_the_loss(
    rows: int, precision: str, run_as: Callable[..., None], monkeypatch: Any
) -> None:
    """A vocabulary so wide that the loss is the peak, in chunks of a few rows to more than there are."""
    run_as(attention="fused")
    config, batch, length = ModelConfig(8000, 128, 1, 32, 2, 64), 4, 128
    chunk = rows * 4 * config.vocab_size
    monkeypatch.setattr(lm.loss, "CHUNK_BYTES", {"cpu": chunk})
    policy = replace(ON_CPU, precision=precision, loss="chunked", logits_chunk_bytes=chunk)
    predicted = accounting.training_memory(config.shape(), batch, length, policy=policy)
    assert rows < 40 or predicted.peak.title == "loss"
    measured = peak(config, batch, length, "chunked", precision)
    assert int(predicted.total) == pytest.approx(measured, rel=0.02), predicted.peak.title
