"""Tensor and pipeline parallelism: the shares add up to the whole, evenly or not."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_strategies import POLICIES, laid_out, shapes

from accounting import SHAPES, Policy, TransformerShape, forward_flops, parameters, saved_activations, training_memory
from accounting.cluster.device import device_flops, device_parameters, replicated_parameters
from accounting.cluster.layout import Layout, Place, places, shard, split
from accounting.cluster.memory import device_memory, fullest
from accounting.cluster.traffic import Joins, device_traffic


@given(st.integers(0, 1000), st.integers(1, 50))
def test_split_is_even(whole: int, parts: int) -> None:
    shares = split(whole, parts)
    assert sum(shares) == whole
    assert shares == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] <= 1


def copied_keys(shape: TransformerShape, layout: Layout) -> int:
    """Rows of key and value projections that more than one device holds, beyond the first."""
    held = sum(shard(shape, layout, Place(0, rank)).kv_heads for rank in range(layout.tensor))
    each = 2 * shape.head_width * (shape.d_model + shape.biased_qkv)
    return (held - shape.kv_heads) * each * shape.num_layers


@given(laid_out())
def test_parameters_add_up(drawn: tuple[TransformerShape, Layout]) -> None:
    shape, layout = drawn
    held = sum(int(device_parameters(shape, layout, place).total) for place in places(layout))
    again = sum(
        replicated_parameters(shape, layout, place) for place in places(layout) if place.tensor_rank
    )  # on every device of a layer, where one would do
    tied = shape.vocab_rows * shape.d_model if shape.tied_embeddings and layout.pipeline > 1 else 0
    assert held - again - copied_keys(shape, layout) - tied == parameters(shape).total


@given(laid_out(), st.integers(1, 3))
def test_flops_add_up(drawn: tuple[TransformerShape, Layout], batch: int) -> None:
    shape, layout = drawn
    length = shape.context_length
    done = sum(int(device_flops(shape, layout, place, batch).total) for place in places(layout))
    keys = copied_keys(replace(shape, qkv_bias=False), layout)
    routers = (layout.tensor - 1) * shape.num_layers * shape.d_model * (shape.experts or 0)
    assert done - 2 * batch * length * (keys + routers) == forward_flops(shape, None, batch).total


@given(shapes(), st.integers(1, 3), POLICIES)
def test_memory_alone_is_that_of_one_device(shape: TransformerShape, batch: int, policy: Policy) -> None:
    shape, policy = replace(shape, vocab_multiple=1), replace(policy, allocator="exact")
    mine = device_memory(shape, Layout(), Place(), batch, policy=policy)
    assert mine.total == training_memory(shape, batch, policy=replace(policy, gradient_accumulation=True)).total


def test_the_embedding_and_the_step_can_be_the_peak() -> None:
    """Few tokens, a large vocabulary: a tied embedding's second gradient; a step that holds √v of everything."""
    shape = SHAPES["gpt2"]
    alone = device_memory(shape, Layout(data=2), Place(), 1, 8)
    assert alone.title.endswith("backward of the embedding")
    assert alone["second gradient"] == 4 * 50257 * 768
    of_two = device_memory(shape, Layout(pipeline=2), Place(), 1, 8)
    assert of_two.title.endswith("backward of the embedding")
    assert of_two["newest gradient"] == 4 * 50257 * 768
    assert "second gradient" not in of_two
    stepping = device_memory(shape, Layout(data=8), Place(), 1, 8, policy=Policy(optimizer_step="foreach"))
    assert stepping.title.endswith("optimizer step")
    assert stepping["temporaries"] == 4 * 124_439_808
    sharded = device_memory(shape, Layout(data=8, zero=1), Place(), 1, 8, policy=Policy(optimizer_step="foreach"))
    assert sharded.title.endswith("backward of the embedding")


