"""Adapters: known counts, what is frozen, and how devices share them. tests/ holds them against real models."""

from dataclasses import replace

import pytest

from accounting import (
    DEVICES,
    SHAPES,
    Layout,
    Place,
    Policy,
    device_memory,
    device_parameters,
    device_state,
    device_traffic,
    forward_flops,
    inference_memory,
    matmul_flops,
    optimizer_flops,
    optimizer_state,
    parameters,
    plan,
    trained_parameters,
    training_flops,
    training_memory,
)
from accounting.cluster.device import replicated, replicated_parameters
from accounting.cluster.layout import places
from accounting.planning.inference import decode_time

LLAMA = replace(SHAPES["llama-3-8b"], lora_rank=16)


def test_counts_that_peft_prints() -> None:
    assert trained_parameters(LLAMA) == 41_943_040
    assert parameters(LLAMA).total == 8_072_204_288
    assert trained_parameters(replace(LLAMA, lora_rank=8, lora_targets=("query", "value"))) == 3_407_872
    assert trained_parameters(replace(SHAPES["gpt2"], lora_rank=8, lora_targets=("qkv",))) == 294_912


def test_only_adapters_have_gradients_and_state() -> None:
    trained = trained_parameters(LLAMA)
    policy = Policy(precision="bf16")
    assert optimizer_state(LLAMA, policy=policy).total == 12 * trained
    assert optimizer_flops(LLAMA).total == 14 * trained
    step = training_memory(LLAMA, 1, 128, policy=policy).phases[-1]
    assert step["gradients"] == 2 * trained
    assert step["parameters"] == 2 * int(parameters(LLAMA).total)


def test_flops_by_hand() -> None:
    base = SHAPES["llama-3-8b"]
    adapters = 2 * 1024 * trained_parameters(LLAMA)
    assert forward_flops(LLAMA, 1024).total == int(forward_flops(base, 1024).total) + adapters
    assert matmul_flops(LLAMA, 1024).total == forward_flops(LLAMA, 1024).total
    forward = forward_flops(base, 1024)
    frozen = int(forward.total) - int(forward["scores"])
    assert training_flops(LLAMA, 1024).total == 2 * frozen + 3 * int(forward["scores"]) + 3 * adapters


def test_tensor_parallel_shares_of_adapters() -> None:
    """A of what reads, and B of what is summed, are on every device; the other halves add up to the whole."""
    layout = Layout(tensor=4)
    held = [sum(one.trained for one in replicated(LLAMA, layout, place)) for place in places(layout)]
    shared = replicated_parameters(LLAMA, layout, Place())
    # per layer: A of query, key, value, gate and up of 4,096, and B of output and down of 4,096
    assert shared == 32 * 16 * 7 * 4096
    assert sum(held) - 3 * shared == trained_parameters(LLAMA)
    assert sum(int(device_parameters(LLAMA, layout, place)["adapters"]) for place in places(layout)) == sum(held)
    sent = device_traffic(LLAMA, layout, Place(), 1, 128)
    assert sent["gradients of what is shared"] == 2 * 3 * (shared // 4) * 4


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_zero_shards_and_sends_adapters(zero: int) -> None:
    layout = Layout(data=8, zero=zero, micro_batches=2)
    policy = Policy(precision="bf16")
    total, trained = int(parameters(LLAMA).total), trained_parameters(LLAMA)
    state = device_state(LLAMA, layout, policy=policy)
    assert state["optimizer state"] == 12 * (trained // 8 if zero else trained)
    assert state["gradients"] == 2 * (trained // 8 if zero >= 2 else trained)
    assert state["parameters"] == 2 * (total // 8 if zero == 3 else total)
    sent = device_traffic(LLAMA, layout, Place(), 1, 128, policy=policy)
    reduced = 2 * 7 * (trained // 8)
    if zero == 3:
        gathered = 2 * 7 * (total // 8)
        assert sent.total == 2 * reduced + 2 * 2 * gathered
    else:
        assert sent.total == (3 if zero == 2 else 2) * reduced


def test_stages_hold_every_adapter_once() -> None:
    layout = Layout(pipeline=4, micro_batches=4)
    held = [sum(one.trained for one in replicated(LLAMA, layout, place)) for place in places(layout)]
    assert sum(held) == trained_parameters(LLAMA)
    for place in places(layout):
        memory = device_memory(LLAMA, layout, place, 1, 128, policy=Policy(precision="bf16"))
        assert memory["gradients"] == 2 * held[place.stage]


def test_adapters_fit_where_the_whole_does_not() -> None:
    whole, adapters = SHAPES["llama-3-70b"], replace(SHAPES["llama-3-70b"], lora_rank=16)
    asked = {"seq_len": 4096, "batch_tokens": 1 << 18}
    assert not plan(whole, DEVICES["h100"], 8, 10**9, **asked)
    found = plan(adapters, DEVICES["h100"], 8, 10**9, **asked)
    assert found
    assert all(int(one.memory) <= int(DEVICES["h100"].memory) for one in found)
    wide = Policy(precision="bf16", gradient_dtype="fp32", overhead_bytes=4 * 10**9)
    for one in plan(adapters, DEVICES["h100"], 8, 10**9, policy=wide, **asked):
        assert int(one.memory) <= 80 * 10**9


def test_generation_reads_adapters() -> None:
    base, h100 = SHAPES["llama-3-8b"], DEVICES["h100"]
    more = 2 * trained_parameters(LLAMA)
    assert int(inference_memory(LLAMA).total) - int(inference_memory(base, 1).total) == more
    assert int(decode_time(LLAMA, h100, 1024).moved) - int(decode_time(base, h100, 1024).moved) == more


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"lora_rank": 0}, "lora_rank must be a whole number of at least 1"),
        ({"lora_targets": ()}, "at least one matrix"),
        ({"lora_targets": ("query", "query")}, "each once"),
        ({"lora_targets": ("embedding",)}, "'embedding' is not known"),
        ({"lora_targets": ("qkv", "key")}, "qkv and a part of it"),
        ({"lora_targets": ("gate_up", "up")}, "gate_up and a part of it"),
        ({"lora_targets": ("gate",), "ffn": "gelu"}, "name a gate"),
        ({"lora_rank": None, "lora_targets": ("query",)}, "without a lora_rank"),
    ],
)
def test_refusals(changed: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(LLAMA, **changed)  # type: ignore[arg-type]


def test_shared_experts_are_refused() -> None:
    mixture = replace(SHAPES["mixtral-8x7b"], lora_rank=4)
    with pytest.raises(ValueError, match="adapters of experts that several devices share"):
        replicated(mixture, Layout(data=2, expert=2), Place())
