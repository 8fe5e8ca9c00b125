"""The shares of a layer against the layer: what tensor-parallel devices compute of lm's blocks adds up to the whole."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the model needs torch, which is not installed")
pytest.importorskip("lm", reason="the model is in lm, which is not installed")
pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

from model_shapes import random_config  # noqa: E402

from accounting.cluster.device import device_parameters  # noqa: E402
from accounting.cluster.layout import Layout, Place, places, shard, split  # noqa: E402
from lm.attention import rope_at  # noqa: E402
from lm.config import ModelConfig  # noqa: E402
from lm.model import Block, Transformer  # noqa: E402


def share_of_block(config: ModelConfig, whole: Block, layout: Layout, rank: int) -> Block:
    """One device's rows and columns of a block's matrices; biases after a sum are on the first alone."""
    mine = shard(config.shape(), layout, Place(0, rank))
    sizes = {"num_heads": mine.num_heads, "num_kv_heads": mine.kv_heads, "head_dim": mine.head_width, "d_ff": mine.d_ff}
    share = Block(dataclasses.replace(config, num_layers=1, **sizes))
    e, h, k = config.head_width, config.num_heads, config.kv_heads
    heads = [shard(config.shape(), layout, Place(0, other)).num_heads for other in range(layout.tensor)]
    first = sum(heads[:rank])
    queries = range(first, first + heads[rank])
    keys = sorted({query * k // h for query in queries})
    assert len(keys) == mine.kv_heads
    rows = [*queries, *(h + key for key in keys), *(h + k + key for key in keys)]
    numbers = [head * e + at for head in rows for at in range(e)]
    columns = [head * e + at for head in queries for at in range(e)]
    widths = split(config.d_ff, layout.tensor)
    inside = list(range(sum(widths[:rank]), sum(widths[: rank + 1])))
    both = [*inside, *(config.d_ff + at for at in inside)] if config.ffn == "swiglu" else inside
    state = {}
    for name, value in whole.state_dict().items():
        if ".qkv." in name:
            value = value[numbers]
        elif "attention.output.weight" in name:
            value = value[:, columns]
        elif "gate_up" in name or "ffn.up" in name:
            value = value[both]
        elif "down.weight" in name:
            value = value[:, inside]
        elif name.endswith(("output.bias", "down.bias")) and rank:
            value = torch.zeros_like(value)
        state[name] = value
    share.load_state_dict(state)
    return share


@pytest.mark.parametrize("seed", range(25))
def test_shares_of_a_layer_add_up(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    layout = Layout(tensor=rng.randint(1, min(config.num_heads, config.d_ff, config.vocab_rows)))
    torch.manual_seed(seed)
    whole = Block(config)
    for parameter in whole.parameters():
        torch.nn.init.normal_(parameter)
    shares = [share_of_block(config, whole, layout, rank) for rank in range(layout.tensor)]
    x = torch.randn(2, config.context_length, config.d_model)
    rope = rope_at(config, slice(0, config.context_length), x)
    with torch.no_grad():
        for ours, theirs in (
            (whole.attention(x, rope), [share.attention(x, rope) for share in shares]),
            (whole.ffn(x), [share.ffn(x) for share in shares]),
        ):
            torch.testing.assert_close(sum(theirs), ours, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", range(25))
def test_a_device_holds_what_its_model_would(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    layout = Layout(tensor=rng.randint(1, min(config.num_heads, config.d_ff, config.vocab_rows)), pipeline=1)
    layout = Layout(tensor=layout.tensor, pipeline=rng.randint(1, config.num_layers))
    with torch.device("meta"):
        whole = Transformer(config)
    layers = split(config.num_layers, layout.pipeline)

    def size(module: Any) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    for place in places(layout):
        with torch.device("meta"):
            block = share_of_block(config, whole.blocks[0], layout, place.tensor_rank)
        expected = layers[place.stage] * size(block)
        rows = split(config.vocab_rows, layout.tensor)[place.tensor_rank] * config.d_model
        if place.stage == 0:
            expected += rows + (size(whole.positions) if whole.positions is not None else 0)
        if place.stage == layout.pipeline - 1:
            tied_here = config.tied_embeddings and layout.pipeline == 1
            expected += size(whole.final_norm) + (0 if tied_here else rows)
        assert device_parameters(config.shape(), layout, place).total == expected
