"""The gains of other libraries: transformers accelerated, Arrow columns, Dataset.map over a gigabyte.

    python packages/bpe/benchmarks/integrations.py transformers FILE --tokenizer tokenizer.json [--rounds 3] [--write]
    python packages/bpe/benchmarks/integrations.py arrow FILE --tokenizer tokenizer.json [--rounds 3] [--write]
    python packages/bpe/benchmarks/integrations.py map FILE --tokenizer tokenizer.json [--megabytes 1000] [--write]

Each candidate has a process of its own in each round, and the rounds are taken in turn. All times are CPU time on one
thread, the least of all passes. "map" has one pass, over text that is grown from FILE (see corpora.py) and lies in an
Arrow file as `datasets` keeps it; what takes long can be measured in parts, by --only, --processes and --megabytes,
which --results keeps together. --write puts the table into docs/design/performance/integrations.md.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib.metadata
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpora

import bpe

PAGE = Path(__file__).resolve().parents[3] / "docs/design/performance/integrations.md"
DOCUMENT = 4096  # characters
MESSAGES, CHAT = 5_000, (20, 60, 200, 400)  # chat messages, and their lengths in characters
TURNS = 4  # messages in a conversation
PASSES = 3
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TENSORS = {"padding": True, "truncation": True, "max_length": 1024, "return_tensors": "pt"}
Jobs = dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]  # what is measured, and what its result is as lists


def documents_of(text: str) -> list[str]:
    return [text[begin : begin + DOCUMENT] for begin in range(0, len(text), DOCUMENT)]


def messages_of(text: str) -> list[str]:
    chance = random.Random(1)
    starts = [chance.randrange(len(text) - max(CHAT)) for _ in range(MESSAGES)]
    return [text[start : start + chance.choice(CHAT)] for start in starts]


# transformers


def of_transformers(kind: str, path: str) -> Any:
    """The tokenizer as transformers loads it, with fastokens as its backend, or accelerated."""
    if kind == "fastokens":
        import fastokens

        fastokens.patch_transformers()
    from transformers import PreTrainedTokenizerFast

    from bpe.integrations.transformers import accelerate

    pad = next(iter(bpe.load(path).special_tokens))
    with tempfile.TemporaryDirectory() as folder:  # fastokens takes part when a folder is loaded
        PreTrainedTokenizerFast(tokenizer_file=path, pad_token=pad).save_pretrained(folder)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return accelerate(tokenizer) if kind == "bpe" else tokenizer


def transformers_jobs(kind: str, path: str, text: str) -> Jobs:
    tokenizer = of_transformers(kind, path)
    documents, messages = documents_of(text), messages_of(text)
    talks = [
        [
            {"role": ("user", "assistant")[turn % 2], "content": one}
            for turn, one in enumerate(messages[at : at + TURNS])
        ]
        for at in range(0, len(messages), TURNS)
    ]
    ids = [tokenizer(one)["input_ids"] for one in documents]

    def ids_of(found: Any) -> Any:
        return found["input_ids"]

    def padded_ids(found: Any) -> Any:
        return found["input_ids"].tolist()

    def each(call: Callable[[Any], Any], given: list[Any]) -> Callable[[], Any]:
        return lambda: [call(one) for one in given]

    def chat(talk: list[dict[str, str]], **options: Any) -> Any:
        return tokenizer.apply_chat_template(talk, chat_template=TEMPLATE, **options)

    return {
        "documents in a call, to lists, MB/s": (lambda: tokenizer(documents), ids_of),
        "documents in a call, to tensors, MB/s": (lambda: tokenizer(documents, **TENSORS), padded_ids),
        "a message, to lists, µs": (each(tokenizer, messages), lambda found: list(map(ids_of, found))),
        "a message by `encode`, µs": (each(tokenizer.encode, messages), list),
        "a message, to tensors, µs": (
            each(lambda one: tokenizer(one, return_tensors="pt"), messages),
            lambda found: list(map(padded_ids, found)),
        ),
        f"{MESSAGES:,} messages in a call, to lists, µs each": (lambda: tokenizer(messages), ids_of),
        f"{MESSAGES:,} messages in a call, to tensors, µs each": (lambda: tokenizer(messages, **TENSORS), padded_ids),
        "a conversation, to lists, µs": (each(chat, talks), lambda found: list(map(ids_of, found))),
        "a conversation, to tensors, µs": (
            each(lambda one: chat(one, return_tensors="pt"), talks),
            lambda found: list(map(padded_ids, found)),
        ),
        "`batch_decode` of the documents, MB/s": (lambda: tokenizer.batch_decode(ids), list),
    }


def transformers_rows(found: dict[str, dict[str, Any]], text: str) -> list[str]:
    shown = {"transformers": "transformers", "fastokens": "fastokens", "bpe": "accelerated by bpe"}
    kinds = [kind for kind in shown if kind in found]
    rows = [f"| | {' | '.join(shown[kind] for kind in kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    size = len(text.encode()) / 1e6
    for job in found["transformers"]["seconds"]:
        cells = []
        for kind in kinds:
            seconds, digests = found[kind]["seconds"][job], found[kind]["digests"]
            each = seconds * 1e6 / (MESSAGES / TURNS if "conversation" in job else MESSAGES)
            same = digests[job] == found["transformers"]["digests"][job]
            cells.append(f"{size / seconds if 'MB/s' in job else each:.1f}{'' if same else ' *'}")
        rows.append(f"| {job} | {' | '.join(cells)} |")
    return rows


# Arrow


def arrow_jobs(kind: str, path: str, text: str) -> Jobs:
    import pyarrow

    columns = {
        "documents": pyarrow.array(documents_of(text), pyarrow.large_string()),
        "messages": pyarrow.array(messages_of(text), pyarrow.string()),
    }
    lists = pyarrow.list_(pyarrow.uint32())
    if kind == "tokenizers":
        from tokenizers import Tokenizer

        peer = Tokenizer.from_file(path)

        def encode(column: Any) -> Any:
            found = peer.encode_batch_fast(column.to_pylist(), add_special_tokens=False)
            return pyarrow.array([one.ids for one in found], lists)
    else:
        ours = bpe.load(path)

        def encode(column: Any) -> Any:
            if kind == "encode_arrow":
                return ours.encode_arrow(column, num_threads=1, allowed_special="all")
            return pyarrow.array(ours.encode_batch(column.to_pylist(), num_threads=1, allowed_special="all"), lists)

    return {
        name: (lambda column=column: encode(column), lambda found: found.to_pylist())  # type: ignore[misc]
        for name, column in columns.items()
    }


def arrow_rows(found: dict[str, dict[str, Any]], text: str) -> list[str]:
    sizes = {"documents": len(text.encode()), "messages": sum(len(one.encode()) for one in messages_of(text))}
    rows = [f"| | documents, MB/s | {MESSAGES:,} messages, MB/s |", "|---|---|---|"]
    shown = {
        "tokenizers": "tokenizers: `encode_batch_fast` of the column's list, lists to a column",
        "encode_batch": "bpe: `encode_batch` of the column's list, lists to a column",
        "encode_arrow": "bpe: `encode_arrow`",
    }
    for kind, name in shown.items():
        if kind in found:
            cells = [
                f"{sizes[job] / 1e6 / seconds:.0f}"
                + ("" if found[kind]["digests"][job] == found["encode_arrow"]["digests"][job] else " *")
                for job, seconds in found[kind]["seconds"].items()
            ]
            rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


# Dataset.map


def saved(text: Path, megabytes: int, folder: Path) -> Path:
    """An Arrow file of `datasets` with about so many megabytes of text, a row for about every DOCUMENT bytes."""
    import pyarrow
    from pyarrow import ipc

    out = folder / f"{text.stem}-{megabytes}.arrow"
    if not out.exists():
        grown = folder / f"{text.stem}-{megabytes}.txt"
        corpora.grow(text, grown, megabytes * 1_000_000)
        schema = pyarrow.schema([("text", pyarrow.string())])
        with open(grown, encoding="utf-8") as file, ipc.new_stream(out, schema) as stream:
            while lines := file.readlines(64 * DOCUMENT):
                rows = [row for line in lines for row in documents_of(line)]
                stream.write_batch(pyarrow.record_batch([pyarrow.array(rows, pyarrow.string())], schema=schema))
        grown.unlink()
    return out


def map_over(kind: str, path: str, data: Path, processes: int) -> dict[str, Any]:
    """Seconds and CPU seconds of one Dataset.map, and what it made."""
    import datasets

    datasets.disable_progress_bars()
    source = datasets.Dataset.from_file(str(data))
    if kind == "encode_arrow":
        source = source.with_format("arrow")
    if kind == "tokenizers":
        from tokenizers import Tokenizer

        peer = Tokenizer.from_file(path)
        encode: Callable[[Any], Any] = lambda texts: [  # noqa: E731
            one.ids for one in peer.encode_batch_fast(texts, add_special_tokens=False)
        ]
    elif kind in ("transformers", "accelerate"):
        fast = of_transformers("bpe" if kind == "accelerate" else kind, path)
        encode = lambda texts: fast(list(texts), return_attention_mask=False)["input_ids"]  # noqa: E731
    else:
        ours = bpe.load(path)
        if kind == "encode_arrow":
            encode = lambda texts: ours.encode_arrow(texts, num_threads=1, allowed_special="all")  # noqa: E731
        else:
            encode = lambda texts: ours.encode_batch(list(texts), num_threads=1, allowed_special="all")  # noqa: E731

    def step(batch: Any) -> Any:
        import pyarrow

        ids = encode(batch["text"])
        return pyarrow.table({"input_ids": ids}) if kind == "encode_arrow" else {"input_ids": ids}

    features = datasets.Features({"input_ids": datasets.List(datasets.Value("uint32"))})
    with tempfile.TemporaryDirectory(dir=data.parent) as folder:
        begun, cpu = time.perf_counter(), cpu_seconds()
        result = source.map(
            step,
            batched=True,
            remove_columns=["text"],
            features=features,
            num_proc=processes if processes > 1 else None,
            cache_file_name=str(Path(folder, "made.arrow")),
            new_fingerprint=kind,
        )
        seconds, cpu = time.perf_counter() - begun, cpu_seconds() - cpu
        digest, count = hashlib.sha256(), 0
        for chunk in result.data.column("input_ids").chunks:
            ids = chunk.flatten().to_numpy()
            digest.update(ids.data.cast("B"))
            count += len(ids)
    return {
        "seconds": {"map": seconds, "cpu": cpu},
        "digests": digest.hexdigest(),
        "ids": count,
        "size": data.stat().st_size,
        "kind": kind,
        "processes": processes,
    }


def cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def map_rows(found: dict[str, dict[str, Any]]) -> list[str]:
    shown = {
        "transformers": "transformers",
        "tokenizers": "tokenizers: `encode_batch_fast`",
        "accelerate": "transformers, accelerated by bpe",
        "encode_batch": "bpe: `encode_batch`",
        "encode_arrow": 'bpe: `encode_arrow`, with_format("arrow")',
    }
    rows = ["| | MB | processes | seconds | CPU seconds | MB/s | ids |", "|---" * 7 + "|"]
    of_rows = sorted(found.values(), key=lambda one: (one["size"], one["processes"], list(shown).index(one["kind"])))
    for one in of_rows:
        seconds, cpu = one["seconds"]["map"], one["seconds"]["cpu"]
        same = len({other["digests"] for other in of_rows if other["size"] == one["size"]}) == 1
        size, ids = one["size"] / 1e6, f"{one['ids']:,}{'' if same else ' *'}"
        cells = [f"{size:,.0f}", one["processes"], f"{seconds:.1f}", f"{cpu:.1f}", f"{size / seconds:.1f}", ids]
        rows.append(f"| {shown[one['kind']]} | {' | '.join(map(str, cells))} |")
    return rows


CANDIDATES = {
    "transformers": ("transformers", "fastokens", "bpe"),
    "arrow": ("tokenizers", "encode_batch", "encode_arrow"),
    "map": ("transformers", "tokenizers", "accelerate", "encode_batch", "encode_arrow"),
}
LIBRARIES = {
    "transformers": ("transformers", "tokenizers", "fastokens"),
    "arrow": ("pyarrow", "tokenizers"),
    "map": ("datasets", "tokenizers", "transformers"),
}


def timed(jobs: Jobs) -> dict[str, Any]:
    """The least CPU seconds of each job, and a digest of what it gave."""
    seconds, digests = {}, {}
    for name, (job, plain) in jobs.items():
        times = []
        for _ in range(PASSES):
            gc.collect()
            begun = time.process_time()
            result = job()
            times.append(time.process_time() - begun)
        seconds[name] = min(times)
        digests[name] = hashlib.sha256(json.dumps(plain(result)).encode()).hexdigest()
    return {"seconds": seconds, "digests": digests}


def work(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    if options.table == "map":
        return map_over(kind, options.tokenizer, options.file, *options.processes)
    text = options.file.read_text(encoding="utf-8", errors="replace")[: options.characters]
    jobs = transformers_jobs if options.table == "transformers" else arrow_jobs
    return timed(jobs(kind, options.tokenizer, text))


def measure(options: argparse.Namespace, file: Path, kind: str, processes: int = 1) -> dict[str, Any]:
    """Measure in a process of its own."""
    one = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    inputs = ["--tokenizer", options.tokenizer, "--characters", str(options.characters), "--worker", kind]
    command = [sys.executable, __file__, options.table, str(file), *inputs, "--processes", str(processes)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **one}
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    results: dict[str, Any] = json.loads(out.splitlines()[-1])
    print(kind, {job: round(seconds, 3) for job, seconds in results["seconds"].items()}, file=sys.stderr)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=CANDIDATES)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", required=True, help="a tokenizer.json")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--characters", type=int, default=4_000_000, help="how much of FILE (not of map)")
    parser.add_argument("--megabytes", type=int, default=1000, help="of text that map goes over")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="num_proc of map")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where that text is kept")
    parser.add_argument("--only", nargs="+", help="candidates of the table, as it is measured in parts")
    parser.add_argument("--results", type=Path, help="a file that keeps what was measured, for the other parts")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options, options.worker)))
        return
    is_map = options.table == "map"
    file = saved(options.file, options.megabytes, options.folder) if is_map else options.file
    results: dict[str, dict[str, Any]] = {}
    if options.results and options.results.exists():
        results = json.loads(options.results.read_text())
    name = Path(options.tokenizer).name
    command = f"nox -s bench -- integrations {options.table} {options.file.name} --tokenizer {name}"
    kinds = options.only or CANDIDATES[options.table]
    if is_map:
        only = f" --only {' '.join(kinds)}" if options.only else ""
        command += f" --megabytes {options.megabytes} --processes {' '.join(map(str, options.processes))}{only}"
        for processes in options.processes:
            for kind in kinds:
                new = {**measure(options, file, kind, processes), "command": f"{command} --results FILE --write"}
                results[f"{kind} {processes} {options.megabytes}"] = new
                keep(results, options.results)
        commands = list(dict.fromkeys(one["command"] for one in results.values()))
        how = "one pass of each, a process with one thread or several processes of it, one after another"
        rows = map_rows(results)
    else:
        for _ in range(options.rounds):
            for kind in kinds:
                new = measure(options, file, kind)
                least = results.setdefault(kind, new)["seconds"]
                for job, seconds in new["seconds"].items():
                    least[job] = min(least[job], seconds)
                keep(results, options.results)
        if not results.keys() >= set(CANDIDATES[options.table]):
            return
        commands = [f"{command} --rounds {options.rounds} --write"]
        how = (
            f"the first {options.characters:,} characters, CPU time on one thread, the least of "
            f"{options.rounds * PASSES} passes in {options.rounds} rounds taken in turn"
        )
        text = file.read_text(encoding="utf-8", errors="replace")[: options.characters]
        rows = (transformers_rows if options.table == "transformers" else arrow_rows)(results, text)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES[options.table])
    head = (
        f"{options.file.name}, {Path(options.tokenizer).stem}: {how}; Python {platform.python_version()}, {versions}; "
        f"{time.strftime('%d %B %Y').lstrip('0')}. An asterisk: other results than the others'."
    )
    out = "\n".join(["".join(f"    {one}\n" for one in commands), head, "", *rows])
    print(out)
    if options.write:
        begin, end = f"<!-- {options.table}: begin -->\n", f"<!-- {options.table}: end -->\n"
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
        after = rest.partition(end)[2]
        PAGE.write_text(f"{before}{begin}{out}\n\n{end}{after}", encoding="utf-8")


def keep(found: dict[str, dict[str, Any]], results: Path | None) -> None:
    if results:
        results.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
