"""Devices: dense peaks by number format, memory and bandwidth, each with its maker's document.

The table is devices.csv beside this file. Peaks are without sparsity, which doubles the figures of many datasheets, and
for products accumulated in fp32, which GeForce cards do at half the rate of fp16 accumulation. Memory is the
datasheet's number in units of 10^9 bytes: cards are built in GiB, and the difference is about what driver and context
take. A figure that could not be compared with such a document is left out, and what needs it says so. Prices are left
out too: they change.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass

from accounting.shape import named
from accounting.units import ByteRate, Bytes, FLOPRate, human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MEASURED = "measured"
FORMATS = ("bf16", "fp16", "tf32", "fp32", "fp8", "int8")
TABLE = os.path.join(os.path.dirname(__file__), "devices.csv")


@dataclass(frozen=True)
class Device:
    """One accelerator: peaks in FLOP/s by number format, memory in bytes, bandwidth in bytes/s (0 where it is not
    known), and where they are from."""

    name: str
    peaks: dict[str, FLOPRate]
    memory: Bytes
    bandwidth: ByteRate
    source: str

    @property
    def measured(self) -> bool:
        """Whether its rate was measured rather than published: it is then no dense peak of a number format."""
        return self.source == MEASURED

    @property
    def known_bandwidth(self) -> ByteRate:
        """The bandwidth; ValueError where none is known."""
        if not self.bandwidth:
            raise ValueError(f"{self.name} has no known bandwidth: give one to measured_device")
        return self.bandwidth

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
    return named("device", name, DEVICES)


def rows() -> list[dict[str, str]]:
    """The rows of devices.csv, by the names of its columns."""
    with open(TABLE, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _from_row(row: Mapping[str, str]) -> Device:
    peaks = {name: FLOPRate(float(row[f"{name} TFLOP/s"]) * 1e12) for name in FORMATS if row[f"{name} TFLOP/s"]}
    return Device(
        name=row["name"],
        peaks=peaks,
        memory=Bytes(round(float(row["memory GB"]) * 1e9)),
        bandwidth=ByteRate(float(row["bandwidth GB/s"] or 0) * 1e9),
        source=row["source"],
    )


ROWS = rows()
DEVICES: dict[str, Device] = {row["name"]: _from_row(row) for row in ROWS}
