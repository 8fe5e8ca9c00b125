"""Devices: dense peaks by number format, memory and bandwidth, each with its maker's document.

The table is devices.csv beside this file. Peaks are without sparsity, and for matmuls accumulated in fp32, which
GeForce cards do at half the rate of fp16 accumulation. Memory is the datasheet's number in units of 10^9 bytes. Cards
are built in GiB (an H100 of 80 GB has 85.5): the 7% between the two is what driver, context and communication buffers
take, so plans may use all of the datasheet's number. A figure without such a document is left out, and code that needs
it raises an error. A peak is reached by nobody: `matmul` is the best rate of bf16 matmuls that was published.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass

from accounting.checks import Named, named
from accounting.units import ByteRate, Bytes, FLOPRate, human

MEASURED = "measured"
FORMATS = ("bf16", "fp16", "tf32", "fp32", "fp8", "int8")
TABLE = os.path.join(os.path.dirname(__file__), "devices.csv")
UNKNOWN = FLOPRate(0.0)


@dataclass(frozen=True)
class Device:
    """One accelerator.

    Args:
        peaks: dense FLOP/s by number format.
        memory: bytes.
        bandwidth: bytes/s of the memory, 0 if unknown.
        source: the document of these figures.
        matmul: best measured FLOP/s of bf16 matmuls, 0 if nobody published one.
        matmul_source: the document of that measurement.
    """

    name: str
    peaks: dict[str, FLOPRate]
    memory: Bytes
    bandwidth: ByteRate
    source: str
    matmul: FLOPRate = UNKNOWN
    matmul_source: str = ""

    @property
    def measured(self) -> bool:
        """True if the rate itself was measured, not published as the dense peak of a number format."""
        return self.source == MEASURED

    @property
    def maker(self) -> str:
        """The first word of its document."""
        return self.source.split()[0].rstrip("'s:")

    @property
    def known_bandwidth(self) -> ByteRate:
        """The bandwidth; ValueError if unknown."""
        if not self.bandwidth:
            raise ValueError(f"{self.name} has no known bandwidth: give one to measured_device")
        return self.bandwidth

    @property
    def attainable(self) -> float:
        """Part of the peak that the best measured matmul reaches: the least of the maker's other devices if nobody
        published one of this, 1 if the rate itself was measured."""
        if self.measured:
            return 1.0
        if self.matmul:
            return float(self.matmul) / float(self.peaks["bf16"])
        measured = [one for one in DEVICES.values() if one.matmul]
        return min(one.attainable for one in [one for one in measured if one.maker == self.maker] or measured)

    def rate_in_words(self, dtype: str) -> str:
        """The rate that a utilisation is a part of."""
        rate = human(self.peak(dtype))
        return f"the {rate} that were measured" if self.measured else f"{dtype} dense peak, {rate} ({self.source})"

    def peak(self, dtype: str) -> FLOPRate:
        """Dense FLOP/s in this number format; ValueError if the device has no such unit or nobody published its
        rate."""
        if dtype not in self.peaks:
            raise ValueError(f"{self.name} has no published {dtype} peak, use one of {', '.join(self.peaks)}")
        return self.peaks[dtype]


def measured_device(
    name: str, flops_per_second: float, *, dtype: str = "fp32", memory: int = 0, bandwidth: float = 0.0
) -> Device:
    """A device without published figures, such as this CPU, by the measured FLOP/s of a large matmul.

    Without memory in bytes or bandwidth in bytes/s, functions that need them raise ValueError.
    """
    for label, value in (("flops_per_second", flops_per_second), ("memory", memory), ("bandwidth", bandwidth)):
        lowest = 0 if label != "flops_per_second" else 1
        if isinstance(value, bool) or not lowest <= value < float("inf"):
            raise ValueError(f"expected {label} of at least {lowest}, got {value!r}: measure it again")
    return Device(name, {dtype: FLOPRate(flops_per_second)}, Bytes(int(memory)), ByteRate(bandwidth), MEASURED)


def device(name: str) -> Device:
    """The device of that name, in upper or lower case; KeyError with the listed names for any other."""
    return named("device", name, DEVICES)


def lines() -> list[list[str]]:
    """The lines of devices.csv, the names of its columns first: a page has them in this short form."""
    with open(TABLE, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def rows() -> list[dict[str, str]]:
    """The rows of devices.csv, by the names of its columns."""
    names, *others = lines()
    return [dict(zip(names, line, strict=True)) for line in others]


def _from_row(row: Mapping[str, str]) -> Device:
    peaks = {name: FLOPRate(float(row[f"{name} TFLOP/s"]) * 1e12) for name in FORMATS if row[f"{name} TFLOP/s"]}
    return Device(
        name=row["name"],
        peaks=peaks,
        memory=Bytes(round(float(row["memory GB"]) * 1e9)),
        bandwidth=ByteRate(float(row["bandwidth GB/s"] or 0) * 1e9),
        source=row["source"],
        matmul=FLOPRate(float(row["matmul TFLOP/s"] or 0) * 1e12),
        matmul_source=row["matmul source"],
    )


ROWS = rows()
DEVICES: dict[str, Device] = Named("device", {row["name"]: _from_row(row) for row in ROWS})
