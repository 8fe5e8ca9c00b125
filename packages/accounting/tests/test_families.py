"""Training of DeepSeek V3, gpt-oss and Llama 4: layers of several kinds, shares of devices, what fits, and what is
refused. tests/test_memory_against_transformers.py holds the bytes against transformers' models."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import (
    SHAPES,
    Layout,
    Place,
    Policy,
    TransformerShape,
    device_flops,
    device_memory,
    device_parameters,
    device_traffic,
    elementwise_flops,
    forward_flops,
    from_config,
    largest_shape,
    longest_context,
    max_batch_size,
    parameters,
    training_memory,
)
from accounting.breakdown import symbols
from accounting.cluster.device import replicated
from accounting.cluster.layout import places, shard
from accounting.cluster.traffic import Joins
from accounting.commands.parser import main
from accounting.counting.layers import stack
from accounting.counting.parameters import block_parameters, expert_parameters, tensors
from accounting.layer import Attention, FeedForward, LatentAttention, Layer
from accounting.planning.fitting import peak_bytes
from accounting.shape import NotCounted

NAMES = ["deepseek-v3", "gpt-oss-20b", "gpt-oss-120b", "llama-4-scout"]
BF16 = Policy(precision="bf16")
SCOUT = SHAPES["llama-4-scout"]
EXPERTS = replace(SCOUT.layers[0].ffn, experts=128)  # type: ignore[type-var]
MAVERICK = replace(  # every other layer is dense
    SCOUT,
    layers=tuple(
        replace(layer, ffn=EXPERTS if at % 2 else FeedForward(16384)) for at, layer in enumerate(SCOUT.layers)
    ),
)


@st.composite
def families(draw: st.DrawFn) -> TransformerShape:
    """Shapes with latent attention, sinks, shared experts, dense layers and unrotated ones, in any company."""
    layers, experts = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    heads, kv_heads = 4, draw(st.sampled_from([1, 2, 4]))
    ranks = LatentAttention(draw(st.none() | st.integers(1, 20)), draw(st.integers(1, 20)), 4, 2, 6)
    sinks, latent = draw(st.booleans()), draw(st.booleans())
    attentions: list[Any] = [
        Attention(draw(st.none() | st.integers(1, 20)), sinks=sinks, rotated=rotated, qk_norm=norm)
        for rotated, norm in ((True, draw(st.sampled_from(["none", "l2"]))), (False, "none"))
    ]
    routed = FeedForward(
        experts=experts,
        experts_per_token=draw(st.integers(1, experts)),
        shared_d_ff=draw(st.none() | st.integers(4, 60)),
        router="sigmoid" if latent else "softmax_of_chosen" if sinks else "sigmoid_of_input",
        router_bias=draw(st.booleans()),
    )
    ffns = [routed, FeedForward(draw(st.integers(4, 60)))]
    layer = st.builds(Layer, st.just(ranks) if latent else st.just(attentions[0]), st.sampled_from(ffns))
    if not latent:
        layer |= st.builds(Layer, st.just(attentions[1]), st.just(routed))
    return TransformerShape(
        draw(st.integers(4, 200)),
        64,
        layers,
        draw(st.integers(1, 40)),
        heads,
        draw(st.integers(4, 60)),
        num_kv_heads=None if latent else kv_heads,
        head_dim=None if latent else 6,
        ffn=draw(st.sampled_from(["swiglu", "clamped_swiglu"])),
        tied_embeddings=draw(st.booleans()),
        bias=draw(st.booleans()),
        leading=tuple(draw(st.lists(layer, max_size=min(2, layers)))),
        layers=tuple(draw(st.lists(layer, min_size=1, max_size=4))),
    )


@given(families())
def test_tensors_and_blocks_add_up_to_the_parameters(shape: TransformerShape) -> None:
    counted = parameters(shape)
    assert sum(count * size for count, size in tensors(shape)) == counted.total
    blocks = sum(int(count) * sum(block_parameters(shape, kind)) for kind, count in stack(shape).counts.items())
    assert blocks == counted["attention"] + counted["ffn"] + counted["router"]


@given(families())
def test_layers_stand_where_they_are_counted(shape: TransformerShape) -> None:
    found = stack(shape)
    assert sum(int(count) for count in found.counts.values()) == shape.num_layers
    assert {kind: int(count) for kind, count in found.counts.items()} == shape.matrix_kinds
    left = [sum(int(count) for count in below.values()) for _, _, below in found.ends]
    assert left == sorted(left, reverse=True)
    assert (left[0], left[-1]) == (shape.num_layers - 1, 0)
    assert len(found.ends) == 2 * len(found.counts)


def test_the_layers_of_published_models() -> None:
    """DeepSeek V3's first three are dense; of Llama 4 every fourth is unrotated, of Maverick every other dense."""
    deepseek = stack(SHAPES["deepseek-v3"])
    assert [name for name, _, _ in deepseek.ends] == ["last expert", "first expert", "last dense", "first dense"]
    assert [list(map(int, below.values())) for _, _, below in deepseek.ends] == [[57, 3], [0, 3], [0, 2], [0, 0]]
    scout = stack(SHAPES["llama-4-scout"])
    assert {scout.names[kind]: int(count) for kind, count in scout.counts.items()} == {"unrotated": 12, "rotated": 36}
    maverick = stack(MAVERICK)
    kinds = {maverick.names[kind]: int(count) for kind, count in maverick.counts.items()}
    assert kinds == {"expert unrotated": 12, "dense rotated": 24, "expert rotated": 12}


