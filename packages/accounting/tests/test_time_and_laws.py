"""Time, money, rooflines and scaling laws."""

import importlib.util
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accounting
from accounting import DEVICES, LAWS, SHAPES, affordable_tokens, compute_optimal, measured_device, training_time
from accounting.hardware.measuring import this_machine
from accounting.planning.scaling import loss


def test_time_is_flops_over_rate() -> None:
    shape = SHAPES["gpt2-xl-swiglu"]
    run = training_time(shape, 1024 * 1000, DEVICES["h100"], 0.4, devices=8, price=2.0)
    assert float(run.seconds) == 3 * 4_513_336_524_800 * 1000 / (0.4 * 989e12 * 8)
    assert run.device_hours == 8 * run.hours
    assert run.cost == pytest.approx(2.0 * run.device_hours)
    assert accounting.mfu(shape, run.tokens_per_second, DEVICES["h100"], devices=8) == pytest.approx(0.4)


def test_tokens_are_whole_sequences() -> None:
    assert training_time(SHAPES["gpt2"], 1025, DEVICES["h100"], 0.4).tokens == 2048


@given(
    st.floats(1e-3, 500),  # with more, a thousand of the fastest reach more sequences of one token than can be counted
    st.floats(0.01, 1.0),
    st.sampled_from(["h100", "rtx-4090", "b200"]),
    st.integers(1, 1000),
    st.integers(1, 1024),
    st.sampled_from(["full", "half", "causal"]),
)
def test_affordable_tokens_fit_and_one_sequence_more_does_not(
    hours: float, part: float, name: str, devices: int, length: int, pairs: str
) -> None:
    shape, device = SHAPES["gpt2"], DEVICES[name]
    common: dict[str, Any] = {"devices": devices, "seq_len": length, "pairs": pairs}
    tokens = int(affordable_tokens(shape, hours, device, part, **common))
    if tokens:
        assert float(training_time(shape, tokens, device, part, **common).seconds) <= hours * 3600
    assert float(training_time(shape, tokens + 1, device, part, **common).seconds) > hours * 3600


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
    assert step.moved == 2 * 8_030_261_248 + 1024 * 2 * 32 * 8 * 128 * 2
    assert accounting.prefill_time(shape, device, 8192).bound == "arithmetic"
    quarter = accounting.decode_time(shape, device, 1024, weights="int4")
    assert quarter.seconds < step.seconds


def test_few_tokens_read_few_experts() -> None:
    shape, device = SHAPES["mixtral-8x7b"], DEVICES["h200"]
    alone, crowd = (accounting.decode_time(shape, device, 1, batch) for batch in (1, 64))
    assert int(alone.moved) < 2 * 13e9
    assert int(crowd.moved) > 2 * 46e9


def test_measured_device() -> None:
    machine = measured_device("my desk", 1e11)
    assert machine.peak("fp32") == 1e11
    assert machine.source == "measured"
    with pytest.raises(ValueError, match="no known bandwidth"):
        accounting.decode_time(SHAPES["gpt2"], machine)


def test_this_machine_by_a_measurement() -> None:
    if not any(importlib.util.find_spec(name) for name in ("torch", "numpy")):
        with pytest.raises(ValueError, match="measuring takes torch or numpy, and neither is installed"):
            this_machine()
        return
    machine = this_machine(0.0)
    assert machine.peak("fp32") > 1e8
    assert machine.bandwidth > 1e7
    assert training_time(SHAPES["gpt2"], 1, machine, 0.5, dtype="fp32").seconds > 0


def test_measuring_needs_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ValueError, match="neither is installed: install one, or give --measured a rate"):
        this_machine()


def test_devices_are_complete() -> None:
    for name, one in DEVICES.items():
        assert one.name == name
        assert one.source
        assert one.memory > 0
        assert one.bandwidth > 0
        # formats never get slower as they get narrower
        for wide, narrow in (("fp32", "tf32"), ("tf32", "bf16"), ("bf16", "fp8"), ("fp32", "fp16")):
            if wide in one.peaks and narrow in one.peaks:
                assert one.peaks[wide] <= one.peaks[narrow]


def test_refusals() -> None:
    shape, device = SHAPES["gpt2"], DEVICES["h100"]
    for part in (0, 1.5, -1, float("nan"), True):
        with pytest.raises(ValueError, match="mfu must be above 0 and at most 1"):
            training_time(shape, 1, device, part)
    with pytest.raises(ValueError, match="rtx-2060 has no published bf16 peak, use one of fp16, fp32"):
        training_time(shape, 1, DEVICES["rtx-2060"], 0.4)
    with pytest.raises(ValueError, match="m4-max has no published fp16 peak, nor any other: measure one"):
        training_time(shape, 1, DEVICES["m4-max"], 0.4, dtype="fp16")
    with pytest.raises(ValueError, match="price must be"):
        training_time(shape, 1, device, 0.4, price=-1.0)
    with pytest.raises(ValueError, match="hours must be above 0"):
        affordable_tokens(shape, 0, device, 0.4)
    with pytest.raises(ValueError, match="not both"):
        compute_optimal()
    with pytest.raises(ValueError, match="not both"):
        compute_optimal(1e20, parameters=1e9)
    with pytest.raises(ValueError, match="law 'mine' is not known"):
        compute_optimal(1e20, law="mine")
    with pytest.raises(ValueError, match="flops_per_second must be a number of at least 1"):
        measured_device("broken", float("nan"))
