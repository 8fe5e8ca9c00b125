"""The devices' peaks against what they are made of: a second way to each figure, which a wrong digit does not
survive."""

import pytest

import accounting
from accounting import DEVICES, INTERCONNECTS, SHAPES, ByteRate, Interconnect, Layout, Policy, decode_time, step_time
from accounting.hardware.devices import device
from accounting.hardware.interconnect import interconnect

# (multiprocessors or compute units, boost clock in MHz, FLOPs a clock of one in fp16 with fp32 sums, and in fp32)
MADE_OF = {
    "v100-16gb": (80, 1530, 1024, 128),
    "v100-32gb": (80, 1530, 1024, 128),
    "a40": (84, 1740, 1024, 256),
    "a30": (56, 1440, 2048, None),
    "l40": (142, 2490, 512, None),
    "l4": (58, 2040, 1024, 256),
    "mi250x": (110, 1700, 1024, 256),
    "mi325x": (304, 2100, 2048, 256),
    "mi350x": (256, 2200, 4096, 256),
    "mi355x": (256, 2400, 4096, 256),
    "a100-40gb": (108, 1410, 2048, 128),
    "a100-80gb": (108, 1410, 2048, 128),
    "a100-80gb-pcie": (108, 1410, 2048, 128),
    "h100": (132, 1830, 4096, None),  # products of fp32 run at another clock than those of 16 bits
    "h200": (132, 1830, 4096, None),
    "h100-pcie": (114, 1620, 4096, None),
    "mi300x": (304, 2100, 2048, 256),
    "rtx-2080-ti": (68, 1545, 512, 128),
    "rtx-3090": (82, 1695, 512, 256),
    "rtx-4090": (128, 2520, 512, 256),
    "rtx-5070": (48, 2512, 512, 256),
    "rtx-5090": (170, 2407, 512, 256),
    "rtx-pro-6000": (188, 2600, 1024, 256),
}
# (bits of the memory's bus, Gbit/s of one of its wires)
WIRES = {
    "a10": (384, 12.5),
    "a40": (384, 14.5),
    "l40": (384, 18),
    "l4": (192, 12.5),
    "l40s": (384, 18),
    "rtx-2080-ti": (352, 14),
    "rtx-3090": (384, 19.5),
    "rtx-4090": (384, 21),
    "rtx-5070": (192, 28),
    "rtx-5090": (512, 28),
    "rtx-pro-6000": (512, 28),
    "m1": (128, 4.266),
}
# (matrix units of a TPU chip: MXUs times their multiply-adds, clock in MHz): peak of bf16
TPU = {"tpu-v4": (8 * 128 * 128, 1050), "tpu-v5e": (4 * 128 * 128, 1500), "tpu-v5p": (8 * 128 * 128, 1750)}


@pytest.mark.parametrize("name", TPU)
def test_peaks_of_tpus_are_multiply_adds_times_clock(name: str) -> None:
    units, clock = TPU[name]
    assert float(DEVICES[name].peaks["bf16"]) == pytest.approx(2 * units * clock * 1e6, rel=0.006)


def test_every_row_has_a_makers_document_and_a_peak() -> None:
    makers = ("NVIDIA", "AMD", "Google", "Apple", "Amazon")
    for one in DEVICES.values():
        assert one.source.startswith(makers), one.name
        assert one.peaks, one.name
    for name, joined in INTERCONNECTS.items():
        assert joined.source.startswith(makers), name
        assert name in DEVICES


@pytest.mark.parametrize("name", MADE_OF)
def test_peaks_are_units_times_operations_times_clock(name: str) -> None:
    units, clock, narrow, wide = MADE_OF[name]
    peaks = DEVICES[name].peaks
    assert float(peaks["fp16"]) == pytest.approx(units * clock * 1e6 * narrow, rel=0.006)
    if wide is not None:
        assert float(peaks["fp32"]) == pytest.approx(units * clock * 1e6 * wide, rel=0.006)