@given(laid_out(zero=0), st.integers(1, 3), st.sampled_from(["fused", "eager"]))
@settings(max_examples=40)
def test_memory_of_a_device(drawn: tuple[TransformerShape, Layout], batch: int, attention: str) -> None:
    shape, layout = drawn
    most = fullest(shape, layout, batch, policy=Policy(attention_kernel=attention)).total
    for place in places(layout):
        held = device_memory(shape, layout, place, batch, policy=Policy(attention_kernel=attention))
        count = int(device_parameters(shape, layout, place).total)
        assert held["parameters"] == held["gradients"] == 4 * count
        assert held["optimizer state"] == 8 * count
        assert held.total <= most
        alone = device_memory(
            shape, replace(layout, micro_batches=1), place, batch, policy=Policy(attention_kernel=attention)
        )
        more = layout.in_flight(place.stage) - 1
        assert (held.total > alone.total) == (more > 0)


@given(laid_out(data=1, sequence_parallel=False), st.integers(1, 3))
def test_traffic_goes_with_the_micro_batches(drawn: tuple[TransformerShape, Layout], batch: int) -> None:
    shape, layout = drawn
    for place in places(layout):
        tied = "gradient of the tied embedding"
        one, two = (
            {
                name: int(value)
                for name, value in device_traffic(shape, replace(layout, micro_batches=count), place, batch).items()
                if name != tied
            }
            for count in (1, 2)
        )
        assert two == {name: 2 * value for name, value in one.items()}


