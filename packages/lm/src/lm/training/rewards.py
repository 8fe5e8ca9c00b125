"""Rewards: functions of texts, for objectives that draw answers.

    def brevity(completions, **fields):                       # your own function, by module:function
        return [1 / (1 + len(text)) for text in completions]

A function is called by the names of its parameters, as trl's reward_funcs: `prompts` and `completions`, the texts of
all answers of a micro-batch, the answers to one prompt side by side; `completion_ids`, their tokens; and every other
field of the rows by its name, a list as long. It returns a number for each completion, or None for one that it does not
judge, which counts as 0. `train.reward` names one or several with their weights: "numbers,mine:brevity@0.1".
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

TOKENS = "tokens"  # the reward of an answer equal to the data's, token by token, which needs no text
PROGRAM_SECONDS, PROGRAM_MEMORY, PROGRAM_OUTPUT = 5, 1 << 30, 1 << 24  # limits of a program: time, bytes, bytes

Function = Callable[..., Sequence[float | None]]


class RewardFailed(RuntimeError):
    """A reward raised, took too long or returned no numbers. The run is saved before that step, and can continue."""


class TooSlow(BaseException):  # no Exception, so that a function which catches those does not catch it
    """A reward function has taken longer than its time."""


@dataclass(frozen=True)
class Reward:
    """A function with its name and its weight in the sum."""

    name: str
    weight: float
    function: Function

    def __call__(self, columns: Mapping[str, Sequence[Any]], seconds: int) -> list[float]:
        """Return the reward of each completion, 0 for None. RewardFailed: it raised, was slow, or is no number."""
        completions = columns["completions"]
        about = f"for {len(completions)} completions, the first {str(completions[0])[:80]!r}"
        try:
            with time_limit(seconds):
                values = list(self.function(**self.arguments(columns)))
        except TooSlow:
            remedy = "make it faster, or raise --train.reward_timeout"
            raise RewardFailed(f"the reward {self.name} took more than {seconds} s {about}: {remedy}") from None
        except Exception as error:
            raise RewardFailed(f"the reward {self.name} raised {error!r} {about}") from error
        numbers = [0.0 if value is None else value for value in values]
        if len(numbers) != len(completions):
            raise RewardFailed(f"the reward {self.name} returned {len(numbers)} values {about}: return one for each")
        for number in numbers:
            is_number = False
            with contextlib.suppress(ValueError, TypeError, ArithmeticError, RuntimeError):  # as a tensor of two raises
                is_number = hasattr(number, "__float__") and math.isfinite(float(number))
            if not is_number:
                raise RewardFailed(f"the reward {self.name} returned {number!r} {about}: return finite numbers or None")
        return list(map(float, numbers))

    def arguments(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """The columns that the function has parameters for. TypeError: it needs one that the rows do not have."""
        parameters = inspect.signature(self.function).parameters.values()
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return dict(columns)
        for one in parameters:
            if one.default is one.empty and one.name not in columns:
                raise TypeError(f"it reads {one.name!r}, and the rows of the data have {', '.join(columns)}")
        return {one.name: columns[one.name] for one in parameters if one.name in columns}


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TooSlow in the block after this time, in the main thread of a system that has timers."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def rewards_of(text: str, functions: Mapping[str, Function] | None = None) -> list[Reward]:
    """Return the rewards that train.reward names, each NAME or NAME@WEIGHT, separated by commas.

    A name is one of READY or of `functions`, module:function, or path.py:function. ValueError: there is none.
    """
    rewards = []
    for part in text.split(","):
        name, _, weight = part.strip().partition("@")
        factor = math.nan
        with contextlib.suppress(ValueError):
            factor = float(weight or 1)
        if not math.isfinite(factor):
            raise ValueError(f"expected NAME@WEIGHT with a number as weight, got {part.strip()!r}")
        function = (functions or {}).get(name) or READY.get(name)
        if function is None:
            where, _, attribute = name.rpartition(":")
            if not where:
                raise ValueError(f"expected a reward of {', '.join((TOKENS, *READY))} or module:function, got {name!r}")
            function = attribute_of(where, attribute, f"the reward {name!r}")
        rewards.append(Reward(name, factor, function))
    return rewards


def named(reward: object) -> tuple[str, dict[str, Function]]:
    """Return train.reward, and functions by name, of a text, a function, or a list of these and weights."""
    parts, functions = [], dict[str, Function]()
    for one in reward if isinstance(reward, list | tuple) else [reward]:
        function, weight = one if isinstance(one, tuple) else (one, 1.0)
        name = function
        if callable(function):
            name = f"{function.__module__}:{getattr(function, '__qualname__', type(function).__name__)}"
            name = re.sub("[,@]", "_", name)
            if functions.setdefault(name, function) is not function:
                raise ValueError(f"two rewards are named {name}: give each a name of its own")
        elif not isinstance(function, str):
            raise TypeError(f"expected a reward function or its name, got {function!r}")
        parts.append(f"{name}@{weight:g}" if weight != 1 else str(name))
    return ",".join(parts), functions


def attribute_of(where: str, attribute: str, what: str) -> Any:
    """Import a module, or the file of one (path.py), and return one of its attributes. ValueError: it has none."""
    folder = str(Path(where).resolve().parent) if where.endswith(".py") else os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)  # so that a module beside the user is imported as by `python -m`
    try:
        module = importlib.import_module(Path(where).stem if where.endswith(".py") else where)
    except ImportError as error:
        raise ValueError(f"{what} cannot be imported: {error}") from None
    if where.endswith(".py") and Path(vars(module).get("__file__") or "").resolve() != Path(where).resolve():
        raise ValueError(f"{what} cannot be imported beside {module}: rename its file")
    if not callable(value := getattr(module, attribute, None)):
        raise ValueError(f"{what} is not there: {where} has nothing to call that is named {attribute!r}")
    return value


def equality(completions: Sequence[str], answer: Sequence[Any]) -> list[float]:
    """1 for a completion equal to the field `answer`, white space at their ends aside; else 0."""
    return [float(text.strip() == str(right).strip()) for text, right in zip(completions, answer, strict=True)]


def numbers(completions: Sequence[str], answer: Sequence[Any]) -> list[float]:
    """1 for a completion whose number is that of the field `answer`, as GSM8K compares them; else 0.

    It is the first after the last "####", or else the last of the text. Commas and a final .0 do not count.
    """
    pairs = zip(map(number_of, completions), (number_of(str(right)) for right in answer), strict=True)
    return [float(number is not None and number == right) for number, right in pairs]


def number_of(text: str) -> Fraction | None:
    """Return the number of an answer, as numbers() reads it; None if there is none."""
    _, mark, end = text.rpartition("####")
    every = re.findall(r"(?<![\d)])-?\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+)", end)
    text = re.sub(r"[$,]", "", every[0 if mark else -1]) if every else ""
    return Fraction(text) if 0 < len(text) < 1000 else None  # Python reads no number of thousands of digits


def regex(completions: Sequence[str], pattern: Sequence[str]) -> list[float]:
    """1 for a completion that the regular expression of the field `pattern` matches somewhere; else 0."""
    return [float(re.search(one, text) is not None) for text, one in zip(completions, pattern, strict=True)]


# A line printed after the tests proves that they were reached. It runs in the temporary folder of the program.
HARNESS = """
import sys
try:
    import resource
    for name, most in (("RLIMIT_CPU", {seconds}), ("RLIMIT_AS", {memory}), ("RLIMIT_FSIZE", {output})):
        resource.setrlimit(getattr(resource, name), (most, most))
