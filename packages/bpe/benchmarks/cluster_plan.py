"""The plan of a larger cluster, computed from what cluster.py has measured, with its arithmetic."""

from __future__ import annotations

import argparse
import math
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A step of the work: its name, how its seconds are computed, and these."""

    name: str
    arithmetic: str
    seconds: float


def plan(
    text: int, one: dict[str, Any], largest: dict[str, Any], step: dict[str, Any], asked: argparse.Namespace
) -> list[str]:
    """The lines of a page.

    Args:
        text: Bytes of the text that was measured.
        one: One machine's measurements.
        largest: Those of the largest cluster.
        step: Those of the steps by themselves.
        asked: The cluster: --plan-nodes and the other options.
    """
    from bpe.cluster.counting import FAN_IN, MOST_PART
    from bpe.cluster.encoding import PART

    nodes, total, network, storage = asked.plan_nodes, asked.plan_text, asked.network, asked.storage
    cpus, files = nodes * asked.plan_cpus, asked.plan_files
    rate = {name: text / one["seconds"][name] for name in ("count", "encode")}
    cost = {name: sum(largest["cpu"][name].values()) / sum(one["cpu"][name].values()) for name in rate}
    growth = math.log(step["distinct"] / step["part_distinct"]) / math.log(text / step["part"])

    def distinct(size: float) -> float:
        return float(step["distinct"] * (size / text) ** growth)

    ids = 2 * one["ids"] / text  # bytes of uint16 for a byte of text
    parts, size = total / MOST_PART, float(MOST_PART)
    volumes, adders, results = [], [], parts  # of each level: bytes, and the tasks that add them up at a time
    while results > 1:
        volumes.append(results * distinct(size) * step["record"])
        results, size = results / FAN_IN, min(total, size * FAN_IN)
        adders.append(min(cpus, math.ceil(results)))
    merged, last = sum(volumes), distinct(total) * step["record"]
    merging = sum(volume / (tasks * step["added"]) for volume, tasks in zip(volumes, adders, strict=True))
    levels = " + ".join(f"{volume:.3g} / {tasks:,}" for volume, tasks in zip(volumes, adders, strict=True))
    tasks, file, turns = parts + total / PART, total / files, math.ceil(files / nodes)
    over = f"({nodes} × {network:.3g} B/s)"
    rows = [
        Row("reading the text, storage", f"{total:.3g} B / {storage:.3g} B/s", total / storage),
        Row("reading the text, network", f"{total:.3g} B / {over}", total / (nodes * network)),
        Row(
            "counting, CPUs",
            f"{total:.3g} B / ({cpus:,} × {rate['count']:.3g} B/s) × {cost['count']:.2f}",
            total / (cpus * rate["count"]) * cost["count"],
        ),
        Row(
            "merging counts, CPUs",
            f"({levels}) B / {step['added']:.3g} B/s",
            merging,
        ),
        Row("merging counts, network", f"{merged:.3g} B / {over}", merged / (nodes * network)),
        Row("the counts to the calling machine", f"{last:.3g} B / {network:.3g} B/s", last / network),
        Row(
            "learning, one thread",
            f"{one['seconds']['learn']:.2f} s × {distinct(total):.3g} / {step['distinct']:.3g}",
            one["seconds"]["learn"] * distinct(total) / step["distinct"],
        ),
        Row(
            "encoding, CPUs",
            f"{total:.3g} B / ({cpus:,} × {rate['encode']:.3g} B/s) × {cost['encode']:.2f}",
            total / (cpus * rate["encode"]) * cost["encode"],
        ),
        Row(
            f"joining {files:,} files",
            f"{file:.3g} B × {ids:.2f} / {step['written']:.3g} B/s × {turns} a node",
            file * ids / step["written"] * turns,
        ),
        Row("writing the ids, storage", f"{total * ids:.3g} B / {storage:.3g} B/s", total * ids / storage),
        Row(
            "handing out tasks",
            f"({parts:,.0f} + {total / PART:,.0f}) × {largest['handing'] * 1e3:.2f} ms of the calling process",
            tasks * largest["handing"],
        ),
    ]
    slow = sorted(rows, key=lambda row: row.seconds, reverse=True)
    memory = (one["memory"]["driver"] - one["base"]) / step["distinct"] * distinct(total)
    return [
        f"{total / 1e12:g} TB in {files:,} files; {nodes} nodes of {asked.plan_cpus} CPUs as fast as those here, with",
        f"{network / 1e9:g} GB/s of network each; storage that gives {storage / 1e9:g} GB/s to all of them together.",
        "",
        f"- Distinct pretokens grow as the text's size to the power {growth:.2f}, as from",
        f"  {step['part'] / 1e6:,.0f} to {text / 1e6:,.0f} MB of what was measured. No other step goes so far beyond",
        "  what was measured: count a part of your corpus to see how they grow in it. A record of the counts is",
        f"  {step['record']:.1f} bytes.",
        f"- A task counts {MOST_PART / 1e6:,.0f} MB. Its counts, and sums of {FAN_IN}, are merged in {len(volumes)}",
        "  levels, by at most as many tasks as there are CPUs.",
        f"- What Ray costs in CPU is that of the largest cluster measured: {cost['count']:.2f} times one machine's for",
        f"  counting, {cost['encode']:.2f} for encoding.",
        f"- A byte of text gives {ids:.2f} bytes of ids. A file is encoded in parts of {PART / 1e6:,.0f} MB, and then",
        "  written by one task, for its SHA-256 is of all ids in turn.",
        "",
        "| | arithmetic | seconds |",
        "|---|---|---|",
        *(f"| {row.name} | {row.arithmetic} | {row.seconds:,.0f} |" for row in rows),
        "",
        f"Longest: {', '.join(f'{row.name} ({row.seconds:,.0f} s)' for row in slow[:3])}.",
        "Reading, counting and merging overlap, as do encoding and writing;",
        "the rest comes one after another. The calling machine holds",
        f"{last / 1e9:,.1f} GB of counts, and {memory / 1e9:,.0f} GB while it learns, if that grows as the counts do.",
    ]
