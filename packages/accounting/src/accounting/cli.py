"""The `accounting` command: report, compare, fit, peak, time, infer, optimal. A mistake is one sentence and exit code 2."""

from __future__ import annotations

import argparse
import os
import sys

from accounting import report as reports
from accounting.activations import ATTENTIONS, CHECKPOINTINGS, LOSSES, NORM_KERNELS, PRECISIONS
from accounting.allocator import ALLOCATORS
from accounting.flops import ATTENTIONS as COUNTINGS
from accounting.flops import OPTIMIZERS
from accounting.hardware import DEVICES, Device, device, measured_device
from accounting.inference import inference_memory, kv_cache
from accounting.memory import training_memory
from accounting.model_parallel import Layout
from accounting.optimizers import STEPS
from accounting.planning import largest_shape, longest_context, max_batch_size, memory_line
from accounting.reading import find
from accounting.scaling import LAWS, compute_optimal
from accounting.shape import positive
from accounting.time import affordable_tokens, decode_time, prefill_time, training_time
from accounting.units import Bytes, FLOPs, human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

GB = 10**9
COUNTS = ("context", "batch", "tokens", "devices", "world", "tensor", "pipeline", "micro_batches")
STORED = ("fp32", "bf16", "int8", "int4")  # the weights that `infer` compares


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0, or 2 after a mistake, which is then explained on stderr."""
    options = parser().parse_args(arguments)
    try:
        check(options)
        print(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough; leave nothing that fails again when Python closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyError as error:
        print(f"accounting: {error.args[0]}", file=sys.stderr)
        return 2
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        print(f"accounting: {f'{error.filename}: {error.strerror}' if named else error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"accounting: {error}", file=sys.stderr)
        return 2
    return 0


class Parser(argparse.ArgumentParser):
    """One that says a mistake in one sentence, and where to read on, rather than print all that it takes."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}: see {self.prog} --help\n")


def check(options: argparse.Namespace) -> None:
    """ValueError for a number that is too small, by the name that it was given under."""
    for name in COUNTS:
        value = getattr(options, name, None)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, and {value:,} is not")
    memory = getattr(options, "memory", None)
    if memory is not None and not 1 / GB <= memory < float("inf"):
        raise ValueError(f"--memory must be a number of GB, at least a byte, and {memory:g} is not")


