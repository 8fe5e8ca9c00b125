"""lm's attention kernels beside their peers on a CUDA device, taking turns: four tables.

    python packages/lm/benchmarks/bench_attention.py # all tables
    python packages/lm/benchmarks/bench_attention.py --tables lengths --lengths 4096 --head-dims 64 --rounds 20
    python packages/lm/benchmarks/bench_attention.py --readme # into docs/design/performance

lengths  TFLOP/s forward, backward and both, over length. Each case has 16,384 positions in all and 2,048 numbers each:
         a batch of shorter texts, or one text longer than that. FLOPs are those of the exact mask, 4 · head_dim a
         visible pair forward and 10 backward (the scores once more among them, however often they are computed): the
         same for all.
masks    milliseconds of causal attention with a window, with documents and with grouped queries.
decode   one query for each text against a cache of keys: microseconds and GB/s, of a CUDA graph and of eager calls.
errors   how far results are from those of float64; and the time of the case that has an aim.

Before each call 512 MB are written: this clears the L2 cache, and keeps the GPU busy while Python launches the call, so
that what is measured is the time of the kernels and not that of launching them. A case with calls of more than 50 ms
has at most 5 rounds, of more than 150 ms 3. Kernels are compiled before, by several processes at once. A peer that
cannot do a case, or has no memory for it, has a dash, and why is said below the table. With --readme a table that is
measured again replaces itself, and the other tables stay.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import io
import itertools
import multiprocessing
import os
import re
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bench_attention_cases as cases
import torch
from bench_attention_cases import (
    AIM_MS,
    DTYPES,
    ERRORS_OF,
    MASK_PEERS,
    MASKS,
    PEERS,
    QUICK_PEERS,
    WAYS,
    Case,
    DecodeCase,
    MaskCase,
    Measured,
    Seconds,
    clock,
    measure,
)
from matplotlib.figure import Figure

from lm.ops import triton as kernels

__all__ = ["PEERS", "Case", "clock", "main", "measure"]

PAGE = Path(__file__).resolve().parents[3] / "docs/design/performance/lm.md"
BEGIN, END = "<!-- bench-attention: begin -->", "<!-- bench-attention: end -->"
TITLES = {
    "lengths": "Attention over length",
    "masks": "Masks and grouped queries",
    "decode": "Decoding",
    "errors": "Errors, and the aim",
}
COMPILING = 60  # seconds that are waited for the processes that compile


class Part(NamedTuple):
    """A table after some of its rows."""

    lines: list[str]
    row: str
    done: int
    rows: int
    drawing: str | None = None


class Refusals:
    """Which peers could not do which cases, and why."""

    def __init__(self) -> None:
        self.cases: dict[tuple[str, str], list[str]] = {}

    def add(self, label: str, refused: dict[str, str]) -> None:
        for name, why in refused.items():
            self.cases.setdefault((name, why), []).append(label)

    def lines(self) -> list[str]:
        refusals = [f"- {name} ({'; '.join(labels)}): {why}" for (name, why), labels in self.cases.items()]
        return ["", *refusals] if refusals else []


def attempt(call: Callable[[], Measured]) -> Measured:
    """The result of the call; a case that raises as a whole is one without figures."""
    try:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        torch.compiler.reset()  # a function is compiled for 8 shapes at most, and then no more
        return call()
    except Exception as refusal:
        return {}, {"all": cases.reason(refusal)}


def header(first: str, columns: Sequence[str]) -> list[str]:
    return [f"| {first} | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]


def line(label: str, cells: Sequence[str]) -> str:
    return f"| {label} | " + " | ".join(cells) + " |"


# Lengths

Results = dict[Case, Seconds]


def label_of(case: Case) -> str:
    return f"{case.head_dim}, {'causal' if case.causal else 'full'}, {case.length:,}"


def table(results: Results, names: Sequence[str], way: str) -> list[str]:
    """TFLOP/s, a row for each case."""
    lines = header(f"{way}: head dim, mask, length", names)
    for case, seconds in results.items():
        cells = [
            f"{case.flops(way) / seconds[name, way] / 1e12:.0f}" if (name, way) in seconds else "–" for name in names
        ]
        lines.append(line(label_of(case), cells))
    return lines


COLOURS = ("#d1495b", "#30638e", "#00798c", "#edae49", "#767676")


def plot(results: Results, names: Sequence[str], caption: str) -> str:
    """An SVG: a row of panels for each way, a column for each head dimension and mask, TFLOP/s over length."""
    columns = sorted({(case.head_dim, case.causal) for case in results}, key=lambda c: (c[0], not c[1]))
    lengths = sorted({case.length for case in results})
    rates = {
        (case, name, way): case.flops(way) / s / 1e12 for case, row in results.items() for (name, way), s in row.items()
    }
    figure = Figure(figsize=(2.8 * len(columns) + 0.7, 2.2 * len(WAYS) + 0.8), layout="constrained")
    panels = figure.subplots(len(WAYS), len(columns), sharex=True, sharey=True, squeeze=False)
    for (r, way), (c, (head_dim, causal)) in itertools.product(enumerate(WAYS), enumerate(columns)):
        axes = panels[r, c]
        axes.set_title(f"{way}, head dim {head_dim}, {'causal' if causal else 'full'}", fontsize=9)
        axes.grid(color="#eeeeee")
        axes.set(ylim=(0, max(rates.values(), default=1.0) * 1.05), xscale="log")
        axes.set_xticks(lengths, [f"{n // 1024}k" if n >= 1024 else str(n) for n in lengths])
        axes.set_xticks([], minor=True)
        for name, colour in zip(names, itertools.cycle(COLOURS), strict=False):
            keys = [(Case(head_dim, causal, length), name, way) for length in lengths]
            points = [(key[0].length, rates[key]) for key in keys if key in rates]
            axes.plot([x for x, _ in points], [y for _, y in points], ".-", color=colour, label=name)
    figure.suptitle(caption, fontsize=9, x=0.01, ha="left")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names), fontsize=9)
    figure.supylabel("TFLOP/s", fontsize=9)
    out = io.StringIO()
    figure.savefig(out, format="svg", facecolor="white", metadata={"Date": None})
    return out.getvalue()


def length_cases(options: argparse.Namespace) -> list[Case]:
    return [
        Case(head_dim, mask == "causal", length)
        for head_dim in options.head_dims
        for mask in options.masks
        for length in options.lengths
    ]


def lengths_table(options: argparse.Namespace, device: str) -> Iterator[Part]:
    peers = {name: PEERS[name] for name in options.peers}
    combinations = list(itertools.product(options.dtypes, length_cases(options)))
    results: dict[str, Results] = {name: {} for name in options.dtypes}
    refusals = Refusals()
    for done, (name, case) in enumerate(combinations, 1):
        seconds, refused = attempt(
            functools.partial(measure, case, peers, device, DTYPES[name], options.rounds),
        )
        results[name][case] = seconds
        refusals.add(f"{name}, {label_of(case)}", refused)
        lines: list[str] = []
        for dtype, rows in results.items():
            if rows:
                lines += ["", f"TFLOP/s in {dtype}:"]
            for way in WAYS if rows else ():
                lines += ["", *table(rows, options.peers, way)]
        drawing = None
        if options.readme and case.length == options.lengths[-1]:  # drawing takes longer than measuring a row
            shown = options.dtypes[0]
            drawing = plot(results[shown], options.peers, f"TFLOP/s in {shown} on {device_line(device)}")
        row = table({case: seconds}, options.peers, "both")[2]
        yield Part(lines[1:] + refusals.lines(), f"{name} {row}", done, len(combinations), drawing)


# Masks


def mask_label(case: MaskCase) -> str:
    means = {
        "causal": "causal",
        "window": f"a window of {cases.WINDOW:,}",
        "documents": f"{cases.DOCUMENTS} documents",
        "grouped": f"causal, {cases.MASK_KV_HEADS} key heads",
    }
    return f"{case.head_dim}, {means[case.mask]}"


def masks_table(options: argparse.Namespace, device: str) -> Iterator[Part]:
    names = list(MASK_PEERS)
    combinations = [MaskCase(head_dim, mask) for head_dim in options.head_dims for mask in MASKS]
    shape = f"{cases.MASK_BATCH} texts of {cases.MASK_LENGTH:,} positions, {cases.MASK_HEADS} heads"
    ways = {"forward": "forward", "both": "forward and backward"}
    rows: dict[str, list[str]] = {way: [] for way in ways}
    refusals = Refusals()
    for done, case in enumerate(combinations, 1):
        seconds, refused = attempt(
            functools.partial(cases.measure_mask, case, names, device, DTYPES["bf16"], options.rounds)
        )
        refusals.add(mask_label(case), refused)
        lines = [f"Milliseconds in bf16, {shape}."]
        for way, title in ways.items():
            cells = [f"{seconds[name, way] * 1e3:.2f}" if (name, way) in seconds else "–" for name in names]
            rows[way].append(line(mask_label(case), cells))
            lines += ["", *header(f"{title}: head dim, mask", names), *rows[way]]
        yield Part(lines + refusals.lines(), rows["both"][-1], done, len(combinations))


# Decoding


def decode_cases() -> list[DecodeCase]:
    listed = [DecodeCase(*shape, *cache) for shape in cases.DECODE_SHAPES for cache in cases.DECODE_CACHES]
    return [*listed, DecodeCase(*cases.DECODE_SHAPES[0], cases.DRAWN_BATCH, cases.DRAWN_KEYS, own_lengths=True)]


def decode_label(case: DecodeCase) -> str:
    keys = f"{cases.DRAWN_LEAST:,} to {case.keys:,}" if case.own_lengths else f"{case.keys:,}"
    return f"{case.heads}, {case.kv_heads}, {case.head_dim}; {case.batch} × {keys}"


def decode_table(options: argparse.Namespace, device: str) -> Iterator[Part]:
    names, dtype = ("ours", "SDPA"), DTYPES["bf16"]
    columns = [f"{name}, {what}" for name in names for what in ("µs", "GB/s", "eager, µs")]
    combinations = decode_cases()
    rows: list[str] = []
    refusals = Refusals()
    for done, case in enumerate(combinations, 1):
        seconds, refused = attempt(functools.partial(cases.measure_decode, case, device, dtype, options.rounds))
        refusals.add(decode_label(case), refused)
        cells = []
        for name in names:
            graph, eager = seconds.get((name, "graph")), seconds.get((name, "eager"))
            cells.append("–" if graph is None else f"{graph * 1e6:.1f}")
            cells.append("–" if graph is None else f"{case.bytes_read(dtype) / graph / 1e9:,.0f}")
            cells.append("–" if eager is None else f"{eager * 1e6:.1f}")
        rows.append(line(decode_label(case), cells))
        lines = [
            f"One query for each text, in bf16: a call in a CUDA graph of {cases.GRAPHED_CALLS}, each with a cache of "
            f"its own; keys and values read; and a call of {cases.EAGER_CALLS} without a graph.",
            "",
            *header("heads, key heads, head dim; texts × keys", columns),
            *rows,
        ]
        yield Part(lines + refusals.lines(), rows[-1], done, len(combinations))


# Errors


def errors_table(options: argparse.Namespace, device: str) -> Iterator[Part]:
    peers = {name: PEERS[name] for name in options.peers}
    combinations = list(itertools.product(DTYPES, options.head_dims))
    batch, heads, length = cases.ERROR_SHAPE
    lines = [
        f"‖x − exact‖ / ‖exact‖, causal, {batch} × {heads} heads × {length:,} positions; exact is computed in float64 "
        "from the same inputs.",
        "",
        *header("dtype, head dim, of", options.peers),
    ]
    refusals = Refusals()
    for done, (name, head_dim) in enumerate(combinations, 1):
        errors, refused = attempt(
            functools.partial(cases.relative_errors, peers, head_dim, device, DTYPES[name]),
        )
        refusals.add(f"{name}, {head_dim}", refused)
        for what in ERRORS_OF:
            cells = [f"{errors[peer, what]:.2e}" if (peer, what) in errors else "–" for peer in peers]
            lines.append(line(f"{name}, {head_dim}, {what}", cells))
        yield Part(lines + refusals.lines(), lines[-4], done, len(combinations) + 1)
    seconds, refused = attempt(functools.partial(cases.measure_aim, peers, device, DTYPES["bf16"]))
    refusals.add("the case that has an aim", refused)
    _, heads, length, head_dim = cases.AIM_SHAPE
    times = [f"{peer} {seconds[peer, 'both'] * 1e3:.2f} ms" for peer in peers if (peer, "both") in seconds]
    aim = (
        f"{heads} heads × dim {head_dim} × {length:,}, causal, batch 1, bf16, forward and backward, median of "
        f"{cases.AIM_ROUNDS}: {', '.join(times) or '–'}; the aim is {AIM_MS} ms."
    )
    yield Part([*lines, *refusals.lines(), "", aim], aim, len(combinations) + 1, len(combinations) + 1)


TABLES: dict[str, Callable[[argparse.Namespace, str], Iterator[Part]]] = {
    "lengths": lengths_table,
    "masks": masks_table,
    "decode": decode_table,
    "errors": errors_table,
}
QUICKEST_FIRST = ("errors", "decode", "lengths", "masks")


# The page


def write(name: str, lines: Sequence[str], drawing: str | None) -> None:
    """Put the table into docs/design/performance/lm.md, between the marks, and its plot beside the page."""
    image = PAGE.with_name("lm-attention.svg")
    body = "\n".join(lines)
    if drawing is not None:
        image.write_text(drawing)
    if name == "lengths" and image.exists():
        body += f"\n\n![TFLOP/s over length]({image.name})"
    before, rest = PAGE.read_text().split(BEGIN)
    inside, after = rest.split(END)
    tables = dict(re.findall(r"<!-- table (\w+) -->\n(.*?)\n*(?=<!-- table|\Z)", inside, re.DOTALL)) | {name: body}
    text = "\n\n".join(f"<!-- table {one} -->\n{tables[one]}" for one in TABLES if one in tables)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def device_line(device: str) -> str:
    import triton

    name = torch.cuda.get_device_name() if device == "cuda" else device
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    return f"{name}, {versions}, Triton {triton.__version__}"


def produce(names: Sequence[str], options: argparse.Namespace, device: str, command: str) -> None:
    """Measure tables and print them; with --readme the page has each row once it is measured, in case the machine goes
    away."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    finished = []
    for name in names:
        lines: list[str] = []
        start = time.perf_counter()
        try:
            for part in TABLES[name](options, device):
                stopped = "" if part.done == part.rows else f" ({part.done} of {part.rows} rows: it was stopped)"
                caption = f"**{TITLES[name]}**: {device_line(device)}, {today}, `{command}`{stopped}."
                lines = [caption, "", *part.lines]
                print(name, part.row, flush=True)
                if options.readme:
                    write(name, lines, part.drawing)
        except Exception:
            traceback.print_exc()
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        finished += ["", *lines]
    print("\n".join(finished))


