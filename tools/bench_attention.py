"""lm's attention kernel beside its peers on a CUDA device, taking turns: TFLOP/s forward, backward and both.

    python tools/bench_attention.py                           head dims 64 and 128, lengths 1k to 64k, causal and full
    python tools/bench_attention.py --lengths 4096 --head-dims 64 --rounds 20 --tune
    python tools/bench_attention.py --readme                  the table and the plot into packages/lm

Each case has 16,384 positions in all and 2,048 numbers each: a batch of shorter texts, or one text longer than that.
FLOPs are those of the exact mask, 4 · head_dim a visible pair forward and 10 backward (the scores once more among
them, however often they are computed): the same for all. A peer that cannot do a case, or has no memory for it, has a
dash, and why is said below the table.
"""

from __future__ import annotations

import argparse
import functools
import io
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lm.ops import triton as kernels

PAGE = Path(__file__).parent.parent / "docs/design/performance/lm.md"
BEGIN, END = "<!-- bench-attention: begin -->", "<!-- bench-attention: end -->"
POSITIONS, NUMBERS = 16384, 2048
WAYS = ("forward", "backward", "both")
Attend = Callable[[Tensor, Tensor, Tensor, bool], Tensor]


class Case(NamedTuple):
    head_dim: int
    causal: bool
    length: int

    def tensors(self, device: str, dtype: torch.dtype) -> list[Tensor]:
        """q, k, v and the gradient of the output: (batch, heads, length, head_dim)."""
        shape = (max(1, POSITIONS // self.length), NUMBERS // self.head_dim, self.length, self.head_dim)
        made = torch.Generator(device=device).manual_seed(0)
        return [torch.randn(shape, device=device, dtype=dtype, generator=made) for _ in range(4)]

    def flops(self, way: str) -> int:
        """Of all heads and texts of the case."""
        texts, heads = max(1, POSITIONS // self.length), NUMBERS // self.head_dim
        pairs = self.length * (self.length + 1) // 2 if self.causal else self.length**2
        return {"forward": 4, "backward": 10, "both": 14}[way] * self.head_dim * texts * heads * pairs


def ours(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    from lm.ops.triton.flash import flash_attention

    return flash_attention(q, k, v, causal=causal)  # type: ignore[return-value]


def sdpa(kernel: SDPBackend, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    with sdpa_kernel([kernel]):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


@functools.cache
def flex_parts() -> tuple[Callable[..., Tensor], Callable[..., object]]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    return torch.compile(flex_attention), functools.cache(create_block_mask)


def earlier(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


def flex(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    attend, mask = flex_parts()
    length = q.shape[2]
    return attend(
        q, k, v, block_mask=mask(earlier, None, None, length, length, device=q.device.type) if causal else None
    )


def definition(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """The definition, whose score matrix is held."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        place = torch.arange(q.shape[2], device=q.device)
        scores = scores.masked_fill(place > place[:, None], -math.inf)
    return scores.softmax(-1) @ v


@functools.cache
def compiled_definition() -> Attend:
    return torch.compile(definition)


def compiled(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return compiled_definition()(q, k, v, causal)


PEERS: dict[str, Attend] = {
    "ours": ours,
    "SDPA flash": functools.partial(sdpa, SDPBackend.FLASH_ATTENTION),
    "SDPA cuDNN": functools.partial(sdpa, SDPBackend.CUDNN_ATTENTION),
    "FlexAttention": flex,
    "compiled reference": compiled,
}


def clock(call: Callable[[], object], device: str) -> float:
    """Seconds of one call."""
    if device == "cpu":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def measure(
    case: Case, peers: dict[str, Attend], device: str, dtype: torch.dtype, rounds: int
) -> tuple[dict[tuple[str, str], float], dict[str, str]]:
    """Median seconds of (peer, way), the peers taking turns; and why a peer is not among them."""
    q, k, v, upstream = case.tensors(device, dtype)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    refused = {}
    for name, attend in peers.items():
        forward = functools.partial(attend, q, k, v, case.causal)
        try:
            out = forward()
            backward = functools.partial(torch.autograd.grad, out, leaves, upstream, retain_graph=True)
            backward()
        except Exception as refusal:  # no memory, no such kernel: each peer has names of its own for these
            refused[name] = (str(refusal) or repr(refusal)).splitlines()[0]
            continue
        calls[name, "forward"] = torch.no_grad()(forward)
        calls[name, "backward"] = backward
        calls[name, "both"] = lambda forward=forward: torch.autograd.grad(forward(), leaves, upstream)
    times: dict[tuple[str, str], list[float]] = {which: [] for which in calls}
    for _ in range(rounds + 2):
        for which, call in calls.items():
            times[which].append(clock(call, device))
    return {which: statistics.median(seconds[2:]) for which, seconds in times.items()}, refused


Results = dict[Case, dict[tuple[str, str], float]]


def table(results: Results, names: Sequence[str], way: str) -> list[str]:
    """TFLOP/s, a row for each case."""
    lines = [f"| {way}: head dim, mask, length | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for case, seconds in results.items():
        cells = [
            f"{case.flops(way) / seconds[name, way] / 1e12:.0f}" if (name, way) in seconds else "–" for name in names
        ]
        mask = "causal" if case.causal else "full"
        lines.append(f"| {case.head_dim}, {mask}, {case.length:,} | " + " | ".join(cells) + " |")
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


def write(lines: Sequence[str], drawing: str) -> None:
    """Put the table into docs/design/performance/lm.md, between the marks, and the plot beside it."""
    image = PAGE.with_name("lm-attention.svg")
    image.write_text(drawing)
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    body = "\n".join(lines)
    PAGE.write_text(f"{before}{BEGIN}\n{body}\n\n![TFLOP/s over length]({image.name})\n{END}{after}")


def tune(cases: Sequence[Case], device: str, dtype: torch.dtype) -> None:
    """Measures the candidate tiles of every kernel on every case, and keeps the choices for later processes."""
    from lm.ops.triton import backward, forward, tile_sizes
    from lm.ops.triton.problem import Problem

    for case in cases:
        q, k, v, grad = case.tensors(device, dtype)
        problem = Problem(q, k, v, None, case.causal, 1 / math.sqrt(case.head_dim), None)
        out, lse = forward.forward(problem)
        delta = backward.row_deltas(problem, out, grad, None)
        tile_sizes.tune("forward", problem, functools.partial(forward.gather_values, problem, out, lse))
        tile_sizes.tune("keys", problem, functools.partial(backward.key_gradients, problem, grad, lse, delta))
        tile_sizes.tune("queries", problem, functools.partial(backward.query_gradients, problem, grad, lse, delta))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024 * 2**i for i in range(7)])
    parser.add_argument("--head-dims", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--masks", nargs="+", default=["causal", "full"], choices=["causal", "full"])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--rounds", type=int, default=10, help="timings of each, the peers taking turns")
    parser.add_argument(
        "--tune", action="store_true", help="measure the kernel's candidate tiles first, and keep the best"
    )
    parser.add_argument("--readme", action="store_true", help="write table and plot into docs/design/performance")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("bench_attention: there is no CUDA device here, and nothing else is worth measuring", file=sys.stderr)
        return 2
    if (lacking := kernels.lacking()) is not None:
        print(f"bench_attention: {lacking}", file=sys.stderr)
        return 2
    import triton

    device, dtype = "cuda", torch.bfloat16
    cases = [
        Case(head_dim, mask == "causal", length)
        for head_dim in options.head_dims
        for mask in options.masks
        for length in options.lengths
    ]
    if options.tune:
        tune(cases, device, dtype)
    caption = (
        f"TFLOP/s in bf16 on {torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"cuDNN {torch.backends.cudnn.version()}, Triton {triton.__version__}"
    )
    command = f"python tools/bench_attention.py{' --tune' * options.tune} --readme"
    results: Results = {}
    refusals: dict[str, None] = {}
    lines: list[str] = []
    for done, case in enumerate(cases, 1):
        torch.cuda.empty_cache()
        results[case], refused = measure(
            case, {name: PEERS[name] for name in options.peers}, device, dtype, options.rounds
        )
        refusals |= dict.fromkeys(f"{name}, {case.head_dim}, {case.length:,}: {why}" for name, why in refused.items())
        print(*table({case: results[case]}, options.peers, "both")[2:], flush=True)
        part = "" if done == len(cases) else f" ({done} of {len(cases)} cases: it was stopped)"
        lines = [f"{caption}: `{command}`{part}."]
        for way in WAYS:
            lines += ["", *table(results, options.peers, way)]
        lines += [""] * bool(refusals) + [f"- {refusal}" for refusal in refusals]
        if options.readme:  # after each case, so that a machine that goes away leaves what was measured
            write(lines, plot(results, options.peers, caption))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