def parser() -> argparse.ArgumentParser:
    """Everything the command takes."""
    top = Parser(prog="accounting", description="Exact budgets of Transformers.")
    commands = top.add_subparsers(dest="command", required=True)

    one = commands.add_parser("report", help="everything about a shape")
    one.add_argument("shape", help="a name, a config.json, or an lm run")
    _sizes(one)
    _memory(one)
    _faces(one)
    one.add_argument("--explain", action="store_true", help="every formula, and again with its numbers")
    one.add_argument("--world", type=_whole, default=1, help="devices, or groups of them, that share the work by data")
    one.add_argument("--tensor", type=_whole, default=1, help="devices that share each layer")
    one.add_argument("--pipeline", type=_whole, default=1, help="stages that share the layers")
    one.add_argument("--sequence-parallel", action="store_true", help="share positions between products as well")
    one.add_argument("--micro-batches", type=_whole, default=1, help="forward passes of a step, that share the batch")
    one.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=0, help="what they shard, 0 for DDP")
    style = one.add_mutually_exclusive_group()
    style.add_argument("--json", action="store_true", help="as JSON")
    style.add_argument("--csv", action="store_true", help="as comma-separated values")
    style.add_argument("--html", metavar="FILE", help="as a page of its own, with charts")
    one.add_argument("--device", help="with --html, whose memory is drawn instead of that of common cards")
    one.set_defaults(run=_report)

    two = commands.add_parser("compare", help="two shapes, difference by difference")
    two.add_argument("first")
    two.add_argument("second")
    _sizes(two)
    _memory(two)
    _faces(two)
    two.set_defaults(run=_compare)

    fit = commands.add_parser("fit", help="the largest batch, context, depth and width that train in a device's memory")
    fit.add_argument("shape")
    where = fit.add_mutually_exclusive_group(required=True)
    where.add_argument("--device", help=f"one of {', '.join(DEVICES)}")
    where.add_argument("--memory", type=_number, metavar="GB", help="memory in GB of 10^9 bytes")
    _sizes(fit, counting=False)
    _memory(fit)
    fit.set_defaults(run=_fit)

    time = commands.add_parser("time", help="hours and money of a training run, or the tokens that hours are good for")
    time.add_argument("shape")
    much = time.add_mutually_exclusive_group(required=True)
    much.add_argument("--tokens", type=_whole, help="tokens to train on, such as 10e9")
    much.add_argument("--hours", type=_number, help="wall-clock hours: gives the tokens instead")
    which = time.add_mutually_exclusive_group(required=True)
    which.add_argument("--device", help=f"one of {', '.join(DEVICES)}")
    which.add_argument("--measure", action="store_true", help="this machine, timed now: takes torch or numpy")
    which.add_argument("--measured", type=_number, metavar="FLOP/S", help="a machine of which you measured this rate")
    time.add_argument("--mfu", type=_number, required=True, help="part of the peak reached, such as 0.4")
    time.add_argument("--devices", type=_whole, default=1)
    time.add_argument("--dtype", default=None, help="whose peak: bf16 unless given, fp32 for a measured machine")
    time.add_argument("--batch", type=_whole, help="sequences of an optimizer step: gives the steps of the schedule")
    time.add_argument("--explain", action="store_true", help="how each figure follows from the others")
    time.add_argument("--price", type=_number, help="money for one device and hour")
    time.add_argument("--context", type=_whole, help="positions of a sequence")
    time.add_argument("--attention", choices=COUNTINGS, default="full", help="pairs of positions counted")
    time.set_defaults(run=_time)

    line = commands.add_parser(
        "peak", help="peak = a · batch + b of some shapes, and the largest batch in common cards"
    )
    line.add_argument("shapes", nargs="+")
    line.add_argument("--context", type=_whole, help="positions of a sequence, all that each shape has unless given")
    _memory(line)
    line.set_defaults(run=_peak)

    infer = commands.add_parser("infer", help="memory, prefill and decoding of a model that generates, by a roofline")
    infer.add_argument("shape")
    infer.add_argument("--device", required=True, help=f"one of {', '.join(DEVICES)}")
    infer.add_argument("--context", type=_whole, help="positions in the cache, all that the shape has unless given")
    infer.add_argument("--batch", type=_whole, default=1, help="sequences")
    infer.set_defaults(run=_infer)

    best = commands.add_parser("optimal", help="parameters and tokens that compute is best spent on, by every law")
    best.add_argument("--compute", type=_number, help="training FLOPs, such as 5.76e23")
    best.add_argument("--parameters", type=_number, help="or the parameters of a model")
    best.set_defaults(run=_optimal)
    return top


def _sizes(to: argparse.ArgumentParser, *, counting: bool = True) -> None:
    to.add_argument("--context", type=_whole, help="positions of a sequence, all that the shape has unless given")
    to.add_argument("--batch", type=_whole, default=1, help="sequences")
    if counting:
        to.add_argument("--attention", choices=COUNTINGS, default="full", help="pairs of positions counted as FLOPs")


def _memory(to: argparse.ArgumentParser) -> None:
    to.add_argument("--precision", choices=tuple(PRECISIONS), default="fp32")
    to.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    to.add_argument("--step", choices=STEPS, default="fused", help="how the optimizer goes over the parameters")
    to.add_argument("--kernel", choices=ATTENTIONS, default="fused", help="attention's: fused keeps no T² weights")
    to.add_argument("--norm-kernel", choices=NORM_KERNELS, default="fused", help="what an RMSNorm keeps")
    to.add_argument("--checkpointing", choices=CHECKPOINTINGS, default="none")
    to.add_argument("--loss", choices=LOSSES, default="plain")
    to.add_argument("--allocator", choices=ALLOCATORS, default="exact", help="cuda: with what rounding to blocks adds")
    to.add_argument("--accumulate", action="store_true", help="gradients of earlier micro-batches are there")


def _faces(to: argparse.ArgumentParser) -> None:
    to.add_argument("--gib", action="store_true", help="bytes in GiB (2^30) instead of GB (10^9)")


def _policy(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "precision": options.precision,
        "optimizer": options.optimizer,
        "step": options.step,
        "attention": options.kernel,
        "norm_kernel": options.norm_kernel,
        "checkpointing": options.checkpointing,
        "loss": options.loss,
        "accumulate": options.accumulate,
        "allocator": options.allocator,
    }