@given(families(), st.data())
def test_stages_add_up_to_the_whole(shape: TransformerShape, data: st.DataObject) -> None:
    shape = replace(shape, tied_embeddings=False)
    layout = Layout(pipeline=data.draw(st.integers(1, shape.num_layers)))
    stages = list(places(layout))
    held = [device_parameters(shape, layout, place) for place in stages]
    assert sum(int(one.total) for one in held) == parameters(shape).total
    flops = [device_flops(shape, layout, place, 2, 16) for place in stages]
    assert sum(int(one.total) for one in flops) == forward_flops(shape, 16, 2).total
    for kind, count in shape.counts.items():
        assert sum(shard(shape, layout, place).counts.get(kind, 0) for place in stages) == count
    for place in stages:
        assert device_memory(shape, layout, place, 1, 16).total > 0


@given(families(), st.integers(1, 3))
def test_one_device_of_one_holds_what_a_step_holds(shape: TransformerShape, batch: int) -> None:
    policy = Policy(gradient_accumulation=True)
    alone = training_memory(shape, batch, 16, policy=policy)
    assert device_memory(shape, Layout(), Place(), batch, 16, policy=policy).total == alone.total
    assert peak_bytes(shape, batch, 16, policy=policy) == alone.total


@given(families())
def test_what_fits_and_one_more_does_not(shape: TransformerShape) -> None:
    limit = int(training_memory(shape, 3, 16).total) + 1000
    batch = max_batch_size(shape, limit, 16)
    assert batch >= 3
    assert training_memory(shape, batch, 16).total <= limit < training_memory(shape, batch + 1, 16).total
    deepest = largest_shape(shape, limit, 1, 16)
    assert deepest is not None
    assert deepest.num_layers >= shape.num_layers
    widest = largest_shape(shape, limit, 1, 16, vary="width")
    assert widest is not None
    assert training_memory(widest, 1, 16).total <= limit
    assert longest_context(shape, limit, 3) >= 16