except ImportError:
    pass
secret, scope = sys.stdin.read(), {{"__name__": "__main__"}}  # before a program that prints what it reads
for name in ("program.py", "tests.py"):
    exec(compile(open(name, encoding="utf-8").read(), name, "exec"), scope)
print(secret, file=sys.__stdout__)
"""


def program(completions: Sequence[str], tests: Sequence[str]) -> list[float]:
    """1 for a completion whose Python program passes the field `tests`, more Python that runs after it; else 0.

    The program is the last block between ```python and ```, or else the whole completion. It runs in a process and an
    empty folder of its own, with 5 s, 1 GiB of memory and 16 MiB of output. These are limits and not a sandbox: a
    program can reach the network and the user's files.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [float(passed) for passed in pool.map(passes, completions, tests)]


def passes(completion: str, tests: str) -> bool:
    """True if the program of a completion reaches the end of the tests."""
    blocks = re.findall(r"```(?:python|py)?[^\S\n]*\n(.*?)```", completion, re.DOTALL)
    secret = secrets.token_hex()
    harness = HARNESS.format(seconds=PROGRAM_SECONDS, memory=PROGRAM_MEMORY, output=PROGRAM_OUTPUT)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        for name, text in (("program.py", blocks[-1] if blocks else completion), ("tests.py", tests)):
            (Path(folder) / name).write_text(text, encoding="utf-8", errors="replace")
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": output, "stderr": subprocess.DEVNULL}
        command = [sys.executable, "-I", "-c", harness]
        process = subprocess.Popen(command, cwd=folder, env={}, start_new_session=True, **streams)
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            process.communicate(secret.encode(), timeout=PROGRAM_SECONDS)
        with contextlib.suppress(OSError):  # what the program started too
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        process.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - 200))
        return process.returncode == 0 and output.read().rstrip().endswith(secret.encode())


READY: dict[str, Function] = {"equality": equality, "numbers": numbers, "regex": regex, "program": program}
