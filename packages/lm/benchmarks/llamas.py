"""Generation on a CPU beside llama.cpp, from one GGUF file: reading a prompt, and the tokens after it.

python benchmarks/llamas.py [--shapes 110m smollm2-360m qwen3-0.6b llama3.2-1b] [--dtypes fp32 bf16 q8_0 q4_k_m]
    [--prompts 128 1024] [--threads 1 2] [--count 32] [--rounds 3]

The weights are random, in published shapes: speed does not depend on them. lm reads the file with dtype "file". Each
program is a process of its own, and they take turns; greedy, one text; the best of the rounds, since other programs
only add to them, and of one thread its CPU time. llama.cpp comes by `pip install llama-cpp-python`. The bound of
decoding is the speed at which as many threads read memory, over the bytes of the file without those of an embedding
that is not the head, and of the keys and values in float32.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

CONTEXT = 2048
SHAPES = {  # vocabulary, layers, width, heads, width of the feed-forward layer, heads of keys, width of a head, qk_norm
    "15m": (32000, 6, 288, 6, 768, 6, 48, False),
    "110m": (32000, 12, 768, 12, 2048, 12, 64, False),
    "smollm2-360m": (49152, 32, 960, 15, 2560, 5, 64, False),
    "qwen3-0.6b": (151936, 28, 1024, 16, 3072, 8, 128, True),
    "llama3.2-1b": (128256, 16, 2048, 32, 8192, 8, 64, False),
}
QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
Measured = tuple[float, float, int]  # seconds of the prompt and the first token, seconds a token after it, memory


def clock_of(threads: int) -> Callable[[], float]:
    """CPU time of one thread, to which other programs add little; the clock of several."""
    return time.process_time if threads == 1 else time.perf_counter


def prompt_of(vocab_size: int, length: int) -> list[int]:
    return [(1 + 7919 * number) % vocab_size for number in range(length)]


def memory() -> int:
    """The bytes that this process has in memory, mapped files with it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def ours(path: str, threads: int, length: int, count: int) -> Iterator[Measured]:
    import torch

    import lm
    from lm.generation.stream import stream

    torch.set_num_threads(threads)
    before = memory()
    clock, model = clock_of(threads), lm.load(path, dtype="file")
    ids = prompt_of(model.config.vocab_size, length)
    while True:
        began = clock()
        text = stream(model, ids, max_new_tokens=count, temperature=0)
        next(text)
        first = clock() - began
        for _ in text:
            pass
        yield first, (clock() - began - first) / (count - 1), memory() - before


def llama_cpp(path: str, threads: int, length: int, count: int) -> Iterator[Measured]:
    import llama_cpp as api
    import numpy as np

    api.llama_log_set(QUIET, ctypes.c_void_p(0))
    api.llama_backend_init()
    before = memory()
    model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
    vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    settings = api.llama_context_default_params()
    settings.n_ctx, settings.n_threads, settings.n_threads_batch = CONTEXT, threads, threads
    running = api.llama_init_from_model(model, settings)
    ids, clock = prompt_of(vocab_size, length), clock_of(threads)

    def read(tokens: list[int]) -> int:
        buffer = (ctypes.c_int32 * len(tokens))(*tokens)  # the batch only points to it
        if api.llama_decode(running, api.llama_batch_get_one(buffer, len(tokens))):
            raise SystemExit("llama.cpp did not read the tokens")
        return int(np.ctypeslib.as_array(api.llama_get_logits_ith(running, -1), (vocab_size,)).argmax())

    while True:
        api.llama_memory_clear(api.llama_get_memory(running), True)
        began = clock()
        token = read(ids)
        first = clock() - began
        for _ in range(count - 1):
            token = read([token])
        yield first, (clock() - began - first) / (count - 1), memory() - before


def bandwidth(threads: int) -> float:
    """Bytes a second that as many threads read from memory."""
    import numpy as np

    numbers, seconds, clock = np.ones((threads, 64 << 20), dtype=np.float32), list[float](), clock_of(threads)
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(9):
            began = clock()
            list(pool.map(np.max, numbers))
            seconds.append(clock() - began)
    return numbers.nbytes / min(seconds)


def serve(make: Callable[..., Iterator[Measured]], arguments: tuple[object, ...], turns: Connection) -> None:
    measured = make(*arguments)
    while turns.recv():
        turns.send(next(measured))


def compare(path: Path, threads: int, length: int, count: int, rounds: int) -> list[list[Measured]]:
    """The rounds of lm and of llama.cpp, in turns; the first, which warms up, is left out."""
    several, pipes = multiprocessing.get_context("spawn"), list[Connection]()
    seen: list[list[Measured]] = [[], []]
    for make in (ours, llama_cpp):
        here, there = several.Pipe()
        several.Process(target=serve, args=(make, (str(path), threads, length, count), there), daemon=True).start()
        pipes.append(here)
    for turn in range(rounds + 1):
        for pipe, results in zip(pipes, seen, strict=True):
            pipe.send(True)
            measured = pipe.recv()
            if turn:
                results.append(measured)
    for pipe in pipes:
        pipe.send(False)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["smollm2-360m", "qwen3-0.6b"])
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16", "q8_0", "q4_k_m"])
    parser.add_argument("--prompts", nargs="+", type=int, default=[128, 1024])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--count", type=int, default=32, help="tokens after the prompt")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    import torch

    from lm import to_gguf
    from lm.config import ModelConfig
    from lm.model import Transformer

    print(
        "| shape, dtype | threads | prompt | lm: prompt, tokens/s | after it | bound | llama.cpp: prompt | after it ",
        end="",
    )
    print("| times llama.cpp | memory / file |\n|---|---:|---:|---:|---:|---:|---:|---:|---|---:|")
    rates = {threads: bandwidth(threads) for threads in options.threads}
    for shape in options.shapes:
        vocab, layers, width, heads, d_ff, kv_heads, head_dim, qk_norm = SHAPES[shape]
        more = {"num_kv_heads": kv_heads, "head_dim": head_dim, "qk_norm": qk_norm, "tied_embeddings": True}
        torch.manual_seed(0)
        model = Transformer(ModelConfig(vocab, CONTEXT, layers, width, heads, d_ff, **more)).eval()
        for dtype in options.dtypes:
            with tempfile.TemporaryDirectory() as folder:
                path = to_gguf(model, Path(folder) / "model.gguf", dtype=dtype)
                size = path.stat().st_size
                for threads in options.threads:
                    for prompt in options.prompts:
                        seen = compare(path, threads, prompt, options.count, options.rounds)
                        own, other = ([min(run[part] for run in runs) for part in range(3)] for runs in seen)
                        cached = 8 * layers * kv_heads * head_dim * (prompt + options.count // 2)
                        row = (
                            f"{shape}, {dtype}",
                            threads,
                            prompt,
                            *(f"{tokens:,.1f}" for tokens in (prompt / own[0], 1 / own[1])),
                            f"{rates[threads] / (size + cached):,.1f}",
                            *(f"{tokens:,.1f}" for tokens in (prompt / other[0], 1 / other[1])),
                            f"{other[0] / own[0]:.2f} · {other[1] / own[1]:.2f}",
                            f"{own[2] / size:.2f}",
                        )
                        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print("\n" + ", ".join(f"{threads} thread(s) read {rate / 1e9:.1f} GB/s" for threads, rate in rates.items()) + ".")


if __name__ == "__main__":
    main()