def _report(options: argparse.Namespace) -> str:
    shape = find(options.shape)
    sections = reports.report(
        shape,
        options.context,
        options.batch,
        counted=options.attention,
        layout=Layout(
            options.world,
            options.tensor,
            options.pipeline,
            options.zero,
            options.sequence_parallel,
            options.micro_batches,
        ),
        **_policy(options),
    )
    if options.json:
        import json

        return json.dumps(reports.as_json(sections), indent=2, ensure_ascii=False)
    if options.csv:
        return reports.as_csv(sections)
    if options.html:
        from accounting.html import page

        with open(options.html, "w", encoding="utf-8") as file:
            limits = ((options.device, int(device(options.device).memory)),) if options.device else ()
            policy = _policy(options)
            file.write(page(options.shape, shape, sections, options.context, options.batch, limits=limits, **policy))
        return f"wrote {options.html}"
    return reports.text(sections, binary=options.gib, explain=options.explain)


def _compare(options: argparse.Namespace) -> str:
    first, second = (
        reports.report(find(name), options.context, options.batch, counted=options.attention, **_policy(options))
        for name in (options.first, options.second)
    )
    return reports.compare(first, second, (options.first, options.second), binary=options.gib)


def _fit(options: argparse.Namespace) -> str:
    shape, policy = find(options.shape), _policy(options)
    limit = device(options.device).memory if options.device else Bytes(int(options.memory * GB))
    batch = max_batch_size(shape, limit, options.context, **policy)
    length = longest_context(shape, limit, options.batch, **policy)
    deep = largest_shape(shape, limit, options.batch, options.context, vary="layers", **policy)
    wide = largest_shape(shape, limit, options.batch, options.context, vary="width", **policy)
    context = shape.sequence(options.context)
    rows = [
        (
            f"largest batch at context {context:,}",
            f"{batch:,} sequences" if batch else "none: not even one sequence fits",
        ),
        (f"longest context at batch {options.batch:,}", f"{length:,} positions" if length else "none"),
        ("deepest of its kind", f"{deep.num_layers:,} layers" if deep else "none"),
        ("widest of its kind", f"{wide.d_model:,} wide, {wide.num_heads:,} heads" if wide else "none"),
    ]
    return _lines(f"{options.shape} in {human(limit)}, training", rows)


def _time(options: argparse.Namespace) -> str:
    shape = find(options.shape)
    machine, dtype = _machine(options)
    common: dict[str, Any] = {
        "seq_len": options.context,
        "devices": options.devices,
        "dtype": dtype,
        "attention": options.attention,
    }
    tokens = options.tokens
    if tokens is None:
        tokens = int(affordable_tokens(shape, options.hours, machine, options.mfu, **common))
        if not tokens:
            raise ValueError(f"hours {options.hours:g} are not enough for one sequence: give more, or a smaller shape")
    run = training_time(shape, tokens, machine, options.mfu, price=options.price, **common)
    length, flops = shape.sequence(options.context), int(run.flops.total)
    rows = [
        ("tokens", f"{int(run.tokens):,}", f"whole sequences of {length:,}"),
        (
            "model FLOPs",
            human(FLOPs(flops)),
            f"tokens·FLOPs a token = {int(run.tokens):,}·{flops / int(run.tokens):,.0f}",
        ),
        (
            "rate",
            human(run.rate),
            f"devices·peak·MFU = {options.devices:,}·{human(machine.peak(dtype))}·{options.mfu:g}",
        ),
        ("tokens a second", f"{float(run.tokens_per_second):,.0f}", "tokens/wall clock"),
        ("wall clock", human(run.seconds), f"tokens·FLOPs a token/rate = {flops:,}/{float(run.rate):,.0f}"),
        ("device hours", f"{run.device_hours:,.2f}", f"devices·wall clock = {options.devices:,}·{run.hours:,.4f}"),
    ]
    if options.batch is not None:
        steps = int(run.tokens) // (positive("batch", options.batch) * length)
        rows.append(
            ("steps", f"{steps:,}", f"tokens//(batch·context) = {int(run.tokens):,}//({options.batch:,}·{length:,})")
        )
    if run.cost is not None:
        rows.append(("cost", f"{run.cost:,.2f}", f"device hours·price = {run.device_hours:,.4f}·{options.price:g}"))
    page = _lines(f"{options.shape}, training", [(name, value) for name, value, _ in rows]).splitlines()
    if options.explain:
        page = page[:2] + [
            line for row, (_, _, how) in zip(page[2:], rows, strict=True) for line in (row, f"      = {how}")
        ]
    return "\n".join(page) + "\n" + reports.wrapped(run.convention)


