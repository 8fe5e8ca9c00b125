"""`accounting devices`: the devices that are known, with the document that each is from."""

from __future__ import annotations

import argparse
from typing import Any

from accounting.commands.tables import Answer, columns, wrapped
from accounting.hardware.devices import DEVICES, FORMATS, device
from accounting.hardware.interconnect import INTERCONNECTS
from accounting.units import human


def devices(options: argparse.Namespace) -> Answer:
    """The table of devices: peaks in TFLOP/s, and the document each is from."""
    chosen = [device(name) for name in options.names] or list(DEVICES.values())
    table: list[tuple[str, ...]] = [("device", *FORMATS, "matmul", "memory", "bandwidth", "link", "network")]
    records = []
    for one in chosen:
        cells = [f"{float(one.peaks[dtype]) / 1e12:.4g}" if dtype in one.peaks else "" for dtype in FORMATS]
        cells.append(f"{float(one.matmul) / 1e12:.4g}" if one.matmul else "")
        joined = INTERCONNECTS.get(one.name)
        rates = ("", "") if joined is None else (human(joined.link), human(joined.network))
        table.append((one.name, *cells, human(one.memory), human(one.bandwidth) if one.bandwidth else "", *rates))
        peaks = {dtype: float(one.peaks[dtype]) if dtype in one.peaks else None for dtype in FORMATS}
        sizes = {"memory": int(one.memory), "bandwidth": float(one.bandwidth) or None}
        between: dict[str, Any] = dict.fromkeys(("link", "network", "node size", "interconnect source"))
        if joined is not None:
            links = float(joined.link), float(joined.network), joined.node_size, joined.source
            between = dict(zip(between, links, strict=True))
        reached = {"matmul": float(one.matmul) or None, "matmul source": one.matmul_source or None}
        records.append({"device": one.name, **peaks, **reached, **sizes, "source": one.source, **between})
    note = wrapped(
        "dense peaks in TFLOP/s, accumulated in fp32, and the best bf16 matmul that was measured; GB is 10^9 bytes; "
        "link and network are what a device sends inside its node and to others, each way, in the maker's own server"
    )
    sources = [f"{one.name}: {one.source}" for one in chosen]
    sources += [f"{one.name}, matmul: {one.matmul_source}" for one in chosen if one.matmul]
    sources += [
        f"{one.name}, link and network: {INTERCONNECTS[one.name].source}" for one in chosen if one.name in INTERCONNECTS
    ]
    return Answer("\n".join([columns(table), note, *sources]), records)
