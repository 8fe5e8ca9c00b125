"""Figures that are known from elsewhere, to the last digit."""

import pytest

import accounting
from accounting import (
    SHAPES,
    Bytes,
    forward_flops,
    human,
    kv_cache,
    matmul_flops,
    optimizer_flops,
    parameters,
    training_memory,
)

MODERN = {
    "gpt2-swiglu": (190_460_160, 349_630_365_696, 14_871_215_210_496),
    "gpt2-medium-swiglu": (505_629_696, 1_033_109_504_000, 41_268_763_688_960),
    "gpt2-large-swiglu": (1_072_469_760, 2_257_754_521_600, 82_509_719_142_400),
    "gpt2-xl-swiglu": (2_127_057_600, 4_513_336_524_800, 149_522_795_724_800),
}
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3-175b": 174_604_259_328,  # 96·(12·d² + 13·d) + (50,257 + 2,048 + 2)·d, with d 12,288
    "tinyllama-1.1b": 1_100_048_384,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-2b": 2_506_172_416,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b": 999_885_952,
    "deepseek-v3": 671_026_404_352,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "llama-4-scout": 107_769_861_120,
}


@pytest.mark.parametrize("name", MODERN)
def test_modern_family(name: str) -> None:
    shape = SHAPES[name]
    assert (parameters(shape).total, forward_flops(shape).total, forward_flops(shape, 16384).total) == MODERN[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameters(name: str) -> None:
    assert parameters(SHAPES[name]).total == PUBLISHED[name]


def test_every_named_shape_has_a_reference() -> None:
    assert set(SHAPES) == {*MODERN, *PUBLISHED}


def test_xl_by_part() -> None:
    shape = SHAPES["gpt2-xl-swiglu"]
    assert dict(parameters(shape)) == {
        "embedding": 80_411_200,
        "positions": 0,
        "attention": 491_520_000,
        "ffn": 1_474_560_000,
        "router": 0,
        "norms": 155_200,
        "head": 80_411_200,
    }
    assert dict(forward_flops(shape)) == {
        "projections": 1_006_632_960_000,
        "scores": 322_122_547_200,
        "ffn": 3_019_898_880_000,
        "head": 164_682_137_600,
    }


def test_xl_by_matrix_multiplication() -> None:
    """CS336's table: the four projections are alike, the two of the scores, and the three of SwiGLU."""
    for length in (1024, 16384):
        found, whole = matmul_flops(SHAPES["gpt2-xl-swiglu"], length), forward_flops(SHAPES["gpt2-xl-swiglu"], length)
        assert found.total == whole.total
        assert {int(found[name]) for name in ("query", "key", "value", "output")} == {int(whole["projections"]) // 4}
        assert found["scores: query·keyᵀ"] == found["scores: weights·value"] == whole["scores"] // 2
        assert {int(found[f"ffn {name}"]) for name in ("gate", "up", "down")} == {int(whole["ffn"]) // 3}
        assert found["head"] == whole["head"]


def test_causal_is_exact() -> None:
    shape = SHAPES["gpt2-xl-swiglu"]
    assert forward_flops(shape, pairs="causal").total == 4_352_432_537_600
    assert forward_flops(shape, 16384, pairs="causal").total == 108_293_626_265_600
    full, half = forward_flops(shape)["scores"], forward_flops(shape, pairs="half")["scores"]
    assert 2 * half == full


def test_adamw() -> None:
    shape = SHAPES["gpt2-xl-swiglu"]
    assert optimizer_flops(shape).total == 14 * 2_127_057_600
    step = next(phase for phase in training_memory(shape, 1).phases if phase.title == "optimizer step")
    assert step.total == 16 * 2_127_057_600 == 34_032_921_600
    assert human(Bytes(34_032_921_600)) == "34.03 GB"
    assert human(Bytes(34_032_921_600), binary=True) == "31.70 GiB"


def test_cache_of_a_token() -> None:
    assert kv_cache(SHAPES["gpt2-xl-swiglu"], 1, 1).total == 307_200


def test_mixtral_passes_13_billion_a_token() -> None:
    assert parameters(SHAPES["mixtral-8x7b"], active=True).total == 12_879_925_248


def test_laws() -> None:
    published = accounting.compute_optimal(5.76e23, law="hoffmann-3")
    refit = accounting.compute_optimal(5.76e23, law="besiroglu")
    assert round(published.tokens_per_parameter, 1) == 92.6
    assert round(refit.tokens_per_parameter) == 18


def test_estimates_stand_beside_the_exact_count() -> None:
    shape = SHAPES["gpt2-xl-swiglu"]
    found = accounting.training_estimates(shape)
    assert found["exact"] == 3 * 4_513_336_524_800
    assert found["6N, all parameters"] == 6 * 2_127_057_600 * 1024
    assert found["PaLM 6N + 12LHQT"] == (6 * 2_127_057_600 + 12 * 48 * 1600 * 1024) * 1024
    assert found["6N, no embeddings"] == 6 * (2_127_057_600 - 2 * 80_411_200) * 1024
