"""The budget against the model: what accounting predicts, the real lm.Transformer has, does and keeps.

Parameters, matrix-multiply FLOPs and saved activations are equal as integers; the peak of a step is within two percent.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the model needs torch, which is not installed")
pytest.importorskip("lm", reason="the model is in lm, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import lm.attention  # noqa: E402
import lm.model  # noqa: E402
from lm.config import ModelConfig  # noqa: E402
from lm.loss import chunked_cross_entropy, cross_entropy  # noqa: E402
from lm.model import Transformer  # noqa: E402
from lm.optimizer import adamw  # noqa: E402


def random_config(rng: random.Random) -> ModelConfig:
    kv_heads, group, head_dim = rng.choice([1, 2, 3]), rng.choice([1, 2, 3]), rng.choice([2, 4, 8])
    given = rng.random() < 0.7
    return ModelConfig(
        rng.randint(2, 70),
        rng.randint(2, 24),
        rng.randint(1, 3),
        rng.randint(2, 30) if given else kv_heads * group * head_dim,
        kv_heads * group,
        rng.randint(1, 50),
        num_kv_heads=kv_heads,
        head_dim=head_dim if given else None,
        ffn=rng.choice(["swiglu", "gelu", "silu", "relu2"]),
        norm=rng.choice(["rmsnorm", "layernorm", "none"]),
        norm_placement=rng.choice(["pre", "post"]),
        position=rng.choice(["rope", "learned", "none"]),
        tied_embeddings=rng.random() < 0.5,
        bias=rng.random() < 0.5,
        qk_norm=rng.random() < 0.3,
        vocab_multiple=rng.choice([1, 8, 64]),
        window=rng.choice([None, None, 3]),
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small are slower on several threads, and far slower where others use the cores too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def whole_scores(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Makes the model's attention explicit matrix products (True), or torch's fused kernel (False), at every length."""

    def choose(explicit: bool) -> None:
        monkeypatch.setattr(lm.attention, "MATMUL_KEYS", 1 << 30 if explicit else 0)
        lm.attention.causal_bias.cache_clear()

    yield choose
    lm.attention.causal_bias.cache_clear()


@pytest.mark.parametrize("seed", range(300))
def test_parameters(seed: int) -> None:
    config = random_config(random.Random(seed))
    with torch.device("meta"):
        model = Transformer(config)
    assert accounting.parameters(config.shape()).total == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("seed", range(60))
def test_flops(seed: int, whole_scores: Callable[[bool], None]) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    shape, batch, length = config.shape(), rng.randint(1, 3), rng.randint(2, config.context_length)
    whole_scores(True)
    with torch.device("meta"):
        model = Transformer(config)
    ids = torch.zeros(batch, length, dtype=torch.int64, device="meta")  # no values are needed to count
    with FlopCounterMode(display=False) as counter:
        logits = model(ids)
    forward = counter.get_total_flops()
    with counter:
        logits.sum().backward()
    assert forward == accounting.forward_flops(shape, length, batch).total
    assert counter.get_total_flops() == 2 * forward
    assert 3 * forward == accounting.training_flops(shape, length, batch).total


def step_loss(model: Transformer, ids: Any, targets: Any, loss: str) -> Any:
    if loss == "plain":
        return cross_entropy(model(ids), targets, reduction="sum")
    vocab = model.config.vocab_size
    return chunked_cross_entropy(model.hidden(ids), model.head_weight, targets, vocab_size=vocab, reduction="sum")


def torch_rms_norm(norm: Any, x: Any) -> Any:
    return torch.nn.functional.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)


@pytest.mark.parametrize("seed", range(150))
def test_saved_activations(seed: int, whole_scores: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    batch, length = rng.randint(1, 3), rng.randint(2, config.context_length)
    explicit, loss = rng.random() < 0.5, rng.choice(["plain", "chunked"])
    norm_kernel = rng.choice(["normalised", "composite"])
    if norm_kernel == "composite":
        monkeypatch.setattr(lm.model.RMSNorm, "forward", torch_rms_norm)
    whole_scores(explicit)
    model = Transformer(config)
    ids, targets = (torch.randint(0, config.vocab_size, (batch, length)) for _ in range(2))
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}
    alive = []  # a storage that was freed could lend its address to the next

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step_loss(model, ids, targets, loss)
    predicted = accounting.saved_activations(
        config.shape(),
        batch,
        length,
        attention="eager" if explicit else "fused",
        norm_kernel=norm_kernel,
        loss=loss,
    )
    assert predicted.total == sum(kept.values())


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of all storages that operations made and that are still alive, and the most there ever were."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self.known: set[int] = set()

    def add(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.now += size
            weakref.finalize(storage, self.gone, key, size)

    def gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        self.most = max(self.most, self.now)
        return result


# wide vocabulary, deep, tiny batch, long sequence: each has its peak in another phase
PEAKS = {
    "loss": (ModelConfig(4000, 128, 2, 64, 4, 256), 4, 128),
    "blocks": (ModelConfig(300, 128, 6, 64, 4, 256), 4, 128),
    "ungated": (
        ModelConfig(300, 128, 6, 64, 4, 256, ffn="gelu", norm="layernorm", position="learned", bias=True),
        4,
        128,
    ),
    "embedding": (ModelConfig(4000, 128, 2, 64, 4, 256), 1, 8),
    "tied": (ModelConfig(4000, 128, 2, 64, 4, 256, tied_embeddings=True), 1, 8),
    "long": (ModelConfig(300, 256, 3, 64, 4, 96), 2, 256),
    "grouped": (ModelConfig(300, 256, 3, 64, 4, 96, num_kv_heads=2, qk_norm=True), 2, 256),
}


@pytest.mark.parametrize("loss", ["plain", "chunked"])
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("name", PEAKS)
def test_peak_of_a_step(name: str, explicit: bool, loss: str, whole_scores: Callable[[bool], None]) -> None:
    config, batch, length = PEAKS[name]
    whole_scores(explicit)
    model = Transformer(config)
    optimizer = adamw(model, 1e-3)
    ids, targets = (torch.randint(0, config.vocab_size, (batch, length)) for _ in range(2))
    live = Live()
    for tensor in (*model.parameters(), ids, targets):
        live.add(tensor)
    with live:
        for _ in range(2):  # the optimizer's state is there from the second step on
            live.most = 0
            step_loss(model, ids, targets, loss).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    predicted = accounting.training_memory(
        config.shape(),
        batch,
        length,
        attention="eager" if explicit else "fused",
        norm_kernel="normalised",
        loss=loss,
    )
    assert int(predicted.total) == pytest.approx(live.most, rel=0.02), predicted.peak.title