# The command


def compile_ahead(names: Sequence[str], options: argparse.Namespace, device: str) -> None:
    """Compiles kernels in several processes at once; Triton and Inductor keep what they compile in files for all."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # of each process
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path.home() / ".triton/cache"))  # else Inductor takes another one
    jobs: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    bf16 = DTYPES["bf16"]
    if "lengths" in names or "errors" in names:
        ours = {"ours": cases.ours}
        shortest = [case for case in length_cases(options) if case.length == min(options.lengths)]
        jobs += [(measure, (case, ours, device, DTYPES[name], 0)) for name in options.dtypes for case in shortest]
    if "errors" in names:
        errors = itertools.product(options.head_dims, DTYPES.values())
        jobs += [(cases.relative_errors, ({"ours": cases.ours}, head_dim, device, dtype)) for head_dim, dtype in errors]
    if "masks" in names:
        masked = [MaskCase(head_dim, mask) for head_dim in options.head_dims for mask in MASKS]
        jobs += [(cases.measure_mask, (case, ("ours", "FlexAttention"), device, bf16, 0)) for case in masked]
    if "decode" in names:
        jobs += [(cases.compile_decode, (decode_cases()[i::2], device, bf16)) for i in range(2)]
    start = multiprocessing.get_context("spawn")
    running = [start.Process(target=job, args=arguments, daemon=True) for job, arguments in jobs]
    for process in running:
        process.start()
    until = time.perf_counter() + COMPILING
    for process in running:
        process.join(max(0.0, until - time.perf_counter()))
        process.kill()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(QUICKEST_FIRST), choices=list(TABLES))
    parser.add_argument("--lengths", type=int, nargs="+", default=[512 * 2**i for i in range(8)])
    parser.add_argument("--head-dims", type=int, nargs="+", default=[64, 128], help="of all tables but decode")
    parser.add_argument("--masks", nargs="+", default=["causal", "full"], choices=["causal", "full"], help="of lengths")
    parser.add_argument("--dtypes", nargs="+", default=["bf16"], choices=list(DTYPES), help="of lengths")
    parser.add_argument(
        "--peers", nargs="+", default=list(QUICK_PEERS), choices=list(PEERS), help="of lengths and errors"
    )
    parser.add_argument("--rounds", type=int, default=10, help="timings of each, the peers taking turns")
    parser.add_argument("--readme", action="store_true", help="write tables and plot into docs/design/performance")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if not torch.cuda.is_available():
        print("bench_attention: there is no CUDA device here, and nothing else is worth measuring", file=sys.stderr)
        return 2
    if (lacking := kernels.lacking()) is not None:
        print(f"bench_attention: {lacking}", file=sys.stderr)
        return 2
    start = time.perf_counter()
    try:
        compile_ahead(options.tables, options, "cuda")
    except Exception:
        traceback.print_exc()
    print(f"compiled: {time.perf_counter() - start:.0f} s", flush=True)
    words = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(["python", "packages/lm/benchmarks/bench_attention.py", *words])
    produce(options.tables, options, "cuda", command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
