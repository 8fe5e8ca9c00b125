"""`accounting devices`: the devices that are known, with the document that each is from."""

from __future__ import annotations

from accounting.commands.answer import Answer
from accounting.commands.tables import columns, wrapped
from accounting.hardware.devices import DEVICES, device
from accounting.units import human

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

FORMATS = ("bf16", "fp16", "tf32", "fp32", "fp8", "int8")


def devices(options: argparse.Namespace) -> Answer:
    """The table of devices: peaks in TFLOP/s, and the document each is from."""
    chosen = [device(name) for name in options.names] or list(DEVICES.values())
    table: list[tuple[str, ...]] = [("device", *FORMATS, "memory", "bandwidth")]
    records = []
    for one in chosen:
        cells = [f"{float(one.peaks[dtype]) / 1e12:.4g}" if dtype in one.peaks else "" for dtype in FORMATS]
        table.append((one.name, *cells, human(one.memory), human(one.bandwidth)))
        peaks = {dtype: float(one.peaks[dtype]) if dtype in one.peaks else None for dtype in FORMATS}
        sizes = {"memory": int(one.memory), "bandwidth": float(one.bandwidth)}
        records.append({"device": one.name, **peaks, **sizes, "source": one.source})
    note = wrapped("dense peaks in TFLOP/s, accumulated in fp32; GB is 10^9 bytes")
    sources = [f"{one.name}: {one.source}" for one in chosen]
    return Answer("\n".join([columns(table), note, *sources]), records)
