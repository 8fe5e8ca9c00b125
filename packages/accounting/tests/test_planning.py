"""Inverses: the answer fits, and the answer plus one does not."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_strategies import shapes

from accounting import (
    SHAPES,
    TransformerShape,
    largest_shape,
    longest_context,
    max_batch_size,
    memory_line,
    training_memory,
)
from accounting.planning import deepened, widened

OPTIONS = st.fixed_dictionaries(
    {
        "precision": st.sampled_from(["fp32", "bf16", "autocast"]),
        "attention": st.sampled_from(["fused", "eager"]),
        "checkpointing": st.sampled_from(["none", "selective", "full"]),
        "loss": st.sampled_from(["plain", "chunked"]),
        "step": st.sampled_from(["fused", "foreach", "loop"]),
        "accumulate": st.booleans(),
        "allocator": st.sampled_from(["exact", "cuda"]),
        "optimizer": st.sampled_from(["adamw", "sgd", "muon"]),
    }
)


@given(shapes(), st.integers(1, 1 << 28), OPTIONS)
@settings(max_examples=40)
def test_largest_batch_and_context(shape: TransformerShape, memory: int, options: dict[str, Any]) -> None:
    batch = max_batch_size(shape, memory, **options)
    assert batch == 0 or training_memory(shape, batch, **options).total <= memory
    assert training_memory(shape, batch + 1, **options).total > memory
    length = longest_context(shape, memory, 2, **options)

    def at(positions: int) -> int:
        grown = replace(shape, context_length=max(shape.context_length, positions))
        return int(training_memory(grown, 2, positions, **options).total)

    assert length == 0 or at(length) <= memory
    assert at(length + 1) > memory


@pytest.mark.parametrize("name", ["gpt2", "gpt2-swiglu", "llama-3.2-1b", "gemma-2-2b", "mixtral-8x7b"])
@pytest.mark.parametrize("memory", [10**6, 24 * 10**9, 141 * 10**9])
def test_deepest_and_widest(name: str, memory: int) -> None:
    shape, length = SHAPES[name], 512
    deep = largest_shape(shape, memory, 1, length)
    wide = largest_shape(shape, memory, 1, length, vary="width")
    one_deeper = deepened(shape, 1 if deep is None else deep.num_layers + 1)
    one_wider = widened(shape, 1 if wide is None else wide.kv_heads + 1)
    for found in (deep, wide):
        assert found is None or training_memory(found, 1, length).total <= memory
    for beyond in (one_deeper, one_wider):
        assert training_memory(beyond, 1, length).total > memory


@pytest.mark.parametrize("name", [name for name in SHAPES if name.startswith("gpt2")])
@pytest.mark.parametrize("loss", ["plain", "chunked"])
@pytest.mark.parametrize("attention", ["fused", "eager"])
def test_memory_is_the_line_it_says(name: str, loss: str, attention: str) -> None:
    shape = SHAPES[name]
    line = memory_line(shape, loss=loss, attention=attention)
    for batch in (line.first, line.first + 1, line.first + 100, 10**6):
        predicted = line.slope * batch + int(line.intercept)
        assert training_memory(shape, batch, loss=loss, attention=attention).total == predicted
    if line.first > 1:
        below = line.first - 1
        found = training_memory(shape, below, loss=loss, attention=attention)
        assert found.total != line.slope * below + int(line.intercept)


def test_refusals() -> None:
    shape = SHAPES["gpt2"]
    with pytest.raises(ValueError, match="device_bytes must be at least 1"):
        max_batch_size(shape, 0)
    with pytest.raises(ValueError, match="vary 'height' is not known: use one of layers, width"):
        largest_shape(shape, 10**9, vary="height")
    with pytest.raises(ValueError, match="checkpointing 'some' is not known"):
        max_batch_size(shape, 10**9, checkpointing="some")
