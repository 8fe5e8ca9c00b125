"""`lm serve` beside llama-cpp-python's server: the same weights, the same requests, 1, 8 and 64 clients at once.

python benchmarks/serving.py [--clients 1 8 64] [--rounds 3] [--tokens 64] [--threads 2] [--write PAGE]

A random Llama of 14 million parameters is written as a run and as GGUF in fp32, and each server computes with as many
threads. A client streams completions one after the other. Measured are the time to the first token, the tokens that all
clients received in a second, the longest wait between two tokens of a stream, and the most memory that the server's
process ever had. The servers take turns; what is shown is the median of the rounds. For one client lm.stream writes the
same, in this process, and the first tokens of prompts of 40 characters are measured too. llama.cpp's threads wait for
each other in busy loops: on a machine that others use, compare with --threads 1.

The model writes ASCII alone, so that every token is a piece of text of its own: neither server sends a part of a
character, and llama-cpp-python sends nothing more after a byte that is none.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import platform
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch

import bpe
import lm
from lm.config import to_table
from lm.tokenizer import load_tokenizer
from lm.training import checkpoint

BEGIN, END = "<!-- serving -->", "<!-- end of serving -->"
CONFIG = lm.ModelConfig(4096, 512, 6, 384, 6, 1024)
PATIENCE = 600.0
ALONE = "lm.stream, no server"


@dataclass(frozen=True)
class Measured:
    first: float  # seconds to the first token, the median
    speed: float  # tokens a second, of all clients
    wait: float  # seconds between two tokens, the longest
    memory: float  # MB, the most


@dataclass(frozen=True)
class Running:
    port: int
    process: subprocess.Popen[bytes]

    @property
    def most_memory(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(match[1]) / 1e3 if match else float("nan")


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def write_model(folder: Path) -> tuple[Path, Path, str]:
    """The model as a run and as a .gguf, and a text to take prompts from."""
    text = "".join(path.read_text(errors="replace") for path in sorted(Path(os.__file__).parent.glob("*.py"))[:40])
    tokenizer = bpe.train([text], CONFIG.vocab_size, pattern="gpt2")
    run = folder / "run"
    run.mkdir()
    tokenizer.save(run / "tokenizer.json")
    torch.manual_seed(0)
    model = ascii_alone(lm.Transformer(CONFIG).eval(), tokenizer)
    checkpoint.save(run / "checkpoints", 0, model, None, {})
    (run / "config.toml").write_text(tomli_w.dumps({"model": to_table(CONFIG)}))
    lm.to_gguf(run, folder / "model.gguf", dtype="fp32")
    return run, folder / "model.gguf", text


def ascii_alone(model: lm.Transformer, tokenizer: bpe.Tokenizer) -> lm.Transformer:
    """The model with logits of 0, which are never the largest of thousands, for tokens that are no ASCII text."""
    others = [i for i in range(tokenizer.n_vocab) if not tokenizer.decode_bytes([i]).isascii()]
    others += tokenizer.special_tokens.values()  # one of them would end the text
    with torch.no_grad():
        model.head_weight[others] = 0
    return model


@contextlib.contextmanager
def served(name: str, run: Path, gguf: Path, most: int, threads: int) -> Iterator[Running]:
    port = free_port()
    command = [sys.executable, "-m", "lm", "serve", str(run), "--port", str(port), "--no-access-log"]
    command += ["--rows", str(max(8, most)), "--waiting", str(most)]
    if name != "lm":
        command = [sys.executable, "-m", "llama_cpp.server", "--model", str(gguf), "--port", str(port)]
        command += ["--n_ctx", str(CONFIG.context_length), "--n_threads", str(threads)]
        command += ["--n_threads_batch", str(threads), "--verbose", "false", "--interrupt_requests", "false"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        last = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                connection.request("GET", "/v1/models")
                if connection.getresponse().status == 200:
                    break
            if process.poll() is not None or time.monotonic() > last:
                raise RuntimeError(f"{' '.join(command)} did not begin to serve")
            time.sleep(0.2)
        yield Running(port, process)
    finally:
        process.terminate()
        process.wait()


def ask(port: int, prompt: str, tokens: int) -> tuple[float, list[float]]:
    """Seconds to the first token, and those between tokens."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    began = time.perf_counter()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {answer.read()[:300]!r}")
    at = list[float]()
    for line in answer:
        if line.startswith(b"data: {"):
            now = time.perf_counter()
            if any(choice["text"] for choice in json.loads(line[6:])["choices"]):
                at.append(now)
    connection.close()
    if not 0.9 * tokens <= len(at) <= tokens:  # llama-cpp-python sometimes sends one less
        raise RuntimeError(f"{len(at)} tokens came, and {tokens} were asked for")
    return at[0] - began, [after - before for before, after in itertools.pairwise(at)]


