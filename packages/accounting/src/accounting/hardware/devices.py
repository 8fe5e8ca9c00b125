"""Devices: dense peaks by number format, memory and bandwidth, each with the document it is from.

Peaks are without sparsity, which doubles the figures of many datasheets, and for products accumulated in fp32, which
GeForce cards do at half the rate of fp16 accumulation. Of a card whose maker's document could not be read they are its
multiprocessors times what one does in a clock times its boost clock, and the source then says where those numbers are
from. Memory is the datasheet's number in units of 10^9 bytes: cards are built in GiB, and the difference is about what
driver and context take. Prices change and are not here.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.shape import unknown
from accounting.units import ByteRate, Bytes, FLOPRate, human

MEASURED = "measured"


@dataclass(frozen=True)
class Device:
    """One accelerator: peaks in FLOP/s by number format, memory in bytes, bandwidth in bytes/s, and where they are
    from."""

    name: str
    peaks: dict[str, FLOPRate]
    memory: Bytes
    bandwidth: ByteRate
    source: str

    @property
    def measured(self) -> bool:
        """Whether its rate was measured rather than published: it is then no dense peak of a number format."""
        return self.source == MEASURED

    def rate_in_words(self, dtype: str) -> str:
        """The rate that a utilisation is a part of."""
        rate = human(self.peak(dtype))
        return f"the {rate} that were measured" if self.measured else f"{dtype} dense peak, {rate} ({self.source})"

    def peak(self, dtype: str) -> FLOPRate:
        """Dense FLOP/s in this number format; ValueError if the device has no such unit or nobody published its
        rate."""
        if dtype not in self.peaks:
            others = f"use one of {', '.join(self.peaks)}" if self.peaks else "nor any other: measure one"
            raise ValueError(f"{self.name} has no published {dtype} peak, {others}")
        return self.peaks[dtype]


def measured_device(
    name: str, flops_per_second: float, *, dtype: str = "fp32", memory: int = 0, bandwidth: float = 0.0
) -> Device:
    """A device nobody published figures of, such as this CPU, by a measured FLOP/s (of a large matrix multiplication).

    memory in bytes and bandwidth in bytes/s may be left out; what needs them then says so.
    """
    for label, value in (("flops_per_second", flops_per_second), ("memory", memory), ("bandwidth", bandwidth)):
        lowest = 0 if label != "flops_per_second" else 1
        if isinstance(value, bool) or not lowest <= value < float("inf"):
            raise ValueError(f"{label} must be a number of at least {lowest}, and {value!r} is not: measure it again")
    return Device(name, {dtype: FLOPRate(flops_per_second)}, Bytes(int(memory)), ByteRate(bandwidth), MEASURED)


def device(name: str) -> Device:
    """The device of that name, else KeyError with the names there are."""
    try:
        return DEVICES[name]
    except KeyError:
        raise unknown("device", name, DEVICES) from None


def _table(name: str, memory: float, bandwidth: float, source: str, **tera: float) -> Device:
    peaks = {dtype: FLOPRate(value * 1e12) for dtype, value in tera.items()}
    return Device(name, peaks, Bytes(round(memory * 1e9)), ByteRate(bandwidth * 1e9), source)


# FLOPs of a multiprocessor in a clock: products of 16 bits summed in fp32, those of TF32 (0: it has none), and fp32.
_TURING_RATES = (512, 0, 128)
_GEFORCE_RATES = (512, 256, 256)  # Ampere, Ada and Blackwell
_WORKSTATION_RATES = (1024, 512, 256)  # the same chips on cards for work, which sum in fp32 at the whole rate


def _by_rule(
    name: str, memory: float, bandwidth: float, units: int, megahertz: int, rates: tuple[int, int, int], source: str
) -> Device:
    """A card by what it is made of: multiprocessors times what one does in a clock times the boost clock."""
    narrow, tf32, wide = (units * megahertz * rate / 1e6 for rate in rates)
    tera = {"bf16": narrow, "fp16": narrow, "tf32": tf32, "fp32": wide} if tf32 else {"fp16": narrow, "fp32": wide}
    words = f"{units} multiprocessors at {megahertz:,} MHz, as {source} has them; the rest by rule"
    return _table(name, memory, bandwidth, words, **tera)


_V100 = "NVIDIA V100 datasheet"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet, sparsity removed"
_CDNA = "AMD ROCm documentation, MI300 microarchitecture; memory: AMD Instinct MI300X datasheet"
_CDNA2 = "AMD's table of the MI200 series, halved: one of its two dies, which is what software sees as a device"
_L4 = "NVIDIA L4 datasheet, sparsity removed"
_L40S = "NVIDIA L40S product page, which does not say what fp16 is accumulated in"
_TURING = "NVIDIA Turing GPU architecture whitepaper, reference clocks"
_RULE = "64 multiply-adds a clock of each of its 240 tensor cores at 1.68 GHz, half of that with fp32 accumulation"
_AMPERE = "NVIDIA Ampere GA102 GPU architecture whitepaper, appendix A"
_ADA = "NVIDIA Ada GPU architecture whitepaper, appendices"
_BLACKWELL = "NVIDIA RTX Blackwell GPU architecture whitepaper, appendix B"
_APPLE = "Apple's announcement, which names no number format: its figure is that of fp32"
_SCAN = "Scan's TekSpek of the RTX 3060 Ti"
_SILENT = "Apple's technical specifications, which give no rate of arithmetic"

DEVICES: dict[str, Device] = {
    one.name: one
    for one in (
        _table("t4", 16, 320, "NVIDIA T4 datasheet", fp16=65, fp32=8.1, int8=130),
        _table("v100-16gb", 16, 900, f"{_V100} (SXM2)", fp16=125, fp32=15.7),
        _table("v100-32gb", 32, 900, f"{_V100} (SXM2)", fp16=125, fp32=15.7),
        _table("v100-pcie-16gb", 16, 900, f"{_V100} (PCIe)", fp16=112, fp32=14),
        _table("v100-pcie-32gb", 32, 900, f"{_V100} (PCIe)", fp16=112, fp32=14),
        _table("a100-40gb", 40, 1555, f"{_A100} (SXM4, PCIe)", bf16=312, fp16=312, tf32=156, fp32=19.5, int8=624),
        _table("a100-80gb", 80, 2039, f"{_A100} (SXM4)", bf16=312, fp16=312, tf32=156, fp32=19.5, int8=624),
        _table("a100-80gb-pcie", 80, 1935, f"{_A100} (PCIe)", bf16=312, fp16=312, tf32=156, fp32=19.5, int8=624),
        _by_rule("a10", 24, 600, 72, 1695, _WORKSTATION_RATES, "sysrqmts.com"),
        _table("a40", 48, 696, "NVIDIA A40 datasheet", bf16=149.7, fp16=149.7, tf32=74.8, fp32=37.4, int8=299.3),
        _by_rule("rtx-a6000", 48, 768, 84, 1800, _WORKSTATION_RATES, "sysrqmts.com"),
        _by_rule("rtx-6000-ada", 48, 960, 142, 2505, _WORKSTATION_RATES, "cputronic.com"),
        _table("l4", 24, 300, _L4, bf16=121, fp16=121, tf32=60, fp32=30.3, fp8=242.5, int8=242.5),
        _table("l40s", 48, 864, _L40S, bf16=362.05, fp16=362.05, tf32=183, fp32=91.6, fp8=733, int8=733),
        _table("h100-pcie", 80, 2000, f"{_H100} (PCIe)", bf16=756, fp16=756, tf32=378, fp32=51, fp8=1513, int8=1513),
        _table(
            "h100-nvl", 94, 3900, f"{_H100} (NVL)", bf16=835.5, fp16=835.5, tf32=417.5, fp32=60, fp8=1670.5, int8=1670.5
        ),
        _table("h100", 80, 3350, f"{_H100} (SXM5)", bf16=989, fp16=989, tf32=494, fp32=67, fp8=1979, int8=1979),
        _table(
            "h200",
            141,
            4800,
            "NVIDIA H200 datasheet (SXM), sparsity removed",
            bf16=989,
            fp16=989,
            tf32=494,
            fp32=67,
            fp8=1979,
            int8=1979,
        ),
        _table(
            "b200",
            180,
            7700,
            "NVIDIA Blackwell datasheet, one GPU of an HGX B200, sparsity removed",
            bf16=2250,
            fp16=2250,
            tf32=1125,
            fp32=75,
            fp8=4500,
            int8=4500,
        ),
        _table(
            "mi300x",
            192,
            5300,
            _CDNA,
            bf16=1307.4,
            fp16=1307.4,
            tf32=653.7,
            fp32=163.4,
            fp8=2614.9,
            int8=2614.9,
        ),
        _table(
            "mi325x",
            256,
            6000,
            "AMD Instinct MI325X datasheet, as awesomeagents.ai has it",
            bf16=1307.4,
            fp16=1307.4,
            tf32=653.7,
            fp32=163.4,
            fp8=2614.9,
        ),
        _table("mi250x", 64, 1600, _CDNA2, bf16=191.5, fp16=191.5, fp32=47.85),
        _table("rtx-2060", 6, 336, f"{_RULE} (in no whitepaper); fp32 NVIDIA's", fp16=25.8, fp32=6.45),
        _by_rule("rtx-2060-super", 8, 448, 34, 1650, _TURING_RATES, "cputronic.com"),
        _table("rtx-2070", 8, 448, _TURING, fp16=29.9, fp32=7.5),
        _by_rule("rtx-2070-super", 8, 448, 40, 1770, _TURING_RATES, _SCAN),
        _table("rtx-2080", 8, 448, _TURING, fp16=40.3, fp32=10.1),
        _by_rule("rtx-2080-super", 8, 496, 48, 1815, _TURING_RATES, _SCAN),
        _table("rtx-2080-ti", 11, 616, _TURING, fp16=53.8, fp32=13.4),
        _by_rule("rtx-3060", 12, 360, 28, 1777, _GEFORCE_RATES, "sysrqmts.com"),
        _by_rule("rtx-3060-ti", 8, 448, 38, 1665, _GEFORCE_RATES, _SCAN),
        _table("rtx-3070", 8, 448, _AMPERE, bf16=40.6, fp16=40.6, tf32=20.3, fp32=20.3),
        _by_rule("rtx-3070-ti", 8, 608, 48, 1770, _GEFORCE_RATES, "gamersky.com and ashea.com.cn"),
        _table("rtx-3080", 10, 760, _AMPERE, bf16=59.5, fp16=59.5, tf32=29.8, fp32=29.8),
        _by_rule("rtx-3080-ti", 12, 912, 80, 1665, _GEFORCE_RATES, "hkepc.com, the clock by 34.1 TFLOP/s of fp32,"),
        _table("rtx-3090", 24, 936, _AMPERE, bf16=71, fp16=71, tf32=35.6, fp32=35.6),
        _by_rule("rtx-3090-ti", 24, 1008, 84, 1860, _GEFORCE_RATES, "tweaktown.com"),
        _by_rule("rtx-4060", 8, 272, 24, 2460, _GEFORCE_RATES, "fpsbench.com"),
        _by_rule("rtx-4060-ti", 8, 288, 34, 2535, _GEFORCE_RATES, "alldbin.com"),
        _by_rule("rtx-4060-ti-16gb", 16, 288, 34, 2535, _GEFORCE_RATES, "alldbin.com"),
        _by_rule("rtx-4070", 12, 504, 46, 2475, _GEFORCE_RATES, "thefpsreview.com"),
        _table("rtx-4070-ti", 12, 504, _ADA, bf16=80.2, fp16=80.2, tf32=40.1, fp32=40.1),
        _table("rtx-4080", 16, 716.8, _ADA, bf16=97.5, fp16=97.5, tf32=48.7, fp32=48.7),
        _by_rule("rtx-4080-super", 16, 736, 80, 2550, _GEFORCE_RATES, "technical.city"),
        _table("rtx-4090", 24, 1008, _ADA, bf16=165.2, fp16=165.2, tf32=82.6, fp32=82.6, fp8=330.3),
        _by_rule("rtx-5050", 8, 320, 20, 2570, _GEFORCE_RATES, "io-tech.fi"),
        _by_rule("rtx-5060", 8, 448, 30, 2497, _GEFORCE_RATES, "pcspecchart.com"),
        _by_rule("rtx-5060-ti", 8, 448, 36, 2572, _GEFORCE_RATES, "cputronic.com"),
        _by_rule("rtx-5060-ti-16gb", 16, 448, 36, 2572, _GEFORCE_RATES, "cputronic.com"),
        _table("rtx-5070", 12, 672, _BLACKWELL, bf16=61.7, fp16=61.7, tf32=30.9, fp32=30.9),
        _table("rtx-5070-ti", 16, 896, _BLACKWELL, bf16=87.9, fp16=87.9, tf32=43.9, fp32=43.9, fp8=175.8),
        _table("rtx-5080", 16, 960, _BLACKWELL, bf16=112.6, fp16=112.6, tf32=56.3, fp32=56.3),
        _table("rtx-5090", 32, 1792, _BLACKWELL, bf16=209.5, fp16=209.5, tf32=104.8, fp32=104.8, fp8=419),
        _table("m1", 16, 68.25, _APPLE, fp32=2.6),
        _table("m1-pro", 32, 200, _APPLE, fp32=5.2),
        _table("m1-max", 64, 400, _APPLE, fp32=10.4),
        _table("m1-ultra", 128, 800, _APPLE, fp32=21),
        _table("m2", 24, 100, _APPLE, fp32=3.6),
        _table("m2-pro", 32, 200, _SILENT),
        _table("m2-max", 96, 400, _SILENT),
        _table("m2-ultra", 192, 800, _SILENT),
        _table("m3", 24, 100, _SILENT),
        _table("m3-pro", 36, 150, _SILENT),
        _table("m3-max", 128, 400, _SILENT),
        _table("m3-ultra", 512, 819.2, _SILENT),
        _table("m4", 32, 120, _SILENT),
        _table("m4-pro", 64, 273, _SILENT),
        _table("m4-max", 128, 546, _SILENT),
        _table("m5", 32, 153, _SILENT),
        _table("m5-pro", 64, 307, _SILENT),
        _table("m5-max", 128, 614, _SILENT),
    )
}
