"""Inverses: the answer fits, and the answer plus one does not."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_strategies import POLICIES, laid_out, shapes

from accounting import (
    SHAPES,
    Policy,
    TransformerShape,
    largest_shape,
    longest_context,
    max_batch_size,
    memory_line,
    parameters,
    training_memory,
)
from accounting.cluster.layout import Layout, places
from accounting.cluster.memory import device_memory, fullest
from accounting.cluster.traffic import device_traffic
from accounting.models.resizing import deepened, widened


@given(shapes(), st.integers(1, 1 << 28), POLICIES)
@settings(max_examples=40)
def test_largest_batch_and_context(shape: TransformerShape, memory: int, policy: Policy) -> None:
    batch = max_batch_size(shape, memory, policy=policy)
    assert batch == 0 or training_memory(shape, batch, policy=policy).total <= memory
    assert training_memory(shape, batch + 1, policy=policy).total > memory
    length = longest_context(shape, memory, 2, policy=policy)

    def at(positions: int) -> int:
        grown = replace(shape, context_length=max(shape.context_length, positions))
        return int(training_memory(grown, 2, positions, policy=policy).total)

    assert length == 0 or at(length) <= memory
    assert at(length + 1) > memory


@given(shapes(), st.integers(1, 1 << 28), st.sampled_from(["layers", "width"]), POLICIES)
@settings(max_examples=40)
def test_largest_of_its_kind(shape: TransformerShape, memory: int, vary: str, policy: Policy) -> None:
    found = largest_shape(shape, memory, 2, vary=vary, policy=policy)
    assert found is None or training_memory(found, 2, policy=policy).total <= memory
    if vary == "layers":
        beyond = deepened(shape, 1 if found is None else found.num_layers + 1)
    else:
        beyond = widened(shape, 1 if found is None else found.kv_heads + 1)
    assert training_memory(beyond, 2, policy=policy).total > memory


def test_a_model_of_half_the_width_has_latents_of_half_the_width() -> None:
    half = widened(SHAPES["deepseek-v3"], 64)
    assert half.d_model == 3584
    assert {(one.attention.q_rank, one.attention.kv_rank) for one in half.layers} == {(768, 256)}


@given(laid_out(), st.integers(1, 1 << 26), POLICIES)
@settings(max_examples=25)
def test_what_fits_every_device_of_a_layout(
    drawn: tuple[TransformerShape, Layout], memory: int, policy: Policy
) -> None:
    shape, layout = drawn
    policy = replace(policy, allocator="exact", optimizer="adamw")
    batch = max_batch_size(shape, memory, layout=layout, policy=policy)
    for place in places(layout):
        assert batch == 0 or device_memory(shape, layout, place, batch, policy=policy).total <= memory
    assert fullest(shape, layout, batch + 1, policy=policy).total > memory
    for vary, make, size in (("layers", deepened, "num_layers"), ("width", widened, "kv_heads")):
        found = largest_shape(shape, memory, 1, vary=vary, layout=layout, policy=policy)
        if found is not None:
            assert fullest(found, layout, 1, policy=policy).total <= memory
            assert fullest(make(shape, getattr(found, size) + 1), layout, 1, policy=policy).total > memory
        else:  # as it stands it can be laid out, and so what is as large cannot fit
            assert fullest(shape, layout, 1, policy=policy).total > memory


def test_a_layout_needs_a_layer_for_each_stage() -> None:
    shape, layout = SHAPES["gpt2-swiglu"], Layout(tensor=7, pipeline=20)
    deep = largest_shape(replace(shape, num_layers=4), 24 * 10**9, layout=layout)
    assert deep is not None
    assert deep.num_layers > 20
    assert largest_shape(shape, 10**6, layout=layout) is None
    with pytest.raises(ValueError, match="tensor 8 is more than vocabulary 5"):
        largest_shape(replace(shape, vocab_size=5), 24 * 10**9, layout=Layout(tensor=8))


@pytest.mark.parametrize("name", [name for name in SHAPES if name.startswith("gpt2")])
@pytest.mark.parametrize("loss", ["plain", "chunked"])
@pytest.mark.parametrize("attention", ["fused", "eager"])
def test_memory_is_the_line_it_says(name: str, loss: str, attention: str) -> None:
    shape = SHAPES[name]
    policy = Policy(loss=loss, attention_kernel=attention)
    line = memory_line(shape, policy=policy)
    for batch in (line.first, line.first + 1, line.first + 100, 10**6):
        predicted = line.slope * batch + int(line.intercept)
        assert training_memory(shape, batch, policy=policy).total == predicted
    if line.first > 1:
        below = line.first - 1
        found = training_memory(shape, below, policy=policy)
        assert found.total != line.slope * below + int(line.intercept)


def test_refusals() -> None:
    shape = SHAPES["gpt2"]
    with pytest.raises(ValueError, match="device_bytes must be a whole number of at least 1"):
        max_batch_size(shape, 0)
    with pytest.raises(ValueError, match="vary 'height' is not known: use one of layers, width"):
        largest_shape(shape, 10**9, vary="height")
    with pytest.raises(ValueError, match="activation_checkpointing 'some' is not known"):
        Policy(activation_checkpointing="some")


@given(shapes(), st.integers(1, 5), st.sampled_from(["fp32", "bf16", "autocast"]), st.integers(0, 10**10))
def test_fp32_gradients_and_overhead(shape: TransformerShape, batch: int, precision: str, overhead: int) -> None:
    """Buffers of four bytes a parameter in every phase, and so many bytes more."""
    count = int(parameters(shape).total)
    policy = Policy(precision=precision, gradient_dtype="fp32", overhead_bytes=overhead)
    plain = Policy(precision=precision, gradient_accumulation=True)
    wider = 4 - plain.bytes.weights
    found, without = (training_memory(shape, batch, policy=one).phases for one in (policy, plain))
    for mine, other in zip(found, without, strict=True):
        assert int(mine.total) - int(other.total) == wider * count + overhead, mine.title
    whole = replace(shape, vocab_multiple=1)
    mine = device_memory(whole, Layout(), batch_size=batch, policy=policy)
    assert mine.total == training_memory(whole, batch, policy=policy).total
    sent, narrow = (device_traffic(whole, Layout(2, zero=2), policy=one) for one in (policy, plain))
    each = "reduce-scatter of gradients"
    assert int(sent[each]) * plain.bytes.weights == 4 * int(narrow[each])
    assert sent["all-gather of parameters"] == narrow["all-gather of parameters"]