def measure(running: Running, text: str, clients: int, requests: int, tokens: int, seed: int) -> Measured:
    """All clients begin at once; each asks `requests` times."""
    draw = random.Random(seed)
    prompts = [[at(text, draw) for _ in range(requests)] for _ in range(clients)]
    firsts, waits, failures = list[float](), list[float](), list[Exception]()

    def client(mine: list[str]) -> None:
        try:
            for prompt in mine:
                first, between = ask(running.port, prompt, tokens)
                firsts.append(first)
                waits.extend(between)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(mine,)) for mine in prompts]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if failures:
        raise failures[0]
    received = len(firsts) + len(waits)
    return Measured(statistics.median(firsts), received / seconds, max(waits), running.most_memory)


def measure_short(running: Running, text: str, draw: random.Random) -> float:
    """Seconds to the first token of a prompt of 40 characters, which nobody asked before; the median of nine."""
    return statistics.median(ask(running.port, at(text, draw)[:40], 8)[0] for _ in range(9))


def generate(model: lm.Transformer, tokenizer: Any, text: str, requests: int, tokens: int, seed: int) -> Measured:
    """The same as one client asks for, by lm.stream."""
    draw, firsts, waits = random.Random(seed), list[float](), list[float]()
    began = time.perf_counter()
    for prompt in [at(text, draw) for _ in range(requests)]:
        times = [time.perf_counter()]
        stream = lm.stream(model, tokenizer.encode(prompt), max_new_tokens=tokens, temperature=0)
        times.extend(time.perf_counter() for _ in stream)
        firsts.append(times[1] - times[0])
        waits += [after - before for before, after in itertools.pairwise(times[1:])]
    speed = (len(firsts) + len(waits)) / (time.perf_counter() - began)
    return Measured(statistics.median(firsts), speed, max(waits), float("nan"))


def at(text: str, draw: random.Random) -> str:
    """A prompt of some hundred characters."""
    begin = draw.randrange(len(text) - 400)
    return text[begin : begin + draw.randrange(100, 400)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--requests", type=int, default=2, help="of each client")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of each server's computations")
    parser.add_argument("--write", help="a page to write the table into, between its marks")
    options = parser.parse_args()
    names = ["lm", "llama-cpp-python"]
    rows = list[str]()
    busy = os.getloadavg()[0]
    torch.set_num_threads(options.threads)
    short = dict[str, list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        run, gguf, text = write_model(Path(folder))
        model, tokenizer = lm.load(run), load_tokenizer(run / "tokenizer.json")
        for clients in options.clients:
            measured: dict[str, list[Measured]] = {name: [] for name in names + [ALONE] * (clients == 1)}
            for number in range(options.rounds):
                for name in names:
                    with served(name, run, gguf, clients, options.threads) as running:
                        measure(running, text, 1, 1, 8, 1000 + number)  # what is made once, by a prompt of its own
                        settings = (clients, options.requests, options.tokens, number)
                        measured[name].append(measure(running, text, *settings))
                        if clients == 1:
                            of_short = measure_short(running, text, random.Random(2000 + number))
                            short.setdefault(name, []).append(of_short)
                    print(clients, name, measured[name][-1], file=sys.stderr, flush=True)
                if clients == 1:
                    generate(model, tokenizer, text, 1, 8, 1000 + number)
                    measured[ALONE].append(generate(model, tokenizer, text, *settings[1:]))
                    print(clients, ALONE, measured[ALONE][-1], file=sys.stderr, flush=True)
            for name in measured:
                middle = [
                    statistics.median(getattr(one, field) for one in measured[name])
                    for field in ("first", "speed", "wait", "memory")
                ]
                rows.append(
                    f"| {clients} | {name} | {middle[0] * 1e3:,.0f} | {middle[1]:,.0f} | {middle[2] * 1e3:,.0f} | "
                    + ("|" if name == ALONE else f"{middle[3]:,.0f} |")
                )
    lines = [
        "| clients | server | first token, ms | tokens/s | longest wait, ms | memory, MB |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"`nox -s bench -- serving --requests {options.requests} --tokens {options.tokens} --rounds {options.rounds} "
        f"--threads {options.threads}`, "
        f"{time.strftime('%-d %B %Y')}, {processor()}, load {busy:.1f} before; a random Llama "
        f"of {sum(p.numel() for p in lm.Transformer(CONFIG).parameters()) / 1e6:.0f} million parameters in fp32, "
        f"medians of {options.rounds} rounds in turns.",
    ]
    if short:
        by = [f"{statistics.median(seconds) * 1e3:.1f} ms by {name}" for name, seconds in short.items()]
        lines += ["", f"First token of a prompt of 40 characters, one client: {', '.join(by)}."]
    print("\n".join(lines))
    if options.write:
        page = Path(options.write)
        before, rest = page.read_text().split(BEGIN)
        page.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1])


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
