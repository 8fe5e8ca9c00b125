"""ZeRO: what data-parallel replicas hold and send."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shape_strategies import shapes

from accounting import SHAPES, Layout, Place, Policy, TransformerShape, device_state, device_traffic, parameters
from accounting.cluster.zero import shard_of
from accounting.formula import Symbol


def test_zero_paper_table() -> None:
    """16 bytes a parameter on one device; on 64, ZeRO-1 leaves 8 + 8/64 in fp32, ZeRO-3 16/64 and what is gathered."""
    shape = SHAPES["gpt2-xl-swiglu"]
    count = 2_127_057_600
    assert device_state(shape, Layout()).total == 16 * count
    assert device_state(shape, Layout(64)).total == 16 * count
    assert device_state(shape, Layout(64, zero=1)).total == 8 * count + 8 * count // 64
    third = device_state(shape, Layout(64, zero=3))
    assert third["parameters"] == third["gradients"] == 4 * -(-count // 64)
    block = (491_520_000 + 1_474_560_000) // 48
    assert third["gathered parameters"] == 2 * 4 * block


@given(shapes(), st.integers(1, 9), st.sampled_from(["fp32", "bf16"]))
def test_shards_cover_and_shrink(shape: TransformerShape, devices: int, precision: str) -> None:
    shape = replace(shape, vocab_multiple=1)
    policy = Policy(precision=precision)
    count, size = int(parameters(shape).total), policy.bytes.weights
    sheets = [device_state(shape, Layout(devices, zero=stage), policy=policy) for stage in range(4)]
    for name, since, each in (
        ("optimizer state", 1, 8 + 4 * (size == 2)),
        ("gradients", 2, size),
        ("parameters", 3, size),
    ):
        whole = int(sheets[0][name])
        assert whole == each * count
        for stage, sheet in enumerate(sheets):
            if stage < since:
                assert sheet[name] == whole
            else:
                assert whole <= int(sheet[name]) * devices < whole + devices * each
    moved = [int(device_traffic(shape, Layout(devices, zero=stage), policy=policy)) for stage in range(4)]
    assert moved[0] == moved[1] == moved[2]
    assert 2 * moved[3] == 3 * moved[0]
    assert (moved[0] == 0) == (devices == 1)
    assert moved[0] >= 2 * count * size * (devices - 1) // devices


def test_refusals() -> None:
    with pytest.raises(ValueError, match="zero '4' is not known: use one of 0, 1, 2, 3"):
        Layout(8, zero=4)
    with pytest.raises(ValueError, match="data must be a whole number of at least 1, and 0 is not"):
        Layout(0)
    with pytest.raises(ValueError, match="data_rank must be a whole number of at least 0 and below 4, and 4 is not"):
        device_state(SHAPES["gpt2"], Layout(4, zero=3), Place(data_rank=4))
    with pytest.raises(ValueError, match="allocator 'cuda' is counted of one device alone"):
        device_state(SHAPES["gpt2"], Layout(4), policy=Policy(allocator="cuda"))


@given(shapes(), st.integers(2, 9), st.integers(1, 8), st.integers(0, 3))
def test_traffic_follows_micro_batches(shape: TransformerShape, devices: int, passes: int, zero: int) -> None:
    """Stages 2 and 3 hold no whole gradient to add micro-batches to: each reduces, and stage 3 gathers for each
    pass."""
    shape = replace(shape, vocab_multiple=1)
    one, several = (device_traffic(shape, Layout(devices, zero=zero, micro_batches=count)) for count in (1, passes))
    for name, value in several.items():
        each = zero == 3 or (zero == 2 and name == "reduce-scatter of gradients")
        assert int(value) == int(one[name]) * (passes if each else 1), name


def test_traffic_of_eight_micro_batches() -> None:
    """gpt2-xl-swiglu over 8 devices: 7/8 of 8.5 GB a collective, and what it comes to with 8 micro-batches."""
    once = 2_127_057_600 // 8 * 7 * 4
    sent = [
        int(device_traffic(SHAPES["gpt2-xl-swiglu"], Layout(8, zero=zero, micro_batches=8))) // once
        for zero in range(4)
    ]
    assert sent == [2, 2, 9, 24]


def test_last_shards_hold_what_is_left() -> None:
    shards = [int(shard_of(Symbol("whole", 5), Symbol("dp", 4), rank)) for rank in range(4)]
    assert shards == [2, 2, 1, 0]


@given(shapes(), st.integers(1, 9), st.integers(1, 3), st.integers(0, 3))
def test_shared_experts_add_up(shape: TransformerShape, groups: int, expert: int, zero: int) -> None:
    shape = replace(shape, vocab_multiple=1)
    if expert > 1:
        shape = replace(shape, experts=(shape.experts or 1) * expert, experts_per_token=1)
    layout = Layout(groups * expert, expert=expert, zero=zero)
    held = [device_state(shape, layout, Place(data_rank=rank)) for rank in range(layout.data)]
    whole = int(parameters(shape).total)
    inside = int(parameters(shape)["ffn"]) if shape.experts else 0
    for name, since, each in (("parameters", 3, 4), ("gradients", 2, 4), ("optimizer state", 1, 8)):
        shards = [int(one[name]) for one in held]
        assert expert > 1 or shards == sorted(shards, reverse=True)
        copies = each * (whole - inside) * layout.data + each * inside * groups
        if zero < since:
            assert sum(shards) == copies
        else:  # each expert has as many shards as groups, and every group of experts has them
            assert sum(shards) == each * whole