def _peak(options: argparse.Namespace) -> str:
    policy = _policy(options)
    head = ["shape", "a, bytes a sequence", "b, bytes", "from batch"]
    table = [(*head, *(f"{limit} GB" for limit in reports.LIMITS))]
    for name in options.shapes:
        shape = find(name)
        line = memory_line(shape, options.context, **policy)
        batches = [max_batch_size(shape, limit * GB, options.context, **policy) for limit in reports.LIMITS]
        cells = [f"{line.slope:,}", f"{line.intercept:,}", f"{line.first:,}", *(f"{batch:,}" for batch in batches)]
        table.append((name, *cells))
    words = training_memory(find(options.shapes[0]), 1, options.context, **policy).convention
    return _columns(table) + "\n" + reports.wrapped(f"peak = a · batch + b; the largest batch in each; {words}")


def _infer(options: argparse.Namespace) -> str:
    shape, machine = find(options.shape), device(options.device)
    context = shape.sequence(options.context)
    table = [("weights", "memory", "fits", "prefill", "bound by", "decoding a step", "bound by", "tokens a second")]
    for weights in STORED:
        memory = inference_memory(shape, options.batch, context, weights=weights).total
        prompt = prefill_time(shape, machine, context, options.batch, weights=weights)
        step = decode_time(shape, machine, context, options.batch, weights=weights)
        rate = options.batch / float(step.seconds)
        fits = "yes" if memory <= machine.memory else "no"
        table.append(
            (
                weights,
                human(memory),
                fits,
                human(prompt.seconds),
                prompt.bound,
                human(step.seconds),
                step.bound,
                f"{rate:,.0f}",
            )
        )
    note = (
        f"{options.batch:,} × {context:,} positions on {machine.name} ({machine.source}); bf16 cache of "
        f"{human(kv_cache(shape, options.batch, context).total)}; a lower bound of time, arithmetic and memory "
        "traffic overlapping perfectly"
    )
    return _columns(table) + "\n" + reports.wrapped(note)


def _columns(table: Sequence[tuple[str, ...]]) -> str:
    """Rows under each other, the first column to the left, the others to the right."""
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    lines = (
        f"{row[0]:<{widths[0]}}" + "".join(f"  {row[at]:>{widths[at]}}" for at in range(1, len(row))) for row in table
    )
    return "\n".join(line.rstrip() for line in lines)


def _machine(options: argparse.Namespace) -> tuple[Device, str]:
    if options.device:
        return device(options.device), options.dtype or "bf16"
    dtype = options.dtype or "fp32"
    if options.measure:
        from accounting.measuring import this_machine

        return this_machine(), dtype
    return measured_device("this machine", options.measured, dtype=dtype), dtype


def _optimal(options: argparse.Namespace) -> str:
    answers = [compute_optimal(options.compute, parameters=options.parameters, law=law) for law in LAWS]
    table = [("law", "FLOPs", "parameters", "tokens", "tokens/parameter", "loss")]
    table += [
        (
            answer.law,
            f"{float(answer.compute):.3g}",
            f"{float(answer.parameters):.3g}",
            f"{float(answer.tokens):.3g}",
            f"{answer.tokens_per_parameter:.1f}",
            "" if answer.loss is None else f"{answer.loss:.3f}",
        )
        for answer in answers
    ]
    return "\n".join([_columns(table)] + [f"warning: {one.warning}" for one in answers if one.warning])


def _lines(title: str, rows: list[tuple[str, str]]) -> str:
    width, right = max(len(name) for name, _ in rows), max(len(value) for _, value in rows)
    return "\n".join([title, "─" * len(title)] + [f"  {name:<{width}}  {value:>{right}}" for name, value in rows])


def _number(words: str) -> float:
    try:
        return float(words.replace(",", "").replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words!r} is not a number") from None


def _whole(words: str) -> int:
    value = _number(words)
    if value != int(value) if abs(value) < float("inf") else True:
        raise argparse.ArgumentTypeError(f"{words!r} is not a whole number")
    return int(value)
