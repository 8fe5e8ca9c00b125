"""Generation on a CPU beside llama.cpp, and llama2.c, on the same weights: reading a prompt, and the tokens after it.

python benchmarks/llamas.py [--model FOLDER | --shape 15m|110m] [--prompt 128] [--threads 1] [--rounds 5]
    [--llama2c PATH_OF_RUN --bin stories260K.bin]

Without --model the weights are random, in the shape of llama2.c's stories15M or stories110M. Each program is a process
of its own, and they take turns; greedy, one text; the best of the rounds, since other programs only add to them, and of
one thread its CPU time.
llama.cpp comes by `pip install llama-cpp-python`, and reads the model as GGUF, in float32 and in its Q8_0; llama2.c's
`run`, in float32, says its own tokens a second, prompt included, and wants the same model as a llama2.c file (--bin)
and tok512.bin beside it. The bound of decoding is the speed at which one thread reads memory, over the bytes of the
weights.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

COUNT = 100
QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
Measured = tuple[float, float, list[int]]  # seconds of the prompt and the first token, seconds a token after it; tokens


def clock_of(threads: int) -> Callable[[], float]:
    """CPU time of one thread, to which other programs add little; the clock of several."""
    return time.process_time if threads == 1 else time.perf_counter


def ours(path: str, threads: int, length: int, int8: bool) -> Iterator[Measured]:
    import torch

    from lm.generation.sampling import Sampling
    from lm.generation.scheduler import Scheduler
    from lm.interop.loading import load
    from lm.ops.cpu.int8 import quantized

    torch.set_num_threads(threads)
    clock, model = clock_of(threads), load(path)
    model = quantized(model) if int8 else model
    prompt, count = sizes(model.config.context_length, length)
    ids = prompt_of(model.config.vocab_size, prompt)
    while True:
        began = clock()
        scheduler = Scheduler(model, rows=1)
        text = scheduler.add(ids, max_new_tokens=count, sampling=Sampling(temperature=0))
        while not text.tokens:
            scheduler.step()
        first = clock() - began
        while scheduler.sequences:
            scheduler.step()
        yield first, (clock() - began - first) / (count - 1), text.tokens


def llama_cpp(path: str, threads: int, length: int, context: int, vocab_size: int) -> Iterator[Measured]:
    import llama_cpp as api
    import numpy as np

    api.llama_log_set(QUIET, ctypes.c_void_p(0))
    api.llama_backend_init()
    model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
    settings = api.llama_context_default_params()
    settings.n_ctx, settings.n_threads, settings.n_threads_batch = context, threads, threads
    running = api.llama_init_from_model(model, settings)
    prompt, count = sizes(context, length)
    ids, clock = prompt_of(vocab_size, prompt), clock_of(threads)

    def read(tokens: list[int]) -> int:
        buffer = (ctypes.c_int32 * len(tokens))(*tokens)  # the batch only points to it
        if api.llama_decode(running, api.llama_batch_get_one(buffer, len(tokens))):
            raise SystemExit("llama.cpp did not read the tokens")
        return int(np.ctypeslib.as_array(api.llama_get_logits_ith(running, -1), (vocab_size,)).argmax())

    while True:
        api.llama_memory_clear(api.llama_get_memory(running), True)
        began = clock()
        tokens = [read(ids)]
        first = clock() - began
        while len(tokens) < count:
            tokens.append(read(tokens[-1:]))
        yield first, (clock() - began - first) / (count - 1), tokens


def sizes(context: int, length: int) -> tuple[int, int]:
    """Tokens of the prompt and after it."""
    prompt = min(length, context // 2)
    return prompt, min(COUNT, context - prompt)


def bandwidth() -> float:
    """Bytes a second that one thread reads from memory."""
    import numpy as np

    numbers, seconds = np.ones(64 << 20, dtype=np.float32), list[float]()
    for _ in range(9):
        began = time.process_time()
        numbers.max()
        seconds.append(time.process_time() - began)
    return numbers.nbytes / min(seconds)


def prompt_of(vocab_size: int, length: int) -> list[int]:
    return [(1 + 7919 * number) % vocab_size for number in range(length)]


def serve(make: Callable[..., Iterator[Measured]], arguments: tuple[object, ...], turns: Connection) -> None:
    measured = make(*arguments)
    while turns.recv():
        turns.send(next(measured))


def llama2c(program: str, model: str, threads: int) -> float:
    """Tokens a second, as it says."""
    tokenizer = Path(model).with_name("tok512.bin")
    command = [program, model, "-z", str(tokenizer), "-t", "0", "-n", "200", "-i", "Once upon a time"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr
    match = re.search(r"achieved tok/s: ([\d.]+)", output)
    return float(match[1]) if match else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="what lm.load reads; random weights if not given")
    parser.add_argument("--shape", choices=("15m", "110m"), default="15m")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama2c", metavar="RUN", help="llama2.c's program, compiled")
    parser.add_argument("--bin", metavar="FILE", help="the model as llama2.c reads it")
    options = parser.parse_args()
    import torch

    from lm.config import ModelConfig
    from lm.interop import to_gguf, to_huggingface
    from lm.interop.loading import load
    from lm.model import Transformer

    shapes = {
        "15m": ModelConfig(32000, 2048, 6, 288, 6, 768, tied_embeddings=True),
        "110m": ModelConfig(32000, 2048, 12, 768, 12, 2048, tied_embeddings=True),
    }
    torch.manual_seed(0)
    random = shapes[options.shape]
    model = load(options.model) if options.model else Transformer(random).eval()
    config, several = model.config, multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        source = options.model or str(to_huggingface(model, Path(folder, "model")))
        whole, small = Path(folder, "model.gguf"), Path(folder, "small.gguf")
        to_gguf(model, whole, dtype="fp32")
        small_enough = config.d_model % 32 == 0 and config.d_ff % 32 == 0
        if small_enough:
            to_gguf(model, small, dtype="q8_0")
        shape = (options.threads, options.prompt, config.context_length, config.vocab_size)
        programs = {
            "lm": (ours, (source, options.threads, options.prompt, False)),
            "llama.cpp": (llama_cpp, (str(whole), *shape)),
            "lm, int8": (ours, (source, options.threads, options.prompt, True)),
            **({"llama.cpp, Q8_0": (llama_cpp, (str(small), *shape))} if small_enough else {}),
        }
        pipes, seen = {}, {name: list[Measured]() for name in programs}
        for name, (make, arguments) in programs.items():
            pipes[name], there = several.Pipe()
            several.Process(target=serve, args=(make, arguments, there), daemon=True).start()
        for turn in range(options.rounds + 1):
            for name, pipe in pipes.items():
                pipe.send(True)
                measured = pipe.recv()
                if turn:
                    seen[name].append(measured)
        for pipe in pipes.values():
            pipe.send(False)
    prompt, count = sizes(config.context_length, options.prompt)
    parameters = sum(one.numel() for one in model.parameters())
    print(
        f"{parameters / 1e6:.2f} million parameters, {options.threads} thread(s), "
        f"{prompt} tokens and {count} after them\n"
    )
    print("| | prompt, tokens/s | tokens/s after it | times llama.cpp: prompt | after it |\n|---|---:|---:|---:|---:|")
    for name, runs in seen.items():
        other = seen.get("llama.cpp, Q8_0", seen["llama.cpp"]) if name.endswith("int8") else seen["llama.cpp"]
        reading, pace = (min(run[part] for run in runs) for part in (0, 1))
        ratios = [min(run[part] for run in other) / (reading, pace)[part] for part in (0, 1)]
        times = " | ".join(f"{ratio:.2f}" for ratio in ratios) if name.startswith("lm") else " | "
        print(f"| {name} | {prompt / reading:,.0f} | {1 / pace:,.0f} | {times} |")
    if options.llama2c:
        rates = [llama2c(options.llama2c, options.bin, options.threads) for _ in range(options.rounds)]
        print(f"| llama2.c | | {max(rates):,.0f} | | |")
    matrices = parameters - config.vocab_size * config.d_model * (not config.tied_embeddings)
    rates = [bandwidth() / matrices / width for width in (4, 1)]
    print(f"\nBound of decoding, one thread: {rates[0]:,.0f} in float32, {rates[1]:,.0f} in int8.")
    same = seen["lm"][0][2] == seen["llama.cpp"][0][2]
    print(f"\nlm and llama.cpp wrote {'the same tokens' if same else 'different tokens'} in float32.")
    if not small_enough:
        print("Q8_0 wants rows of a multiple of 32 numbers: int8 stands beside llama.cpp's float32 here.")


if __name__ == "__main__":
    main()
