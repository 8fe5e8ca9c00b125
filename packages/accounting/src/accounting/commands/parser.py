"""The `accounting` command: what it takes, and the forms of its answers. A mistake is one sentence and exit code 2."""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from accounting.commands.options import SHAPE_OPTIONS
from accounting.commands.tables import Answer
from accounting.counting.flops import PAIRS
from accounting.policy import SETTINGS, STACKS
from accounting.shape import ADAPTED

GREATEST = 1e36  # beyond what anybody has of anything, and far below where floating-point numbers end
HELP = {  # of settings of Policy
    "optimizer_step": "how the optimizer goes over the parameters",
    "attention_kernel": "fused saves no seq² weights",
    "norm_kernel": "what an RMSNorm saves",
    "gate_kernel": "what a gated layer saves",
    "loss_kernel": "what holds a chunk of logits",
    "allocator": "cuda: with what rounding to blocks adds; reserved: with cached logits",
    "gradient_dtype": "fp32: all gradients added up in fp32 buffers",
    "moment_dtype": "of AdamW and SGD",
    "offload": "what the host's memory holds",
    "frozen_dtype": "of matrices beside adapters",
    "model_code": "whose code the saved tensors follow",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0, 2 after a mistake, which is then explained on stderr, or 130 after Ctrl-C."""
    is_program = arguments is None
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = parser(arguments[0] if arguments else "").parse_args(arguments)
        check(options)
        print(formatted(options.run(options), options))
        sys.stdout.flush()
    except BrokenPipeError:  # leave nothing that fails again when Python closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        if is_program:  # which ends: a Ctrl-C more would print a traceback
            import signal

            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return 130  # what a shell reports of a process that Ctrl-C ended
    except (KeyError, OSError, ValueError) as error:
        message = error.args[0] if isinstance(error, KeyError) else error
        if isinstance(error, OSError) and error.strerror is not None:
            message = f"{error.filename or 'standard output'}: {error.strerror}"
        print(f"accounting: {message}", file=sys.stderr)
        return 2
    return 0


def formatted(answer: Answer, options: argparse.Namespace) -> str:
    """The answer as text, as JSON, or as comma-separated values."""
    if options.json:
        import json

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
    """A parser whose errors are one sentence, which names a misspelled option first, and where to read on."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        names = self._option_string_actions
        if self._subparsers is None:
            for word in itertools.takewhile(lambda word: word != "--", args or ()):
                name = word.partition("=")[0]
                if re.fullmatch(r"--[a-z][a-z0-9_-]*", name) and not any(option.startswith(name) for option in names):
                    import difflib  # only a mistake needs it

                    near = difflib.get_close_matches(name, names, 1, cutoff=0.7)
                    self.error(f"there is no option {name}" + (f": did you mean {near[0]}?" if near else ""))
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}: see {self.prog} --help\n")


def check(options: argparse.Namespace) -> None:
    """ValueError for a number that is too small, by the name that it was given under."""
    for name, value in vars(options).items():
        if type(value) is int and value < 1 and name not in ("page", "zero"):
            raise ValueError(f"{_flag(name)} must be at least 1, and {value:,} is not")
    memory = getattr(options, "memory", None)
    if memory is not None and not 1e-9 <= memory < float("inf"):
        raise ValueError(f"--memory must be a number of GB, at least a byte, and {memory:g} is not")


def parser(command: str) -> argparse.ArgumentParser:
    """The parser of this command, or of the names of all where it is none of them: others' options would take time."""
    top = Parser(prog="accounting", description="Exact budgets of Transformers.")
    commands = top.add_subparsers(dest="command", required=True, prog="accounting")
    rows = (
        ("report", _report, "everything about a shape, or tables of several shapes beside each other"),
        ("compare", _compare, "two shapes, difference by difference"),
        ("fit", _fit, "the largest batch, context, depth and width that train in a device's memory"),
        ("time", _time, "hours and money of a training run"),
        ("plan", _plan, "the layouts of a cluster that a training run fits on, fastest first"),
        ("diagnose", _diagnose, "a measured step beside its prediction, and what is most likely wrong with it"),
        ("infer", _infer, "memory, prefill and decoding of a model that generates, by a roofline"),
        ("optimal", _optimal, "parameters and tokens that compute is best spent on, by every law"),
        ("devices", _devices, "the devices that are known: peaks, memory, bandwidth, and their sources"),
        ("check", _check, "the tensors of a folder of safetensors files beside the count of its config.json"),
        ("page", _page, "a file that answers such questions in a browser, with the question in its link"),
    )
    own = [row for row in rows if row[0] == command]
    for name, add_options, words in own or rows:
        to = commands.add_parser(name, help=words)
        if own:
            add_options(to)
            module = importlib.import_module(f"accounting.commands.{name}")
            to.set_defaults(run=getattr(module, name))
    return top