@pytest.mark.parametrize("name", WIRES)
def test_bandwidth_is_wires_times_their_rate(name: str) -> None:
    bits, rate = WIRES[name]
    assert float(DEVICES[name].bandwidth) == pytest.approx(bits / 8 * rate * 1e9, rel=0.006)


@pytest.mark.parametrize("name", DEVICES)
def test_formats_keep_their_proportions(name: str) -> None:
    """bf16 runs as fp16; TF32 at half of that, or as fp32 on a GeForce; eight bits at twice that."""
    one = DEVICES[name]
    assert one.source
    assert int(one.memory) > 0
    assert (float(one.bandwidth) > 0) == (name != "tpu7x")  # whose bandwidth could not be compared with its document
    peaks = {key: float(value) for key, value in one.peaks.items()}
    if "bf16" in peaks and "fp16" in peaks:
        assert peaks["bf16"] == peaks["fp16"]
    half = peaks.get("bf16") or peaks.get("fp16") or 0.0
    assert one.name == name
    assert peaks.get("fp32", 0.0) <= min((peaks[each] for each in ("tf32", "fp16") if each in peaks), default=1e30)
    if "tf32" in peaks:
        assert peaks["tf32"] == pytest.approx(half if name == "trainium2" else half / 2, rel=0.015)
    for narrow in ("fp8", "int8"):
        if narrow in peaks and name != "tpu-v4":  # whose bytes are multiplied as fast as its bf16
            assert peaks[narrow] == pytest.approx(2 * half, rel=0.03 if name == "trainium2" else 0.015)


def test_measured_rates_have_a_source_and_stay_near_the_peak() -> None:
    for one in DEVICES.values():
        assert bool(float(one.matmul)) == bool(one.matmul_source)
        # a card that boosts beyond the clock of its datasheet passes the peak of it
        assert 0.5 < one.attainable < (1.25 if one.name.startswith("rtx") else 1.03), one.name
    assert DEVICES["mi300x"].attainable == pytest.approx(668.4 / 1307.4)
    google = [DEVICES[name].attainable for name in ("tpu-v6e", "tpu7x")]
    assert DEVICES["tpu-v5p"].attainable == min(google)  # nobody measured it: the maker's least
    assert accounting.measured_device("mine", 1e12).attainable == 1.0


def test_names_are_of_any_case() -> None:
    for name in DEVICES:
        assert device(name.upper()) is DEVICES[name]
    assert interconnect("GB200").node_size == 72
    with pytest.raises(KeyError, match="h100"):
        device("h101")


def test_collectives_reach_what_was_measured_or_four_fifths() -> None:
    assert INTERCONNECTS["mi300x"].reached == 312.9e9
    assert INTERCONNECTS["b200"].reached == pytest.approx(0.8 * 900e9)
    for name, joined in INTERCONNECTS.items():
        assert 0.5 < joined.reached / float(joined.link) <= 1, name
    joined = INTERCONNECTS["h100"]
    assert joined.latency(1, 1) == 0
    assert joined.latency(16, 8) == pytest.approx(14 * 3.4e-6 + 9.6e-6)
    assert INTERCONNECTS["tpu-v6e"].latency(256, 256) == 0  # a torus


def test_a_bandwidth_that_is_not_known_is_refused_by_name() -> None:
    shape, layout = SHAPES["gpt2"], Layout(data=2)
    joined = Interconnect(2, ByteRate(1e9), ByteRate(1e9), "given")
    for answer in (
        lambda: decode_time(shape, DEVICES["tpu7x"]),
        lambda: step_time(shape, layout, DEVICES["tpu7x"], joined, policy=Policy(precision="bf16")),
    ):
        with pytest.raises(ValueError, match="tpu7x has no known bandwidth"):
            answer()


def test_a_figure_without_a_document_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="h200 has no published tf32 peak"):
        DEVICES["h200"].peak("tf32")
    with pytest.raises(KeyError, match="v100-32gb"):
        interconnect("v100-32gb")