@pytest.mark.parametrize("name", NAMES)
def test_what_experts_share_and_what_not(name: str) -> None:
    """Experts are on one device in `expert`; shared experts, dense layers and attention on every one."""
    shape, layout = SHAPES[name], Layout(data=16, expert=8)
    others, experts = replicated(shape, layout, Place())
    whole = parameters(shape)
    assert int(experts.params) * 8 == expert_parameters(shape)
    assert int(others.params) == int(whole.total) - expert_parameters(shape)
    assert (int(others.devices), int(experts.devices)) == (16, 2)
    sent = device_traffic(shape, layout, Place(), 1, 4096, policy=BF16).by_group()[Joins.EXPERT]
    ffn, layers = next((one, count) for one, count in shape.ffns.items() if one.experts)
    each = 4096 * ffn.active * shape.d_model * 2
    assert sent == layers * 2 * 2 * (each // 8 * 7)


def test_tensor_parallel_sums_of_latents() -> None:
    """Matrices that are shared out read 1,536 + 512 + 64 elements of a position instead of 7,168."""
    shape, policy = SHAPES["deepseek-v3"], BF16

    def sent(shared: bool) -> dict[str, int]:
        layout = Layout(tensor=8, sequence_parallel=shared)
        found = device_traffic(shape, layout, Place(), 1, 4096, policy=policy)
        return {name: int(size) for name, size in found.items()}

    once, latents = (4096 * width // 8 * 7 * 61 * 2 for width in (7168, 1536 + 512 + 64))
    assert sent(False)["sums of layers, forward"] == 4 * once
    assert sent(False)["sums of layers, backward"] == 2 * once + 2 * latents
    assert sent(True)["sums of layers, forward"] == 3 * once + latents
    assert sent(True)["sums of layers, backward"] == 4 * once + 2 * latents


@pytest.mark.parametrize("name", NAMES)
def test_elementwise(name: str) -> None:
    """Of one position of DeepSeek V3, of gpt-oss's softmax and of Llama 4's norms by hand; all parts add up."""
    shape = SHAPES[name]
    found = elementwise_flops(shape, 1)
    assert found.total == sum(int(part) for part in found.values())
    if name == "gpt-oss-20b":
        assert found["softmax"] == 24 * 64 * (6 + 2)  # of a pair 6, of a sink 2
    if name == "deepseek-v3":
        assert found["norms"] == (2 * 61 + 1) * (4 * 7168 + 3) + 61 * (4 * 1536 + 3 + 4 * 512 + 3)
        assert found["rope"] == 3 * 61 * 64 * 129
        assert found["activation"] == 6 * (58 * (8 + 1) * 2048 + 3 * 18432)
        assert found["router"] == 58 * (4 * 256 + 2 * 8)
    if name == "llama-4-scout":  # of 36 layers queries and keys too, without a weight
        assert found["norms"] == (2 * 48 + 1) * (4 * 5120 + 3) + 36 * (40 + 8) * (3 * 128 + 3)


def test_every_symbol_of_a_formula_is_explained() -> None:
    meanings = set(symbols())
    for shape in (*(SHAPES[name] for name in NAMES), MAVERICK):
        memory = training_memory(shape, 1, 128, policy=BF16)
        for found in (*memory.phases, elementwise_flops(shape, 128), parameters(shape)):
            for formula in found.formula.values():
                assert set(re.findall(r"[a-z]\w*", formula)) <= meanings, formula


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": "autocast"}, "not counted with precision 'autocast'"),
        ({"attention_kernel": "blocks"}, "not counted with attention_kernel 'blocks'"),
        ({"gate_kernel": "fused"}, "not counted with gate_kernel 'fused'"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_refused_by_name(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training_memory(SHAPES[name], 1, 128, policy=Policy(**change))
    with pytest.raises(ValueError, match="lora_rank 8: adapters are not counted for latent attention"):
        replace(SHAPES[name], lora_rank=8)


UNVERIFIED = "deepseek_v2 glm4_moe qwen2_moe qwen3_next gemma3n_text qwen3_5_text olmo_hybrid bamba falcon_h1"


@pytest.mark.parametrize("family", UNVERIFIED.split())
def test_memory_of_unverified_families_is_refused(family: str) -> None:
    with pytest.raises(NotCounted, match="the memory of training"):
        training_memory(from_config({"model_type": family, "num_experts_per_tok": 2}), 1, 128)


def test_value_embeddings_are_refused() -> None:
    shape = TransformerShape(100, 16, 2, 8, 2, 32, value_embeddings=1)
    with pytest.raises(ValueError, match="the memory of training is not counted of shapes with value embeddings"):
        training_memory(shape, 1)
    with pytest.raises(ValueError, match="a device's share is not counted of shapes with value embeddings"):
        device_parameters(shape, Layout(pipeline=2), Place())


@pytest.mark.parametrize(
    "command",
    [
        "plan gpt-oss-20b --devices 8xh200 --tokens 1T --context 4096 --batch-tokens 65536 --most 2",
        "plan llama-4-scout --devices 64xh200 --tokens 1T --context 4096 --batch-tokens 262144 --most 2",
        "fit gpt-oss-20b --device h100 --gpus 16 --zero 3 --precision bf16 --context 4096",
    ],
)
def test_commands_answer(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 0
    assert "none fits" not in capsys.readouterr().out