def _report(to: argparse.ArgumentParser) -> None:
    _shape(to, several=True)
    _sizes(to)
    _memory(to)
    _layout(to, "forward passes of a step, that share the batch")
    from accounting.commands.report import TABLES

    _formats(to, "every formula, and again with its numbers", gib=True)
    to.add_argument("--only", action="append", metavar="TABLE", help=f"these tables alone: {', '.join(TABLES)}")
    to.add_argument("--device", help="whose largest batch to print beside those of common cards")


def _compare(to: argparse.ArgumentParser) -> None:
    to.add_argument("first")
    to.add_argument("second")
    _sizes(to)
    _memory(to)
    _formats(to, "the formulas of both", gib=True)


def _fit(to: argparse.ArgumentParser) -> None:
    _shape(to)
    where = to.add_mutually_exclusive_group(required=True)
    _device(where)
    where.add_argument("--memory", type=_gigabytes, metavar="GB", help="memory in GB of 10^9 bytes")
    _sizes(to, counting=False)
    _memory(to)
    _layout(to, "forward passes of a step; --batch is the sequences of one")
    _formats(to, "the peak of each answer, and of one more")


def _time(to: argparse.ArgumentParser) -> None:
    _shape(to)
    much = to.add_mutually_exclusive_group(required=True)
    much.add_argument("--tokens", type=_whole, help="tokens to train on, such as 10e9")
    much.add_argument("--steps", type=_whole, help="or optimizer steps, of --batch sequences")
    which = to.add_mutually_exclusive_group(required=True)
    _device(which)
    which.add_argument("--measured", type=_number, metavar="FLOP/S", help="a machine of which you measured this rate")
    speed = to.add_mutually_exclusive_group(required=True)
    speed.add_argument("--mfu", type=_number, help="part of the peak that the model's FLOPs reach, such as 0.4")
    speed.add_argument("--hfu", type=_number, help="part of the peak with what is recomputed: gives the MFU")
    speed.add_argument("--tokens-per-second", type=_number, help="measured, of all devices together: gives the MFU")
    to.add_argument(
        "--activation-checkpointing",
        choices=SETTINGS["activation_checkpointing"],
        default="none",
        help="what is recomputed: gives the HFU",
    )
    to.add_argument("--devices", type=_whole, default=1)
    to.add_argument("--dtype", default=None, help="whose peak: bf16 unless given, fp32 for a measured machine")
    to.add_argument("--batch", type=_whole, help="sequences of an optimizer step: gives the steps of the schedule")
    _energy(to)
    to.add_argument("--context", type=_whole, help="positions of a sequence")
    to.add_argument("--pairs", choices=PAIRS, default="causal", help="pairs of positions counted")
    _formats(to, "how each figure follows from the others")


