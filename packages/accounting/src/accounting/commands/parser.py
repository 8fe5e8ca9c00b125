"""The `accounting` command: what it takes, and the faces of its answers. A mistake is one sentence and exit code 2."""

from __future__ import annotations

import argparse
import os
import sys

from accounting.commands import answers
from accounting.commands.answer import Answer
from accounting.commands.infer import infer as run_infer
from accounting.counting.flops import PAIRS
from accounting.hardware.devices import DEVICES
from accounting.memory.inference import BITS
from accounting.policy import (
    ALLOCATORS,
    ATTENTION_KERNELS,
    CHECKPOINTINGS,
    LOSSES,
    NORM_KERNELS,
    OPTIMIZER_STEPS,
    OPTIMIZERS,
    PRECISIONS,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

GREATEST = 1e36  # beyond what anybody has of anything, and far below where floating-point numbers end
COUNTS = (
    "context",
    "prompt",
    "output",
    "batch",
    "tokens",
    "batch_tokens",
    "node_size",
    "most",
    "devices",
    "gpus",
    "data_parallel",
    "context_parallel",
    "expert",
    "tensor",
    "pipeline",
    "micro_batches",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0, or 2 after a mistake, which is then explained on stderr."""
    options = parser().parse_args(arguments)
    try:
        check(options)
        print(face(options.run(options), options))
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


def face(answer: Answer, options: argparse.Namespace) -> str:
    """The answer as it was asked for: in words, as JSON, or as comma-separated values."""
    if options.json:
        import json  # here, as below, because only those who ask for it need it

        return json.dumps(answer.records if answer.data is None else answer.data, indent=2, ensure_ascii=False)
    if options.csv:
        import csv
        import io

        page = io.StringIO()
        writer = csv.DictWriter(page, list(answer.records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(answer.records)
        return page.getvalue().removesuffix("\n")
    return answer.text


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
    if memory is not None and not 1 / answers.GB <= memory < float("inf"):
        raise ValueError(f"--memory must be a number of GB, at least a byte, and {memory:g} is not")


def parser() -> argparse.ArgumentParser:
    """Everything the command takes."""
    top = Parser(prog="accounting", description="Exact budgets of Transformers.")
    commands = top.add_subparsers(dest="command", required=True)

    one = commands.add_parser("report", help="everything about a shape")
    one.add_argument("shape", help="a name, a config.json, or an lm run")
    _sizes(one)
    _memory(one)
    _layout(one, "forward passes of a step, that share the batch")
    style = _faces(one, "every formula, and again with its numbers", gib=True)
    style.add_argument("--html", metavar="FILE", help="as a page of its own, with charts")
    one.add_argument("--device", help="whose largest batch to say beside those of common cards, and to draw on a page")
    one.set_defaults(run=answers.report)

    two = commands.add_parser("compare", help="two shapes, difference by difference")
    two.add_argument("first")
    two.add_argument("second")
    _sizes(two)
    _memory(two)
    _faces(two, "the formulas of both", gib=True)
    two.set_defaults(run=answers.compare)

    fit = commands.add_parser("fit", help="the largest batch, context, depth and width that train in a device's memory")
    fit.add_argument("shape")
    where = fit.add_mutually_exclusive_group(required=True)
    where.add_argument("--device", help=f"one of {', '.join(DEVICES)}")
    where.add_argument("--memory", type=_number, metavar="GB", help="memory in GB of 10^9 bytes")
    _sizes(fit, counting=False)
    _memory(fit)
    _layout(fit, "forward passes of a step; --batch is the sequences of one")
    _faces(fit, "the peak of each answer, and of one more")
    fit.set_defaults(run=answers.fit)

    time = commands.add_parser("time", help="hours and money of a training run, or the tokens that hours are good for")
    time.add_argument("shape")
    much = time.add_mutually_exclusive_group(required=True)
    much.add_argument("--tokens", type=_whole, help="tokens to train on, such as 10e9")
    much.add_argument("--hours", type=_number, help="wall-clock hours: gives the tokens instead")
    which = time.add_mutually_exclusive_group(required=True)
    which.add_argument("--device", help=f"one of {', '.join(DEVICES)}")
    which.add_argument("--measure", action="store_true", help="this machine, timed now: takes torch or numpy")
    which.add_argument("--measured", type=_number, metavar="FLOP/S", help="a machine of which you measured this rate")
    speed = time.add_mutually_exclusive_group(required=True)
    speed.add_argument("--mfu", type=_number, help="part of the peak reached, such as 0.4")
    speed.add_argument("--tokens-per-second", type=_number, help="measured, of all devices together: gives the MFU")
    time.add_argument("--devices", type=_whole, default=1)
    time.add_argument("--dtype", default=None, help="whose peak: bf16 unless given, fp32 for a measured machine")
    time.add_argument("--batch", type=_whole, help="sequences of an optimizer step: gives the steps of the schedule")
    time.add_argument("--price", type=_number, help="money for one device and hour")
    time.add_argument("--context", type=_whole, help="positions of a sequence")
    time.add_argument("--pairs", choices=PAIRS, default="full", help="pairs of positions counted")
    _faces(time, "how each figure follows from the others")
    time.set_defaults(run=answers.time)

    _plan(commands.add_parser("plan", help="the layouts of a cluster that a training run fits on, fastest first"))

    line = commands.add_parser(
        "peak", help="peak = a · batch + b of some shapes, and the largest batch in common cards"
    )
    line.add_argument("shapes", nargs="+")
    line.add_argument("--context", type=_whole, help="positions of a sequence, all that each shape has unless given")
    _memory(line)
    _faces(line, "the formula of the phase that is the peak, at the batch it is exact from")
    line.set_defaults(run=answers.peak)

    infer = commands.add_parser("infer", help="memory, prefill and decoding of a model that generates, by a roofline")
    infer.add_argument("shape")
    where = infer.add_mutually_exclusive_group(required=True)
    where.add_argument("--device", help=f"one of {', '.join(DEVICES)}")
    where.add_argument("--measure", action="store_true", help="this machine, timed now: takes torch or numpy")
    infer.add_argument("--cache", choices=tuple(BITS), default="bf16", help="the numbers of the keys and values")
    infer.add_argument(
        "--prompt", type=_whole, help="positions of the prompt, what the new tokens leave of the context"
    )
    infer.add_argument("--output", type=_whole, help="new tokens of each sequence, 256 or half of the context")
    infer.add_argument("--batch", type=_whole, default=1, help="sequences")
    infer.add_argument("--devices", type=_whole, default=1, help="that share every layer (tensor parallelism)")
    infer.add_argument("--price", type=_number, help="money for one device and hour: gives that of a million tokens")
    infer.add_argument("--operators", action="store_true", help="the last decoding step operator by operator, in bf16")
    _faces(infer, "what each figure is made of")
    infer.set_defaults(run=run_infer)

    best = commands.add_parser("optimal", help="parameters and tokens that compute is best spent on, by every law")
    best.add_argument("--compute", type=_number, help="training FLOPs, such as 5.76e23")
    best.add_argument("--parameters", type=_number, help="or the parameters of a model")
    _faces(best, "each law, with its numbers and its paper")
    best.set_defaults(run=answers.optimal)

    table = commands.add_parser(
        "devices", help="the devices that are known: peaks, memory, bandwidth, and their sources"
    )
    table.add_argument("names", nargs="*", help="these alone")
    _faces(table)
    table.set_defaults(run=answers.devices)
    return top


def _plan(to: argparse.ArgumentParser) -> None:
    to.add_argument("shape")
    to.add_argument("--devices", dest="cluster", required=True, metavar="NxDEVICE", help="such as 64xh100")
    to.add_argument("--tokens", type=_whole, required=True, help="tokens to train on, such as 1T or 1e12")
    to.add_argument("--batch-tokens", type=_whole, help="tokens of an optimizer step, 4,194,304 unless given")
    to.add_argument("--context", type=_whole, help="positions of a sequence, all that the shape has unless given")
    to.add_argument(
        "--efficiency", type=_number, help="of the peak that matrix multiplications reach, 0.6 unless given"
    )
    to.add_argument("--price", type=_number, help="money for one device and hour")
    to.add_argument("--memory", type=_number, metavar="GB", help="of a device, to be used: all but 2 GB unless given")
    to.add_argument("--node-size", type=_whole, help="devices that the fast link joins")
    to.add_argument("--link", type=_number, metavar="GB/S", help="that a device sends inside its node")
    to.add_argument("--network", type=_number, metavar="GB/S", help="that a device sends to other nodes")
    to.add_argument("--most", type=_whole, default=10, help="layouts to show")
    to.add_argument("--precision", choices=tuple(PRECISIONS), default="bf16")
    to.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    to.add_argument("--attention-kernel", choices=ATTENTION_KERNELS, default="fused")
    to.add_argument("--loss", choices=LOSSES, default="plain")
    _faces(to, "where the seconds of a step go, and what is sent")
    to.set_defaults(run=_answer_plan)


def _answer_plan(options: argparse.Namespace) -> Answer:
    from accounting.commands import plan  # here, because nothing else needs it

    return plan.answer(options)


def _sizes(to: argparse.ArgumentParser, *, counting: bool = True) -> None:
    to.add_argument("--context", type=_whole, help="positions of a sequence, all that the shape has unless given")
    to.add_argument("--batch", type=_whole, default=1, help="sequences")
    if counting:
        to.add_argument("--pairs", choices=PAIRS, default="full", help="pairs of positions counted as FLOPs")


def _memory(to: argparse.ArgumentParser) -> None:
    to.add_argument("--precision", choices=tuple(PRECISIONS), default="fp32")
    to.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    to.add_argument(
        "--optimizer-step", choices=OPTIMIZER_STEPS, default="fused", help="how the optimizer goes over the parameters"
    )
    to.add_argument(
        "--attention-kernel", choices=ATTENTION_KERNELS, default="fused", help="fused saves no seq² weights"
    )
    to.add_argument("--norm-kernel", choices=NORM_KERNELS, default="fused", help="what an RMSNorm saves")
    to.add_argument("--activation-checkpointing", choices=CHECKPOINTINGS, default="none")
    to.add_argument("--loss", choices=LOSSES, default="plain")
    to.add_argument("--allocator", choices=ALLOCATORS, default="exact", help="cuda: with what rounding to blocks adds")
    to.add_argument("--gradient-accumulation", action="store_true", help="gradients of earlier micro-batches are there")


def _layout(to: argparse.ArgumentParser, passes: str) -> None:
    to.add_argument(
        "--gpus", type=_whole, help="devices in all: data × context × tensor × pipeline; checked, or gives data"
    )
    to.add_argument("--data-parallel", type=_whole, help="replicas of the model, each with its own sequences")
    to.add_argument("--context-parallel", type=_whole, default=1, help="devices that share each sequence")
    to.add_argument("--expert", type=_whole, default=1, help="devices, of data × context, that share the experts")
    to.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=0, help="what data × context shard, 0 for DDP")
    to.add_argument("--tensor", type=_whole, default=1, help="devices that share each layer")
    to.add_argument("--sequence-parallel", action="store_true", help="share positions between products as well")
    to.add_argument("--pipeline", type=_whole, default=1, help="stages that share the layers")
    to.add_argument("--micro-batches", type=_whole, default=1, help=passes)


def _faces(to: argparse.ArgumentParser, explain: str = "", *, gib: bool = False) -> Any:
    """In words, with formulas where `explain` says of what, or for a program; the group that excludes one another."""
    if explain:
        to.add_argument("--explain", action="store_true", help=explain)
    style = to.add_mutually_exclusive_group()
    style.add_argument("--json", action="store_true", help="as JSON, values exact")
    style.add_argument("--csv", action="store_true", help="as comma-separated values, exact")
    if gib:
        style.add_argument("--gib", action="store_true", help="bytes in GiB (2^30) instead of GB (10^9)")
    return style


def _number(words: str) -> float:
    try:
        value = float(_digits(words))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words!r} is not a number") from None
    if GREATEST < abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"{words!r} is beyond ±1e36, where nothing is counted")
    return value


def _digits(words: str) -> str:
    """1,000 and 1_000 as 1000; 1k, 1M, 1B and 1T as 1e3, 1e6, 1e9 and 1e12."""
    plain = words.replace(",", "").replace("_", "")
    power = {"k": 3, "m": 6, "b": 9, "t": 12}.get(plain[-1:].lower())
    return plain if power is None or "e" in plain.lower() else f"{plain[:-1]}e{power}"


def _whole(words: str) -> int:
    """Exact, where a floating-point number is not: 9007199254740993, and 1e23 too."""
    from decimal import Decimal  # here, because only those who give a number need it

    if not abs(_number(words)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{words!r} is not a whole number")
    value = Decimal(_digits(words))
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{words!r} is not a whole number")
    return int(value)
