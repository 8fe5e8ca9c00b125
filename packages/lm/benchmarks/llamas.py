"""Generation on a CPU beside llama.cpp and llama2.c, on the same weights: reading a prompt, and the tokens after it.

python benchmarks/llamas.py [--model FOLDER | --shape 15m|110m] [--prompt 128] [--threads 1] [--rounds 5]
    [--llama2c RUN [--llama2c-int8 RUNQ]]

Without --model the weights are random, in the shape of llama2.c's stories15M or stories110M. Each program is a process
of its own, and they take turns; greedy, one text; the best of the rounds, since other programs only add to them, and of
one thread its CPU time.
llama.cpp comes by `pip install llama-cpp-python`, and reads the model as GGUF, in float32 and in its Q8_0; llama2.c's
`run` and `runq`, compiled, read files written here: what they print is timed token by token. Its vocabulary is one
character a token, so that a prompt is the same ids for all. The bound of decoding is the speed at which as many threads
read memory, over the bytes of the weights, and of the keys and values in float32.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm.model import Transformer

COUNT = 100
FIRST_CHARACTER = 0x4E00  # of token 0 in llama2.c's vocabulary
GROUP = 32  # int8 weights of llama2.c with one scale, as Q8_0 has them
QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
Measured = tuple[float, float, list[int]]  # seconds of the prompt and the first token, seconds a token after it; tokens


def clock_of(threads: int) -> Callable[[], float]:
    """CPU time of one thread, to which other programs add little; the clock of several."""
    return time.process_time if threads == 1 else time.perf_counter


def ours(path: str, threads: int, length: int, int8: bool) -> Iterator[Measured]:
    import torch

    from lm.generation.stream import stream
    from lm.interop.loading import load
    from lm.ops.cpu.int8 import quantized

    torch.set_num_threads(threads)
    clock, model = clock_of(threads), load(path)
    model = quantized(model) if int8 else model
    prompt, count = sizes(model.config.context_length, length)
    ids = prompt_of(model.config.vocab_size, prompt)
    while True:
        began = clock()
        text = stream(model, ids, max_new_tokens=count, temperature=0)
        tokens = [next(text)]
        first = clock() - began
        tokens += text
        yield first, (clock() - began - first) / (count - 1), tokens


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


def prompt_of(vocab_size: int, length: int) -> list[int]:
    return [(1 + 7919 * number) % vocab_size for number in range(length)]


def serve(make: Callable[..., Iterator[Measured]], arguments: tuple[object, ...], turns: Connection) -> None:
    measured = make(*arguments)
    while turns.recv():
        turns.send(next(measured))


def llama2c(
    program: str, folder: str, file: str, threads: int, length: int, context: int, vocab_size: int
) -> Iterator[Measured]:
    prompt, count = sizes(context, length)
    ids = prompt_of(vocab_size, prompt)
    pieces = pieces_of(vocab_size, ids)
    numbers = {piece: number for number, piece in enumerate(pieces)}
    text = "".join(pieces[number] for number in ids[2:])  # it puts <s> and a space before it
    command = [
        program,
        f"{folder}/{file}",
        "-z",
        f"{folder}/tokenizer.bin",
        "-t",
        "0",
        "-n",
        str(prompt + count - 1),
        "-i",
        text,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    while True:
        times, printed = list[float](), ""
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", env=environment
        ) as process:
            assert process.stdout is not None
            while (character := process.stdout.read(1)) not in ("", "\n"):
                times.append(time.clock_gettime(~process.pid << 3 | 2) if threads == 1 else time.perf_counter())
                printed += character
        begin = prompt - 2  # the space after <s> is not printed
        first = (times[begin] - times[0]) / begin * prompt
        tokens = [numbers[piece] for piece in printed[begin:]]
        yield first, (times[-1] - times[begin]) / (len(tokens) - 1), tokens


def pieces_of(vocab_size: int, ids: list[int]) -> list[str]:
    """The text of each token: one character each, a space for the second of the prompt."""
    return [" " if number == ids[1] else chr(FIRST_CHARACTER + number) for number in range(vocab_size)]


def write_llama2c(model: Transformer, folder: Path, ids: list[int]) -> None:
    """The model and its vocabulary as llama2.c reads them: model.bin in float32, small.bin in int8."""
    import torch

    c, kv = model.config, model.config.kv_heads * model.config.head_width
    parts = [
        (
            *block.attention.qkv.weight.split((c.d_model, kv, kv)),
            block.attention.output.weight,
            *block.ffn.gate_up.weight.chunk(2),
            block.ffn.down.weight,
        )
        for block in model.blocks
    ]
    wq, wk, wv, wo, w1, w3, w2 = zip(*parts, strict=True)
    norms = [[getattr(block, name).weight for block in model.blocks] for name in ("attention_norm", "ffn_norm")]
    head = [] if model.head is None else [model.head.weight]
    sizes = [c.d_model, c.d_ff, c.num_layers, c.num_heads, c.kv_heads, c.vocab_size, c.context_length]
    unused = torch.zeros(c.context_length * c.head_width)  # cosines and sines, which it computes itself
    with (folder / "model.bin").open("wb") as file:
        file.write(struct.pack("<7i", *sizes[:5], -c.vocab_size if head else c.vocab_size, c.context_length))
        whole = [model.embedding.weight, *norms[0], *wq, *wk, *wv, *wo, *norms[1], *w1, *w2, *w3]
        for tensor in (*whole, model.final_norm.weight, unused, *head):
            file.write(tensor.detach().numpy().tobytes())
    with (folder / "small.bin").open("wb") as file:
        file.write(struct.pack("<Ii7iBi", 0x616B3432, 2, *sizes, not head, GROUP).ljust(256, b"\0"))
        for tensor in (*norms[0], *norms[1], model.final_norm.weight):
            file.write(tensor.detach().numpy().tobytes())
        for tensor in (model.embedding.weight, *wq, *wk, *wv, *wo, *w1, *w2, *w3, *head):
            groups = tensor.detach().reshape(-1, GROUP)
            scale = groups.abs().amax(1, keepdim=True) / 127
            file.write((groups / scale).round().to(torch.int8).numpy().tobytes() + scale.numpy().tobytes())
    with (folder / "tokenizer.bin").open("wb") as file:
        file.write(struct.pack("<i", 4))
        for piece in map(str.encode, pieces_of(c.vocab_size, ids)):
            file.write(struct.pack("<fi", 0, len(piece)) + piece)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="what lm.load reads; random weights if not given")
    parser.add_argument("--shape", choices=("15m", "110m"), default="15m")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama2c", metavar="RUN", help="llama2.c's program, compiled")
    parser.add_argument("--llama2c-int8", metavar="RUNQ", help="its program for int8, compiled")
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
    model = load(options.model) if options.model else Transformer(shapes[options.shape]).eval()
    config, several = model.config, multiprocessing.get_context("spawn")
    grouped = config.d_model % GROUP == 0 and config.d_ff % GROUP == 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = options.model or str(to_huggingface(model, folder / "model"))
        shape = (options.threads, options.prompt, config.context_length, config.vocab_size)
        to_gguf(model, folder / "model.gguf", dtype="fp32")
        if grouped:
            to_gguf(model, folder / "small.gguf", dtype="q8_0")
        write_llama2c(model, folder, prompt_of(config.vocab_size, sizes(config.context_length, options.prompt)[0]))
        programs: dict[str, tuple[Callable[..., Iterator[Measured]], tuple[object, ...]]] = {
            "lm": (ours, (source, options.threads, options.prompt, False)),
            "llama.cpp": (llama_cpp, (str(folder / "model.gguf"), *shape)),
        }
        if options.llama2c:
            programs["llama2.c"] = llama2c, (options.llama2c, str(folder), "model.bin", *shape)
        programs["lm, int8"] = ours, (source, options.threads, options.prompt, True)
        if grouped:
            programs["llama.cpp, int8"] = llama_cpp, (str(folder / "small.gguf"), *shape)
        if grouped and options.llama2c_int8:
            programs["llama2.c, int8"] = llama2c, (options.llama2c_int8, str(folder), "small.bin", *shape)
        pipes, seen = {}, {name: list[Measured]() for name in programs}
        for name, (make, arguments) in programs.items():
            pipes[name], there = several.Pipe()
            several.Process(target=serve, args=(make, arguments, there), daemon=True).start()
        for turn in range(options.rounds + 1):
            for name, pipe in pipes.items():
                if not turn and name.startswith("llama2.c"):  # it starts anew each time
                    continue
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
    matrices = parameters - config.vocab_size * config.d_model * (not config.tied_embeddings)
    cached = 8 * config.num_layers * config.kv_heads * config.head_width * (prompt + count // 2)
    rate = bandwidth(options.threads)
    print("| | prompt, tokens/s | tokens/s after it | memory's bound | times the faster: prompt | after it |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, runs in seen.items():
        reading, pace = (min(run[part] for run in runs) for part in (0, 1))
        bound, times = "", " | "
        if name.startswith("lm"):
            int8 = name.endswith("int8")
            others = [other for key, other in seen.items() if key[:2] != "lm" and key.endswith("int8") == int8]
            others = others or [seen["llama.cpp"]]
            best = [min(run[part] for other in others for run in other) for part in (0, 1)]
            bound = f"{rate / (matrices * (1 if int8 else 4) + cached):,.0f}"
            times = f"{best[0] / reading:.2f} | {best[1] / pace:.2f}"
        print(f"| {name} | {prompt / reading:,.0f} | {1 / pace:,.0f} | {bound} | {times} |")
    print(f"\n{options.threads} thread(s) read {rate / 1e9:.1f} GB/s from memory.")
    for name in ("llama.cpp", "llama2.c"):
        if name in seen:
            pairs = zip(seen["lm"][0][2], seen[name][0][2], strict=False)
            place = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
            print(f"lm and {name} wrote " + ("the same tokens." if place is None else f"the same {place} tokens."))
    if not grouped:
        print(f"Q8_0 wants rows of a multiple of {GROUP} numbers: int8 stands beside llama.cpp's float32 here.")


if __name__ == "__main__":
    main()
