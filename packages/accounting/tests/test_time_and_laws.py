"""Time, money, rooflines and scaling laws."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accounting
from accounting import (
    DEVICES,
    LAWS,
    SHAPES,
    Storage,
    compute_optimal,
    kv_cache,
    measured_device,
    requests_at_once,
    training_time,
    weight_bytes,
    weights_read,
)
from accounting.commands.parser import main
from accounting.planning.inference import REACHED, Engine, device_inference_memory, engine_for, free_cache, reached
from accounting.planning.scaling import loss


def test_time_is_flops_over_rate() -> None:
    shape = SHAPES["gpt2-xl-swiglu"]
    run = training_time(shape, 1024 * 1000, DEVICES["h100"], 0.4, devices=8, price=2.0)
    assert float(run.seconds) == 3 * 4_352_432_537_600 * 1000 / (0.4 * 989e12 * 8)
    every = training_time(shape, 1024 * 1000, DEVICES["h100"], 0.4, devices=8, pairs="full")
    assert float(every.seconds) == 3 * 4_513_336_524_800 * 1000 / (0.4 * 989e12 * 8)
    assert run.device_hours == 8 * run.hours
    assert run.cost == pytest.approx(2.0 * run.device_hours)
    assert accounting.mfu(shape, run.tokens_per_second, DEVICES["h100"], devices=8) == pytest.approx(0.4)


def test_tokens_are_whole_sequences() -> None:
    assert training_time(SHAPES["gpt2"], 1025, DEVICES["h100"], 0.4).tokens == 2048


@pytest.mark.parametrize("law", LAWS)
@given(exponent=st.floats(17, 26))
def test_laws_spend_the_compute_and_invert(law: str, exponent: float) -> None:
    answer = compute_optimal(10**exponent, law=law)
    spent = 6 * int(answer.parameters) * int(answer.tokens)
    assert spent == pytest.approx(10**exponent, rel=1e-3)
    back = compute_optimal(parameters=int(answer.parameters), law=law)
    assert float(back.compute) == pytest.approx(10**exponent, rel=1e-3)
    low, high = LAWS[law].range
    fewest, most = LAWS[law].tokens
    inside = low <= int(answer.parameters) <= high and fewest <= int(answer.tokens) <= most
    assert bool(answer.warning) == (not inside)


@pytest.mark.parametrize("law", ["hoffmann-3", "besiroglu"])
def test_fitted_surface_is_at_its_minimum(law: str) -> None:
    surface = LAWS[law].surface
    assert surface is not None
    answer = compute_optimal(1e21, law=law)
    n = float(answer.parameters)
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert answer.loss is not None
        assert loss(surface, n * factor, 1e21 / (6 * n * factor)) > answer.loss


def test_decoding_alone_is_bound_by_bandwidth_and_prefill_by_arithmetic() -> None:
    shape, device = SHAPES["llama-3-8b"], DEVICES["h100"]
    step = accounting.decode_time(shape, device, 1024)
    assert step.bound == "bandwidth"
    # of the embedding one row, which is as long as the head's
    assert step.moved == 2 * (8_030_261_248 - 128256 * 4096 + 4096) + 1024 * 2 * 32 * 8 * 128 * 2
    assert accounting.prefill_time(shape, device, 8192).bound == "arithmetic"
    quarter = accounting.decode_time(shape, device, 1024, storage=Storage("int4"))
    assert quarter.seconds < step.seconds


def test_the_head_is_counted_once_a_generated_token() -> None:
    """Of a prompt only the last position goes through the head, and a tied embedding is the head that is read."""
    for name, share in (("llama-3.2-1b", 0.21), ("gemma-3-1b", 0.30), ("llama-3-8b", 0.07)):
        shape = SHAPES[name]
        every = accounting.forward_flops(shape, 512, pairs="causal")
        last = accounting.prefill_flops(shape, 512)
        assert last["head"] == 2 * shape.d_model * shape.vocab_rows == int(every["head"]) // 512
        assert 1 - int(last) / int(every) == pytest.approx(share, abs=0.01)
        assert accounting.prefill_time(shape, DEVICES["h100"], 512).flops == last.total
    tied, untied = SHAPES["gpt2"], replace(SHAPES["gpt2"], tied_embeddings=False)
    assert accounting.weights_read(tied, 1).total == 2 * (124_439_808 - 1023 * 768)  # one row of the learned positions
    assert accounting.weights_read(untied, 1).total == 2 * (124_439_808 - 1023 * 768 + 768)
    assert accounting.weights_read(untied, 10**9).total == accounting.weight_bytes(untied).total
    assert accounting.weight_bytes(untied).convention == "bf16 throughout"


def test_generation_is_the_sum_of_its_steps() -> None:
    device = DEVICES["h100"]
    for name, batch, prompt, output in (
        ("llama-3-8b", 1, 100, 50),
        ("gemma-3-1b", 3, 490, 60),
        ("llama-3.2-1b", 300, 5, 40),
    ):
        shape = SHAPES[name]
        found = accounting.generation_time(shape, device, prompt, output, batch)
        steps = [float(accounting.decode_time(shape, device, prompt + at, batch).seconds) for at in range(1, output)]
        assert float(found.decode_seconds) == pytest.approx(sum(steps), rel=1e-12)
        assert found.prefill == accounting.prefill_time(shape, device, prompt, batch)
        assert found.tokens_per_second == pytest.approx(batch * (output - 1) / sum(steps))
        money = found.cost_per_million_output_tokens(0.5)
        assert money == pytest.approx(0.5 * sum(steps) / 3600 / (batch * output) * 1e6)
    with pytest.raises(ValueError, match="output must be at least 2"):
        accounting.generation_time(SHAPES["gpt2"], device, 10, 1)
    with pytest.raises(ValueError, match="price"):
        found.cost_per_million_prompt_tokens(-1.0)


@given(st.sampled_from(["llama-3-8b", "gemma-3-1b", "gpt2", "mixtral-8x7b"]), st.sampled_from([1, 2, 4]))
def test_most_sequences_fit_and_one_more_does_not(name: str, devices: int) -> None:
    shape, device, storage = SHAPES[name], DEVICES["rtx-3090"], Storage("bf16", "bf16", devices)
    most = accounting.max_sequences(shape, device, 1000, storage=storage)
    longest = accounting.longest_generation(shape, device, 2, storage=storage)

    def needs(batch: int, context: int) -> int:
        return int(device_inference_memory(shape, batch, context, storage=storage))

    assert most == 0 or needs(most, 1000) <= 24 * 10**9
    assert needs(most + 1, 1000) > 24 * 10**9
    assert longest == 0 or needs(2, longest) <= 24 * 10**9
    assert (shape.position == "learned" and longest == 1024) or needs(2, longest + 1) > 24 * 10**9


def test_devices_share_the_work_of_a_step() -> None:
    shape, device = SHAPES["llama-3-70b"], DEVICES["h100"]
    alone, eight = (accounting.decode_time(shape, device, 4096, 4, storage=Storage(devices=n)) for n in (1, 8))
    assert int(eight.flops) * 8 == int(alone.flops)
    assert alone.sent == 0
    # two sums of 4 × 8,192 numbers a layer and that of the embeddings, each in a ring of 8
    assert eight.sent == 161 * 2 * 7 * (4 * 8192 // 8) * 2


def test_few_tokens_read_few_experts() -> None:
    shape, device = SHAPES["mixtral-8x7b"], DEVICES["h200"]
    alone, crowd = (accounting.decode_time(shape, device, 1, batch) for batch in (1, 64))
    assert int(alone.moved) < 2 * 13e9
    assert int(crowd.moved) > 2 * 46e9


def test_mxfp4_is_the_checkpoint_of_gpt_oss() -> None:
    """Model card of gpt-oss, table 1: 12.8 and 60.8 GiB; by hand, matrices of experts at 4.25 bits, all else bf16."""
    for name, layers, experts, gib in (("gpt-oss-20b", 24, 32, 12.8), ("gpt-oss-120b", 36, 128, 60.8)):
        quantised = layers * experts * (5760 + 2880) * 2880
        attention = 2880 * 64 * (2 * 64 + 2 * 8) + (64 + 2 * 8) * 64 + 2880 + 64  # 64 sinks
        rest = layers * (attention + (2880 + 1) * experts + experts * (5760 + 2880) + 2 * 2880)
        rest += 2880 + 2 * 201088 * 2880
        stored = weight_bytes(SHAPES[name], weights="mxfp4")
        assert stored["scales"] == quantised // 32
        assert stored.total == quantised * 17 // 32 + 2 * rest
        assert round(int(stored.total) / 2**30, 1) == gib
    read, plain = (weights_read(SHAPES["gpt-oss-20b"], 1, weights=weights) for weights in ("mxfp4", "bf16"))
    active = 24 * 4 * (5760 + 2880) * 2880  # four experts of 32 in each layer
    assert int(plain.total) - int(read.total) == 2 * active - active * 17 // 32
    with pytest.raises(ValueError, match="mxfp4"):
        weight_bytes(SHAPES["llama-3-8b"], weights="mxfp4")


def test_pages_of_the_cache() -> None:
    """gpt-oss-20b, 32 sequences of 8,192 positions: 12 GiB where an engine allocates every layer alike."""
    shape, each = SHAPES["gpt-oss-20b"], 2 * 8 * 64 * 2  # bytes of a position in one layer
    assert kv_cache(shape, 32, 8192, page=16).total == 12 * 2**30
    assert kv_cache(shape, 32, 8192).total == 32 * 12 * (8192 + 128) * each
    assert kv_cache(shape, 1, 1000, page=16).total == 24 * 1008 * each
    assert kv_cache(SHAPES["deepseek-v3"], 1, 1000, page=64).total == 61 * 1024 * 576 * 2
    # a window of 128 that begins within a page of 16 touches nine of them
    assert kv_cache(shape, 32, 8192, page=16, hybrid=True).total == 32 * 12 * (8192 + 9 * 16) * each
    with pytest.raises(ValueError, match="hybrid needs pages"):
        kv_cache(shape, 1, 10, hybrid=True)
    plain, paged = (device_inference_memory(shape, 4, 1000, storage=Storage(page=page)) for page in (0, 16))
    assert int(paged) - int(plain) == 4 * (24 * 1008 - 12 * (1000 + 128)) * each


def test_requests_at_once_meet_every_limit() -> None:
    shape, device, storage = SHAPES["llama-3-8b"], DEVICES["h100"], Storage("fp8")
    for limits in ({}, {"first_token": 0.5}, {"each_token": 0.02}, {"first_token": 2.0, "each_token": 0.02}):
        most = requests_at_once(shape, device, 2000, 200, storage=storage, **limits)
        meets = []
        for batch in (most, most + 1):
            memory = device_inference_memory(shape, batch, 2200, storage=storage)
            run = accounting.generation_time(shape, device, 2000, 200, batch, storage=storage)
            first, each = limits.get("first_token", 1e9), limits.get("each_token", 1e9)
            fast = float(run.prefill.seconds) <= first and float(run.last_step.seconds) <= each
            meets.append(fast and int(memory) <= int(device.memory))
        assert meets == [True, False]
    assert requests_at_once(shape, device, 2000, 200, first_token=1e-6) == 0
    with pytest.raises(ValueError, match="each_token"):
        requests_at_once(shape, device, 10, 10, each_token=0.0)


def test_measured_device() -> None:
    machine = measured_device("my desk", 1e11)
    assert machine.peak("fp32") == 1e11
    assert machine.source == "measured"
    with pytest.raises(ValueError, match="no known bandwidth"):
        accounting.decode_time(SHAPES["gpt2"], machine)


def test_refusals() -> None:
    shape, device = SHAPES["gpt2"], DEVICES["h100"]
    for part in (0, 1.5, -1, float("nan"), True):
        with pytest.raises(ValueError, match="mfu"):
            training_time(shape, 1, device, part)
    with pytest.raises(ValueError, match="rtx-2080-ti has no published bf16 peak, use one of fp16, fp32"):
        training_time(shape, 1, DEVICES["rtx-2080-ti"], 0.4)
    with pytest.raises(ValueError, match="m1 has no published fp16 peak, use one of fp32"):
        training_time(shape, 1, DEVICES["m1"], 0.4, dtype="fp16")
    with pytest.raises(ValueError, match="price"):
        training_time(shape, 1, device, 0.4, price=-1.0)
    with pytest.raises(ValueError, match="law 'mine' is not known"):
        compute_optimal(1e20, law="mine")
    with pytest.raises(ValueError, match="flops_per_second"):
        measured_device("broken", float("nan"))


def test_value_embeddings_are_read_by_their_rows() -> None:
    shape = replace(SHAPES["llama-3-8b"], value_embeddings=4)
    step = accounting.decode_time(shape, DEVICES["h100"], 100, 3)
    plain = accounting.decode_time(SHAPES["llama-3-8b"], DEVICES["h100"], 100, 3)
    assert int(step.moved) - int(plain.moved) == 2 * 4 * 8 * (3 * 128 + 4096)
    assert int(step.flops) - int(plain.flops) == 2 * 3 * 4 * 8 * 4096
    with pytest.raises(ValueError, match="is not counted of shapes with value embeddings"):
        accounting.decode_time(shape, DEVICES["h100"], 100, 3, storage=Storage(devices=2))


def test_an_engine_leaves_as_much_for_the_cache_as_its_logs_say(generation: Any) -> None:
    for name, predicted, logged in generation.logs():
        assert predicted == pytest.approx(logged, rel=0.1), name


def test_bounds_are_never_beaten_and_their_reached_parts_are_those_of_the_table(generation: Any) -> None:
    assert all(0 < part <= 1 for _, _, part in generation.parts())
    assert generation.reached() == REACHED
    assert reached(2, 1) == REACHED["batched"]


def test_an_engine_decides_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    shape, device = SHAPES["llama-3-8b"], DEVICES["h100"]
    free = free_cache(shape, device, engine_for(device))
    most = accounting.max_sequences(shape, device, 8000, engine=engine_for(device))
    assert int(kv_cache(shape, most, 8000).total) <= free < int(kv_cache(shape, most + 1, 8000).total)
    assert most < accounting.max_sequences(shape, device, 8000)
    longest = accounting.longest_generation(shape, device, 4, engine=engine_for(device))
    assert int(kv_cache(shape, 4, longest).total) <= free < int(kv_cache(shape, 4, longest + 1).total)
    assert accounting.max_sequences(shape, device, 1, engine=engine_for(device)) == 1024
    assert free_cache(shape, device, Engine(utilization=0.5)) < 0.6 * free
    assert free_cache(shape, device, Engine(sequences=64)) > free
    assert requests_at_once(shape, device, 7000, 1000, engine=engine_for(device)) == most
    base = ["infer", "llama-3-8b", "--device", "h100", "--json"]
    assert main(base) == 0
    by_vllm = json.loads(capsys.readouterr().out)
    assert main([*base, "--engine", "none"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert by_vllm[1]["free for the cache"] == free
    assert alone[1]["most sequences"] > by_vllm[1]["most sequences"]
    assert main([*base, "--engine", "none", "--chunk", "9"]) == 2
    assert main([*base, "--utilization", "1.5"]) == 2
    assert main([*base, "--overhead", "10"]) == 0
    less = json.loads(capsys.readouterr().out)
    assert free - less[1]["free for the cache"] == 10 * 10**9 - 140_000_000
