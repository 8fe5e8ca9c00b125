"""The budget against the model: the parameters and FLOPs that accounting predicts, the real lm.Transformer has and
does.

All are equal as integers. The bytes are in test_memory_against_model.py.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the model needs torch, which is not installed")
pytest.importorskip("lm", reason="the model is in lm, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

from live_bytes import recomputed  # noqa: E402
from model_shapes import mixture, random_config  # noqa: E402
from torch.utils.checkpoint import set_checkpoint_early_stop  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import lm.attention  # noqa: E402
import lm.model  # noqa: E402
from accounting.counting.parameters import tensors  # noqa: E402
from lm.generation.kv_cache import PAGE, Cache  # noqa: E402
from lm.model import Transformer  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


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
    config = random_config(random.Random(seed), value_embeddings=seed % 10 == 0)
    shape = config.shape()
    with torch.device("meta"):
        model = Transformer(config)
    assert accounting.parameters(shape).total == sum(parameter.numel() for parameter in model.parameters())
    if config.value_embeddings:
        assert shape.value_embeddings == (config.num_layers + 1) // 2
        return  # whose matrices are not counted one by one
    by_size: collections.Counter[int] = collections.Counter()
    for count, size in tensors(shape):
        by_size[size] += count
    assert by_size == collections.Counter(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("seed", range(110))
def test_flops(seed: int, whole_scores: Callable[[bool], None]) -> None:
    """On the meta device, but for the last seeds' mixtures of experts, whose tokens choose by values."""
    rng, mixed = random.Random(seed), seed >= 90
    config = random_config(rng, value_embeddings=not mixed and seed % 3 == 0)
    shape, batch, length = config.shape(), rng.randint(1, 3), rng.randint(2, config.context_length)
    whole_scores(True)
    with torch.device("cpu" if mixed else "meta"):
        if mixed:
            experts = rng.randint(1, 5)
            model, shape = mixture(config, experts, rng.randint(1, experts))
        else:
            model = Transformer(config)
        ids = torch.zeros(batch, length, dtype=torch.int64).random_(config.vocab_size)
    with FlopCounterMode(display=False) as counter:
        logits = model(ids)
    forward = counter.get_total_flops()
    with counter:
        logits.sum().backward()
    assert forward == accounting.forward_flops(shape, length, batch).total
    assert counter.get_total_flops() == 2 * forward
    assert 3 * forward == accounting.training_flops(shape, length, batch).total
    if not mixed:
        assert accounting.matmul_flops(shape, length, batch).total == forward


@pytest.mark.parametrize("what", ["full", "selective"])
@pytest.mark.parametrize("seed", range(15))
def test_flops_of_recomputing(
    seed: int, what: str, whole_scores: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch recomputes all of it, or by its early stop all but the last product, of which only the result was
    wanted."""
    rng = random.Random(seed)
    config = random_config(rng)
    shape, batch, length = config.shape(), rng.randint(1, 3), rng.randint(2, config.context_length)
    whole_scores(True)
    place, name = (lm.model.Block, "forward") if what == "full" else (lm.model, "attention")
    monkeypatch.setattr(place, name, recomputed(getattr(place, name)))
    spared = accounting.forward_flops(shape, length, batch)["scores"] // 2
    if what == "full":
        spared = 2 * batch * length * shape.d_ff * shape.d_model * shape.num_layers
    expected = int(accounting.training_flops(shape, length, batch, recompute=what).total)
    with torch.device("meta"):
        model, ids = Transformer(config), torch.zeros(batch, length, dtype=torch.int64)
    for early in (False, True):
        with set_checkpoint_early_stop(early), FlopCounterMode(display=False) as counter:
            model(ids).sum().backward()
        # a norm after the last product keeps its input, and so wants that product again
        kept = early and not (what == "full" and config.norm_placement == "post" and config.norm != "none")
        assert counter.get_total_flops() == expected - (int(spared) if kept else 0)


@pytest.mark.parametrize("seed", range(15))
def test_flops_of_muon(seed: int) -> None:
    config = random_config(random.Random(seed))
    with torch.device("meta"):
        model = Transformer(config)
    inside = [parameter for parameter in model.blocks.parameters() if parameter.ndim == 2]
    for parameter in inside:
        parameter.grad = torch.empty_like(parameter)
    with FlopCounterMode(display=False) as counter:
        torch.optim.Muon(inside).step()
    found = accounting.optimizer_flops(config.shape(), optimizer="muon")
    assert counter.get_total_flops() == found["newton-schulz products"]


class Joined:
    """A layer's keys and values, each new one put behind those before."""

    def __init__(self) -> None:
        self.held: tuple[Any, Any] | None = None

    def attend(self, q: Any, k: Any, v: Any, sliding_window: int | None, attend: Callable[..., Any]) -> Any:
        if self.held is not None:
            k, v = torch.cat((self.held[0], k), dim=2), torch.cat((self.held[1], v), dim=2)
        self.held = k, v
        return attend(q, k, v, sliding_window=sliding_window)


@pytest.mark.parametrize("seed", range(30))
def test_flops_of_decoding(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    shape, batch = config.shape(), rng.randint(1, 3)
    whole = functools.partial(lm.model.attention, backend="matmul")
    monkeypatch.setattr(lm.model, "attention", whole)
    model = Transformer(config)
    caches = [Joined() for _ in range(config.num_layers)]
    ids = torch.randint(0, config.vocab_size, (batch, config.context_length))
    with torch.no_grad():
        for position in range(config.context_length):
            with FlopCounterMode(display=False) as counter:
                model(ids[:, position : position + 1], start=position, cache=caches)
            assert counter.get_total_flops() == accounting.decode_flops(shape, position + 1, batch).total


@pytest.mark.parametrize("seed", range(20))
def test_bytes_of_the_cache(seed: int) -> None:
    rng = random.Random(seed)
    config = dataclasses.replace(random_config(rng), sliding_window=None)
    rows, capacity = rng.randint(1, 4), rng.randint(1, config.context_length)
    for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
        held = Cache(Transformer(config).to(dtype), rows, capacity).store
        whole_pages = -(-capacity // PAGE) * PAGE
        assert held.nbytes == whole_pages * accounting.kv_cache(config.shape(), rows, 1, dtype=name).total


def test_the_chunks_of_the_loss_are_those_of_lm() -> None:
    from accounting.policy import LOGITS_CHUNK_BYTES
    from lm import loss

    assert loss.CHUNK_BYTES["cuda"] == LOGITS_CHUNK_BYTES
    assert loss.chunk_bytes_on(torch.device("cuda")) == LOGITS_CHUNK_BYTES
    assert loss.chunk_bytes_on(torch.device("cpu")) == loss.CHUNK_BYTES["cpu"] < LOGITS_CHUNK_BYTES


@pytest.mark.parametrize("seed", range(20))
def test_a_run_folder_is_the_shape_of_its_model(seed: int, tmp_path: Path) -> None:
    import tomli_w

    from accounting.models.files import find
    from lm.config import to_table

    config = random_config(random.Random(seed), value_embeddings=seed % 2 == 0)
    if config.position == "rope":
        config = dataclasses.replace(config, rope_factor=8.0, rope_original_context_length=64)
    (tmp_path / "config.toml").write_text(tomli_w.dumps({"model": to_table(config)}))
    assert find(str(tmp_path)) == config.shape()