def _infer(to: argparse.ArgumentParser) -> None:
    from accounting.memory.inference import BITS

    _shape(to)
    _device(to, required=True)
    to.add_argument("--cache", choices=tuple(BITS), default="bf16", help="the numbers of the keys and values")
    to.add_argument("--prompt", type=_whole, help="positions of the prompt, what the new tokens leave of the context")
    to.add_argument("--output", type=_whole, help="new tokens of each sequence, 256 or half of the context")
    to.add_argument("--batch", type=_whole, default=1, help="sequences")
    to.add_argument("--devices", type=_whole, default=1, help="that share every layer (tensor parallelism)")
    to.add_argument("--page", type=_whole, default=0, help="positions of a page of the cache, in every layer alike")
    to.add_argument("--hybrid-pages", action="store_true", help="layers with a window hold the pages that it touches")
    to.add_argument("--engine", choices=("vllm", "none"), default="vllm", help="what takes memory beside the model")
    to.add_argument("--utilization", type=_number, help="part of the memory that it may use, 0.9 unless given")
    to.add_argument("--chunk", type=_whole, help="tokens of a prefill at once: as vLLM has it for the device")
    to.add_argument("--sequences", type=_whole, help="most that decode together: as vLLM has it for the device")
    to.add_argument("--overhead", type=_gigabytes, metavar="GB", help="that driver and libraries take")
    to.add_argument("--first-token", type=_number, metavar="SECONDS", help="limit: gives the requests at once")
    to.add_argument("--each-token", type=_number, metavar="SECONDS", help="limit of each further token")
    to.add_argument("--price", type=_number, help="money for one device and hour: gives that of a million tokens")
    _formats(to, "what each figure is made of")


def _optimal(to: argparse.ArgumentParser) -> None:
    to.add_argument("--compute", type=_number, help="training FLOPs, such as 5.76e23")
    to.add_argument("--parameters", type=_number, help="or the parameters of a model")
    _formats(to, "each law, with its numbers and its paper")


def _devices(to: argparse.ArgumentParser) -> None:
    to.add_argument("names", nargs="*", help="these alone")
    _formats(to)


def _check(to: argparse.ArgumentParser) -> None:
    to.add_argument("folder", help="with config.json and safetensors files, of which the headers alone are read")
    _formats(to)


def _page(to: argparse.ArgumentParser) -> None:
    to.add_argument("--out", default="accounting.html", metavar="FILE", help="where to write it: %(default)s")
    _formats(to)


def _plan(to: argparse.ArgumentParser) -> None:
    _shape(to)
    to.add_argument("--devices", dest="cluster", required=True, metavar="NxDEVICE", help="such as 64xh100")
    to.add_argument("--tokens", type=_whole, required=True, help="tokens to train on, such as 1T or 1e12")
    to.add_argument("--batch-tokens", type=_whole, help="tokens of an optimizer step, 4,194,304 unless given")
    to.add_argument("--context", type=_whole, help="positions of a sequence, all that the shape has unless given")
    _energy(to)
    to.add_argument("--memory", type=_gigabytes, metavar="GB", help="of a device, to be used: all unless given")
    _cluster(to)
    _settings(to, "optimizer")
    _overhead(to)
    to.add_argument("--most", type=_whole, default=10, help="layouts to show")
    _formats(to, "where the seconds of a step go, and what is sent")


def _diagnose(to: argparse.ArgumentParser) -> None:
    _shape(to)
    _device(to, required=True)
    speed = to.add_mutually_exclusive_group(required=True)
    speed.add_argument("--step-time", type=_number, metavar="SECONDS", help="measured, of an optimizer step")
    speed.add_argument("--tokens-per-second", type=_number, help="or tokens of all devices together")
    speed.add_argument("--mfu", type=_number, help="or the part of the peak that the model's FLOPs reach")
    speed.add_argument("--log", metavar="LINE", help="or a line of the log, with one of them")
    _sizes(to, counting=False)
    _layout(to, "forward passes of a step; --batch is the sequences of one")
    to.add_argument("--virtual-stages", type=_whole, default=1, help="runs of layers on each stage (interleaved)")
    to.add_argument("--kernel", choices=("flash2", "flash3"), help="of attention, the device's fastest unless given")
    _cluster(to)
    _settings(to, "activation_checkpointing", "norm_kernel")
    _formats(to)


def _cluster(to: argparse.ArgumentParser) -> None:
    """The links of the devices, and what the time of a step depends on besides."""
    to.add_argument(
        "--efficiency", type=_number, help="of the peak that matmuls reach; as the device's was measured unless given"
    )
    to.add_argument("--node-size", type=_whole, help="devices that the fast link joins")
    to.add_argument("--link", type=_number, metavar="GB/S", help="that a device sends inside its node")
    to.add_argument("--network", type=_number, metavar="GB/S", help="that a device sends to other nodes")
    to.add_argument("--pairs", choices=PAIRS, default="causal", help="pairs of positions that MFU counts, as time does")
    to.add_argument("--precision", choices=("fp32", "bf16", "pure_bf16", "autocast", "fp8"), default="bf16")
    _settings(to, "attention_kernel", "loss", "gradient_dtype", "moment_dtype")