def test_what_a_layer_sends() -> None:
    """Megatron's count: four all-reduces of batch × positions × width for each layer, each 2(t - 1)/t of it from a
    device."""
    shape, layout = SHAPES["llama-3-8b"], Layout(tensor=8)
    sent = device_traffic(shape, layout, Place(), 1, 4096, policy=Policy(precision="bf16"))
    each = 2 * 7 * (4096 * 4096 // 8) * 2
    assert sent["sums of layers, forward"] == sent["sums of layers, backward"] == 32 * 2 * each
    assert sent["sum of embeddings"] == sent["gradient of the head's input"] == each
    ring = replace(layout, sequence_parallel=True)
    again = device_traffic(shape, ring, Place(), 1, 4096, policy=Policy(precision="bf16"))
    assert again["sums of layers, forward"] == sent["sums of layers, forward"]
    assert 2 * int(again["sums of layers, backward"]) == 3 * int(sent["sums of layers, backward"])


def test_stages_pass_on_the_residual() -> None:
    shape, layout = SHAPES["gpt2"], Layout(data=4, pipeline=3, micro_batches=8)
    sent = [device_traffic(shape, layout, Place(stage), 2, 1024) for stage in range(3)]
    passed = 8 * 2 * 1024 * 768 * 4
    assert ["to the next stage" in one for one in sent] == [True, True, False]
    assert [int(one.get("gradient to the stage before", 0)) for one in sent] == [0, passed, passed]
    assert sent[0]["gradient of the tied embedding"] == sent[2]["gradient of the tied embedding"] == 50257 * 768 * 4
    middle = int(device_parameters(shape, layout, Place(1)).total)
    assert middle == 4 * 7_087_872
    assert sent[1]["reduce-scatter of gradients"] == middle // 4 * 3 * 4
    alone = device_traffic(shape, Layout(data=4))
    assert alone["reduce-scatter of gradients"] == 124_439_808 // 4 * 3 * 4


def test_in_flight() -> None:
    layout = Layout(pipeline=4, micro_batches=3)
    assert [layout.in_flight(stage) for stage in range(4)] == [3, 3, 2, 1]


def test_sequence_parallelism_shares_what_lies_between_the_products() -> None:
    shape = SHAPES["gpt2"]
    plain, shared = (
        device_memory(shape, Layout(tensor=4, sequence_parallel=how), Place(), 8, policy=Policy(loss="chunked"))
        for how in (False, True)
    )
    for name in ("saved: norms", "saved: attention input", "saved: ffn input"):
        assert 4 * int(shared[name]) == plain[name]
    assert shared["saved: ffn hidden"] == plain["saved: ffn hidden"]
    whole = saved_activations(shape, 8)
    assert 4 * int(plain["saved: ffn hidden"]) == whole["ffn hidden"]


def test_refusals() -> None:
    shape = SHAPES["gpt2"]
    for layout, message in (
        ({"tensor": 13}, "tensor 13 is more than num_heads 12"),
        ({"pipeline": 13}, "pipeline 13 is more than num_layers 12"),
    ):
        with pytest.raises(ValueError, match=message):
            device_parameters(shape, Layout(**layout), Place())
    with pytest.raises(ValueError, match="micro_batches must be a whole number of at least 1"):
        Layout(micro_batches=0)
    with pytest.raises(ValueError, match=r"optimizer 'muon' goes by whole tensors.* use one of adamw, sgd"):
        device_memory(shape, Layout(tensor=2), Place(), policy=Policy(optimizer="muon"))
    with pytest.raises(ValueError, match="optimizer_step 'slow' is not known"):
        device_memory(shape, Layout(), Place(), policy=Policy(optimizer_step="slow"))


def test_a_shared_sequence() -> None:
    """Ring attention's count: a device sends its keys and values to all others of a sequence, backward with
    gradients."""
    shape, layout = SHAPES["llama-3-8b"], Layout(context=4)
    assert layout.gpus == 4
    sent = device_traffic(shape, layout, Place(), 1, 8192, policy=Policy(precision="bf16")).by_group()
    each = 32 * 3 * 2048 * 2 * 8 * 128 * 2
    assert sent[Joins.CONTEXT] == 3 * each
    assert sent[Joins.DATA] == 2 * 3 * (8_030_261_248 // 4) * 2
    alone, shared = (device_memory(shape, one, Place(), 1, 8192) for one in (Layout(), layout))
    for name in ("norms", "attention input", "queries, keys, values", "ffn hidden"):
        assert alone[f"saved: {name}"] == 4 * int(shared[f"saved: {name}"])
    assert int(device_flops(shape, layout, Place(), 1, 8192)) * 4 == int(forward_flops(shape, 8192))
    eager = Policy(attention_kernel="eager")
    whole, part = (device_memory(shape, one, Place(), 1, 8192, policy=eager) for one in (Layout(), layout))
    assert whole["saved: attention weights"] == 4 * int(part["saved: attention weights"])
    with pytest.raises(ValueError, match="'blocks' is lm's on a CPU"):
        device_memory(shape, layout, policy=Policy(attention_kernel="blocks"))


def test_shared_experts() -> None:
    """Each token goes to two of eight experts and back, forward and backward; 3/4 of them are on other devices."""
    shape, layout = SHAPES["mixtral-8x7b"], Layout(4, expert=4)
    assert layout.gpus == 4
    held = device_parameters(shape, layout, Place())
    assert int(held["ffn"]) * 4 == int(parameters(shape)["ffn"])
    assert held["router"] == parameters(shape)["router"]
    sent = device_traffic(shape, layout, Place(), 1, 4096, policy=Policy(precision="bf16")).by_group()
    assert sent[Joins.EXPERT] == 4 * 32 * (4096 * 2 * 4096 * 3 // 4) * 2
    outside = int(held.total) - int(held["ffn"])
    assert sent[Joins.DATA] == 2 * 3 * -(-outside // 4) * 2  # experts have one copy and nothing to add up
    assert device_flops(shape, layout, Place()).total == forward_flops(shape).total


@given(laid_out(), st.integers(1, 2))
def test_traffic_by_group_adds_up(drawn: tuple[TransformerShape, Layout], batch: int) -> None:
    shape, layout = drawn
    for place in places(layout):
        sent = device_traffic(shape, layout, place, batch)
        assert sum(int(size) for size in sent.by_group().values()) == sent.total
