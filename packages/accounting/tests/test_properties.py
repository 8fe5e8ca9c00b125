"""What must hold of every shape, whatever its numbers."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_strategies import shapes

import accounting
from accounting import (
    Breakdown,
    Policy,
    TransformerShape,
    decode_flops,
    elementwise_flops,
    forward_flops,
    kv_cache,
    optimizer_flops,
    parameters,
    training_flops,
    training_memory,
)
from accounting.layer import Layer

SIZES = (
    *("vocab_size", "context_length", "num_layers", "d_model", "d_ff", "head_dim", "num_heads", "num_kv_heads"),
    *("experts", "experts_per_token", "sliding_window"),
)


def everything(shape: TransformerShape, batch: int) -> dict[str, Breakdown]:
    return {
        "parameters": parameters(shape),
        "active": parameters(shape, active=True),
        "full": forward_flops(shape, None, batch),
        "half": forward_flops(shape, None, batch, pairs="half"),
        "causal": forward_flops(shape, None, batch, pairs="causal"),
        "elementwise": elementwise_flops(shape, None, batch),
        "training": training_flops(shape, None, batch, recompute="full"),
        "decode": decode_flops(shape, None, batch),
        "checkpointed": training_memory(
            shape, batch, policy=Policy(activation_checkpointing="selective", attention_kernel="eager")
        ).peak,
        "autocast": training_memory(
            shape, batch, policy=Policy(precision="autocast", activation_checkpointing="full")
        ).peak,
        "in blocks": training_memory(shape, batch, policy=Policy(precision="bf16", allocator="cuda")).peak,
        "matmuls": accounting.matmul_flops(shape, None, batch, pairs="causal"),
        "prefill": accounting.prefill_flops(shape, None, batch),
        "read": accounting.weights_read(shape, batch),
        "adamw": optimizer_flops(shape),
        "muon": optimizer_flops(shape, optimizer="muon"),
        "cache": kv_cache(shape, batch),
        "inference": accounting.inference_memory(shape, batch),
        "int4": accounting.inference_memory(shape, batch, weights="int4", cache="int8"),
        "plain": training_memory(shape, batch).peak,
        "chunked": training_memory(
            shape, batch, policy=Policy(loss="chunked", attention_kernel="eager", activation_checkpointing="full")
        ).peak,
    }


@given(shapes(), st.integers(1, 5))
def test_totals_are_sums_of_exact_parts_and_formulas_tell_the_truth(shape: TransformerShape, batch: int) -> None:
    for name, found in everything(shape, batch).items():
        assert found.total == int(found) == sum(int(value) for value in found.values()), name
        for part, value in found.items():
            assert isinstance(value, int)
            assert value >= 0
            numbers = found.explain()[part].replace(",", "").replace("·", "*")
            assert eval(numbers) == value, (name, part, numbers)  # our own digits and operators


@given(shapes(), st.integers(1, 5))
def test_adding_a_layer_adds_the_same(shape: TransformerShape, batch: int) -> None:
    shape = replace(shape, layers=shape.layers[:1])
    one, two, three = (everything(replace(shape, num_layers=shape.num_layers + more), batch) for more in range(3))
    for name in one:
        if name not in (
            "int4",
            "plain",
            "chunked",
            "checkpointed",
            "autocast",
            "in blocks",
        ):  # rounding to groups, and a maximum of several lines
            assert int(three[name]) - int(two[name]) == int(two[name]) - int(one[name]) > 0, name


@given(shapes())
def test_tying_saves_exactly_the_head(shape: TransformerShape) -> None:
    tied, untied = replace(shape, tied_embeddings=True), replace(shape, tied_embeddings=False)
    assert int(parameters(untied)) - int(parameters(tied)) == shape.vocab_rows * shape.d_model
    assert forward_flops(tied).total == forward_flops(untied).total
    assert training_flops(tied).total == training_flops(untied).total


def grown(shape: TransformerShape, size: str) -> TransformerShape:
    """The shape with one more of something, or as little more as there can be."""
    if size == "head_dim":
        return replace(shape, head_dim=shape.head_width + 2)
    if size == "num_heads":  # a query head more for each key head
        return replace(shape, num_heads=shape.num_heads + shape.kv_heads)
    if size == "num_kv_heads":
        more = [count for count in range(shape.kv_heads + 1, shape.num_heads + 1) if shape.num_heads % count == 0]
        return replace(shape, num_kv_heads=more[0] if more else shape.kv_heads)
    if size == "experts":
        return shape if shape.experts is None else replace(shape, experts=shape.experts + 1)
    if size == "experts_per_token":
        return (
            shape
            if shape.experts in (None, shape.experts_per_token)
            else replace(shape, experts_per_token=shape.experts)
        )
    if size == "sliding_window":
        return shape if shape.sliding_window is None else replace(shape, sliding_window=shape.sliding_window + 1)
    return replace(shape, **{size: getattr(shape, size) + 1})


@given(shapes(), st.sampled_from(SIZES), st.integers(1, 5))
@settings(max_examples=200)
def test_monotone_in_every_size(shape: TransformerShape, size: str, batch: int) -> None:
    shape = replace(shape, layers=(Layer(),), vocab_multiple=1)
    small, large = everything(shape, batch), everything(grown(shape, size), batch)
    more, phases = everything(shape, batch + 1), [phase.title for phase in training_memory(shape, 1).phases]
    for name in small:
        # A window that reaches the whole sequence needs no mask any more, and a second key head has whole score
        # matrices copy what views of larger tensors kept alive: their training alone may take less.
        if not (small[name].title in phases and size in ("sliding_window", "num_kv_heads")):
            assert small[name].total <= large[name].total, (name, size)
        assert small[name].total <= more[name].total, name


@given(shapes(), st.integers(1, 64), st.integers(1, 5))
def test_causal_counts_the_pairs_one_by_one(shape: TransformerShape, length: int, batch: int) -> None:
    length = min(length, shape.context_length)

    def seen(window: int | None, chunked: bool, position: int) -> int:
        if window is None or position < window:
            return position + 1
        return position % window + 1 if chunked else window

    kinds = [shape.kind_at(layer).attention for layer in range(shape.num_layers)]
    pairs = sum(seen(kind.window, kind.chunked, at) for kind in kinds for at in range(length))
    found = forward_flops(shape, length, batch, pairs="causal")["scores"]
    assert found == 4 * batch * shape.num_heads * shape.head_width * pairs


@given(shapes(), st.integers(1, 64))
def test_decoding_one_by_one_is_the_causal_forward(shape: TransformerShape, length: int) -> None:
    shape = replace(shape, context_length=max(shape.context_length, length))
    assert (
        accounting.matmul_flops(shape, length, pairs="causal").total
        == forward_flops(shape, length, pairs="causal").total
    )
    steps = sum(int(decode_flops(shape, position).total) for position in range(1, length + 1))
    assert steps == forward_flops(shape, length, pairs="causal").total


@given(shapes(), st.sampled_from(["none", "fused", "selective", "full"]))
def test_backward_is_twice_the_forward(shape: TransformerShape, recompute: str) -> None:
    forward, training = forward_flops(shape), training_flops(shape, recompute=recompute)
    for name, value in forward.items():
        assert training[f"forward {name}"] == value
        assert training[f"backward {name}"] == 2 * value
    again = {"none": 0, "fused": int(forward["scores"]) // 2, "selective": int(forward["scores"])}
    again["full"] = int(forward) - int(forward["head"])
    assert int(training) - 3 * int(forward) == again[recompute]


@given(shapes(), st.integers(1, 9), st.sampled_from(["fused", "eager"]), st.sampled_from(["plain", "chunked"]))
def test_checkpointing_only_ever_saves(shape: TransformerShape, batch: int, attention: str, loss: str) -> None:
    none, selective, full = (
        accounting.saved_activations(
            shape, batch, policy=Policy(attention_kernel=attention, loss=loss, activation_checkpointing=how)
        )
        for how in ("none", "selective", "full")
    )
    assert full.total <= none.total
    if attention == "fused":
        assert full.total <= selective.total <= none.total
    else:  # kept instead of the copies that whole matrices want, what they are copied from, which may be more
        heads = "queries, keys, values"
        assert int(selective.total) - int(selective[heads]) < int(none.total) - int(none[heads])


@pytest.mark.parametrize("precision", ["fp32", "bf16", "autocast"])
def test_a_fused_loss_holds_no_logits_in_fp32_beside_those_in_16_bits(precision: str) -> None:
    shape = accounting.SHAPES["gpt2"]
    policy = Policy(precision=precision, loss="chunked", logits_chunk_bytes=4 * 50257 * 100)
    operators, fused = (
        training_memory(shape, 2, policy=replace(policy, loss_kernel=kernel)) for kernel in ("operators", "fused")
    )
    logits = 100 * 50257
    of_head = 2 * 50257 * 768  # a product for the head's gradient
    in_bf16 = of_head + 2 * 100 * 768  # beside hidden states
    chunks = {
        "fp32": (4 * logits, 4 * logits),
        "autocast": (6 * logits + in_bf16, 2 * logits + in_bf16),
        # the head's gradient is summed in fp32: 2 bytes of each weight more than it has
        "bf16": (6 * logits + in_bf16 + of_head, 2 * logits + 2 * of_head),
    }
    for found, expected in zip((operators, fused), chunks[precision], strict=True):
        assert found.phases[0]["chunks of logits"] == expected
    assert [phase.total for phase in operators.phases[1:]] == [phase.total for phase in fused.phases[1:]]
    assert "20.10 MB of logits at a time" in operators.convention
    assert f"{'20.10' if precision == 'fp32' else '10.05'} MB of logits at a time" in fused.convention


@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit", "sgd", "muon"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bytes_of_state(optimizer: str, precision: str) -> None:
    shape = accounting.SHAPES["gpt2"]
    count = int(parameters(shape).total)
    blocks = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    matrices = blocks + 50257 * 768 + 1024 * 768
    expected = {
        "adamw": 8 * count,
        # matrices and positions in bytes with a scale for 256 of them; vectors of 768, 2,304 and 3,072 numbers in fp32
        "adamw8bit": 2 * (matrices + 4 * (matrices // 256)) + 8 * (count - matrices) + 2048,
        "sgd": 4 * count,
        "muon": 4 * blocks + 8 * (count - blocks),
    }[optimizer]
    found = accounting.optimizer_state(shape, policy=Policy(optimizer=optimizer, precision=precision))
    assert found.total == expected + (4 * count if precision == "bf16" else 0)
