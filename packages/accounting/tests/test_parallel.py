"""Data-parallel state and traffic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shape_strategies import shapes

from accounting import SHAPES, TransformerShape, parameters, sharded_state, step_traffic


def test_zero_paper_table() -> None:
    """16 bytes a parameter on one device; on 64, ZeRO-1 leaves 8 + 8/64 in fp32, ZeRO-3 16/64 and what is gathered."""
    shape = SHAPES["gpt2-xl-swiglu"]
    count = 2_127_057_600
    assert sharded_state(shape, 1).total == 16 * count
    assert sharded_state(shape, 64, zero=0).total == 16 * count
    assert sharded_state(shape, 64, zero=1).total == 8 * count + 8 * count // 64
    third = sharded_state(shape, 64, zero=3)
    assert third["parameters"] == third["gradients"] == 4 * -(-count // 64)
    block = (491_520_000 + 1_474_560_000) // 48
    assert third["gathered parameters"] == 2 * 4 * block


@given(shapes(), st.integers(1, 9), st.sampled_from(["fp32", "bf16"]))
def test_shards_cover_and_shrink(shape: TransformerShape, world: int, precision: str) -> None:
    count = int(parameters(shape).total)
    size = 4 if precision == "fp32" else 2
    sheets = [sharded_state(shape, world, zero=stage, precision=precision) for stage in range(4)]
    for name, since in (("optimizer state", 1), ("gradients", 2), ("parameters", 3)):
        whole = int(sheets[0][name])
        for stage, sheet in enumerate(sheets):
            if stage < since:
                assert sheet[name] == whole
            else:
                assert whole <= int(sheet[name]) * world < whole + world * size
    moved = [int(step_traffic(shape, world, zero=stage, precision=precision)) for stage in range(4)]
    assert moved[0] == moved[1] == moved[2]
    assert 2 * moved[3] == 3 * moved[0]
    assert (moved[0] == 0) == (world == 1)
    assert moved[0] >= 2 * count * size * (world - 1) // world


def test_refusals() -> None:
    with pytest.raises(ValueError, match="zero '4' is not known: use one of 0, 1, 2, 3"):
        sharded_state(SHAPES["gpt2"], 8, zero=4)
    with pytest.raises(ValueError, match="world must be at least 1, and 0 is not"):
        step_traffic(SHAPES["gpt2"], 0)


@given(shapes(), st.integers(1, 9))
def test_shards_add_up_to_the_whole(shape: TransformerShape, world: int) -> None:
    whole = sharded_state(shape, world)
    shards = [sharded_state(shape, world, zero=3, rank=rank) for rank in range(world)]
    for name in ("parameters", "gradients", "optimizer state"):
        held = [int(one[name]) for one in shards]
        assert sum(held) == whole[name]
        assert held == sorted(held, reverse=True)


def test_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="rank must be a whole number below world 4 and at least 0, and 4 is not"):
        sharded_state(SHAPES["gpt2"], 4, rank=4)