def _shape(to: argparse.ArgumentParser, *, several: bool = False) -> None:
    words = "a name such as gpt2-xl, a config.json, an lm run, or owner/name on the Hugging Face Hub"
    if several:
        to.add_argument("shapes", nargs="*", metavar="SHAPE", help=words)
    else:
        to.add_argument("shape", nargs="?", metavar="SHAPE", help=words)
    sizes = to.add_argument_group("sizes", "of a shape without a name, or other than those of the one that is named")
    for option, _, what in SHAPE_OPTIONS:
        sizes.add_argument(_flag(option), type=_whole, help=what)
    sizes.add_argument("--lora-targets", metavar="MATRIX,…", help=f"that have an adapter, of {', '.join(ADAPTED)}")


def _energy(to: argparse.ArgumentParser) -> None:
    to.add_argument("--price", type=_number, help="money for one device and hour")
    to.add_argument("--watts", type=_number, help="of a device with its share of server and cooling: gives the energy")
    to.add_argument(
        "--carbon", type=_number, metavar="GRAMS", help="of carbon dioxide for each kWh: gives that of the run"
    )


def _device(to: argparse._ActionsContainer, *, required: bool = False) -> None:
    to.add_argument("--device", required=required, help="a name that `accounting devices` lists, such as h100")


def _sizes(to: argparse.ArgumentParser, *, counting: bool = True) -> None:
    to.add_argument("--context", type=_whole, help="positions of a sequence, all that the shape has unless given")
    to.add_argument("--batch", type=_whole, default=1, help="sequences")
    if counting:
        to.add_argument("--pairs", choices=PAIRS, default="full", help="pairs of positions counted as FLOPs")


def _settings(to: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        to.add_argument(_flag(name), choices=SETTINGS[name], default=argparse.SUPPRESS, help=HELP.get(name))


def _overhead(to: argparse.ArgumentParser) -> None:
    to.add_argument("--overhead", type=_gigabytes, metavar="GB", help="that driver, context and libraries take besides")


def _memory(to: argparse.ArgumentParser) -> None:
    to.add_argument("--stack", choices=STACKS, help="settings of a program, which others change")
    _settings(to, *SETTINGS)
    _overhead(to)
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


def _formats(to: argparse.ArgumentParser, explain: str = "", *, gib: bool = False) -> None:
    """In words, with formulas where `explain` says of what, or for a program."""
    if explain:
        to.add_argument("--explain", action="store_true", help=explain)
    style = to.add_mutually_exclusive_group()
    style.add_argument("--json", action="store_true", help="as JSON, values exact")
    style.add_argument("--csv", action="store_true", help="as comma-separated values, exact")
    if gib:
        style.add_argument("--gib", action="store_true", help="bytes in GiB (2^30) instead of GB (10^9)")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _number(words: str) -> float:
    try:
        value = float(_digits(words))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words!r} is not a number") from None
    if GREATEST < abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"{words!r} is beyond ±1e36, where nothing is counted")
    return value


def _gigabytes(words: str) -> float:
    """80, or 80GB, 80GiB, 0.1TB and the like, in units of 10^9 bytes."""
    match = re.fullmatch(r"(.+?)\s*([kKMGT]i?B?)", words)
    if match is None:
        return _number(words)
    number, unit = match.groups()
    power = "KMGT".index(unit[0].upper()) + 1
    return _number(number) * (1024.0 if "i" in unit else 1000.0) ** power / 10**9


def _digits(words: str) -> str:
    """1,000 and 1_000 as 1000; 1k, 1M, 1B, 1T; 40% as 0.4. Another comma is a mistake: 2,5 would be 25."""
    if "," in words and not re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?\D?", words):
        raise argparse.ArgumentTypeError(
            f"expected a point before decimals and a comma before each three digits, got {words!r}: write 2.5 or 2,500"
        )
    plain = words.replace(",", "").replace("_", "")
    power = {"%": -2, "k": 3, "m": 6, "b": 9, "t": 12}.get(plain[-1:].lower())
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
