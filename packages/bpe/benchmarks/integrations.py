"""What other libraries gain: transformers accelerated, Arrow columns, Dataset.map over a gigabyte.

    python packages/bpe/benchmarks/integrations.py transformers FILE --tokenizer tokenizer.json [--rounds 3] [--write]
    python packages/bpe/benchmarks/integrations.py arrow FILE --tokenizer tokenizer.json [--rounds 3] [--write]
    python packages/bpe/benchmarks/integrations.py map FILE --tokenizer tokenizer.json [--megabytes 1000] [--write]

Each candidate has a process of its own in each round, and the rounds are taken in turn. All times are CPU time on one
thread, the least of all passes; "map" has one pass, over text that is grown from FILE (see corpora.py) and lies in an
Arrow file as `datasets` keeps it. --write puts the table into docs/design/performance/integrations.md.
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
        [{"role": ("user", "assistant")[turn % 2], "content": one} for turn, one in enumerate(messages[at : at + 4])]
        for at in range(0, len(messages), 4)
    ]
    ids = [tokenizer(one)["input_ids"] for one in documents]

    def ids_of(found: Any) -> Any:
        return found["input_ids"]

    def chat(talk: list[dict[str, str]]) -> Any:
        return tokenizer.apply_chat_template(talk, chat_template=TEMPLATE, return_dict=False)

    return {
        "documents, to lists": (lambda: tokenizer(documents), ids_of),
        "documents, to tensors": (lambda: tokenizer(documents, **TENSORS), lambda found: found["input_ids"].tolist()),
        "messages, each": (lambda: [tokenizer(one) for one in messages], lambda found: [ids_of(one) for one in found]),
        "messages, at once": (lambda: tokenizer(messages), ids_of),
        "conversations": (lambda: [chat(one) for one in talks], list),
        "batch_decode": (lambda: tokenizer.batch_decode(ids), list),
    }


def transformers_rows(found: dict[str, dict[str, Any]], text: str) -> list[str]:
    size = len(text.encode()) / 1e6
    head = (
        f"| | documents, to lists, MB/s | to tensors, MB/s | a message, one a call, µs | {MESSAGES:,} messages in a "
        "call, µs each | a conversation of 4 messages by apply_chat_template, µs | batch_decode, MB/s |"
    )
    rows = [head, "|---" * 7 + "|"]
    for kind, shown in (("transformers", "transformers"), ("fastokens", "fastokens"), ("bpe", "accelerated by bpe")):
        if kind not in found:
            continue
        cells = []
        for job, seconds in found[kind]["seconds"].items():
            same = found[kind]["digests"][job] == found["transformers"]["digests"][job]
            if job.startswith("documents") or job == "batch_decode":
                cells.append(f"{size / seconds:.1f}")
            else:
                cells.append(f"{seconds * 1e6 / (MESSAGES / 4 if job == 'conversations' else MESSAGES):.1f}")
            cells[-1] += "" if same else " *"
        rows.append(f"| {shown} | {' | '.join(cells)} |")
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
                return ours.encode_arrow(column, workers=1, allowed_special="all")
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


def map_over(kind: str, path: str, data: Path) -> dict[str, Any]:
    """CPU seconds of one Dataset.map, and what it made."""
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
    elif kind == "accelerate":
        fast = of_transformers("bpe", path)
        encode = lambda texts: fast(list(texts), return_attention_mask=False)["input_ids"]  # noqa: E731
    else:
        ours = bpe.load(path)
        if kind == "encode_arrow":
            encode = lambda texts: ours.encode_arrow(texts, workers=1, allowed_special="all")  # noqa: E731
        else:
            encode = lambda texts: ours.encode_batch(list(texts), num_threads=1, allowed_special="all")  # noqa: E731

    def step(batch: Any) -> Any:
        import pyarrow

        ids = encode(batch["text"])
        return pyarrow.table({"input_ids": ids}) if kind == "encode_arrow" else {"input_ids": ids}

    features = datasets.Features({"input_ids": datasets.List(datasets.Value("uint32"))})
    with tempfile.TemporaryDirectory(dir=data.parent) as folder:
        begun = time.process_time()
        made = source.map(
            step,
            batched=True,
            remove_columns=["text"],
            features=features,
            cache_file_name=str(Path(folder, "made.arrow")),
            new_fingerprint=kind,
        )
        seconds = time.process_time() - begun
        digest, count = hashlib.sha256(), 0
        for chunk in made.data.column("input_ids").chunks:
            ids = chunk.flatten().to_numpy()
            digest.update(ids.data.cast("B"))
            count += len(ids)
    return {"seconds": {"map": seconds}, "digests": {"map": digest.hexdigest()}, "ids": count}


def map_rows(found: dict[str, dict[str, Any]], size: int) -> list[str]:
    shown = {
        "tokenizers": "tokenizers: `encode_batch_fast`",
        "accelerate": "transformers, accelerated by bpe",
        "encode_batch": "bpe: `encode_batch`",
        "encode_arrow": 'bpe: `encode_arrow`, with_format("arrow")',
    }
    rows = ["| | CPU seconds | MB/s | ids |", "|---|---|---|---|"]
    for kind, name in shown.items():
        if kind in found:
            seconds = found[kind]["seconds"]["map"]
            same = found[kind]["digests"] == found["encode_arrow"]["digests"]
            ids = f"{found[kind]['ids']:,}{'' if same else ' *'}"
            rows.append(f"| {name} | {seconds:.1f} | {size / 1e6 / seconds:.0f} | {ids} |")
    return rows


CANDIDATES = {
    "transformers": ("transformers", "fastokens", "bpe"),
    "arrow": ("tokenizers", "encode_batch", "encode_arrow"),
    "map": ("tokenizers", "accelerate", "encode_batch", "encode_arrow"),
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
        return map_over(kind, options.tokenizer, options.file)
    text = options.file.read_text(encoding="utf-8", errors="replace")[: options.characters]
    jobs = transformers_jobs if options.table == "transformers" else arrow_jobs
    return timed(jobs(kind, options.tokenizer, text))


def measure(options: argparse.Namespace, file: Path, kind: str) -> dict[str, Any]:
    """What a process of its own finds."""
    one = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    given = ["--tokenizer", options.tokenizer, "--characters", str(options.characters), "--worker", kind]
    command = [sys.executable, __file__, options.table, str(file), *given]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **one}
    out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    print(kind, {job: round(seconds, 3) for job, seconds in found["seconds"].items()}, file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=CANDIDATES)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", required=True, help="a tokenizer.json")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--characters", type=int, default=4_000_000, help="how much of FILE (not of map)")
    parser.add_argument("--megabytes", type=int, default=1000, help="of text that map goes over")
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
    found: dict[str, dict[str, Any]] = {}
    if options.results and options.results.exists():
        found = json.loads(options.results.read_text())
    for _ in range(1 if is_map else options.rounds):
        for kind in options.only or CANDIDATES[options.table]:
            new = measure(options, file, kind)
            least = found.setdefault(kind, new)["seconds"]
            for job, seconds in new["seconds"].items():
                least[job] = min(least[job], seconds)
            if options.results:
                options.results.write_text(json.dumps(found))
    if not found.keys() >= set(CANDIDATES[options.table]):
        return
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES[options.table])
    how = (
        f"{file.stat().st_size / 1e6:,.0f} MB of Arrow, CPU time of one process with one thread"
        if is_map
        else f"the first {options.characters:,} characters, CPU time on one thread, the least of "
        f"{options.rounds * PASSES} passes in {options.rounds} rounds taken in turn"
    )
    out = [
        f"{options.file.name}, {Path(options.tokenizer).stem}: {how}; Python {platform.python_version()}, {versions}; "
        f"{time.strftime('%d %B %Y').lstrip('0')}. An asterisk: other results than the others'.",
        "",
    ]
    if is_map:
        out += map_rows(found, file.stat().st_size)
    else:
        text = file.read_text(encoding="utf-8", errors="replace")[: options.characters]
        out += (transformers_rows if options.table == "transformers" else arrow_rows)(found, text)
    print("\n".join(out))
    if options.write:
        amount = f" --megabytes {options.megabytes}" if is_map else f" --rounds {options.rounds}"
        name = Path(options.tokenizer).name
        command = f"nox -s bench -- integrations {options.table} {options.file.name} --tokenizer {name}{amount} --write"
        begin, end = f"<!-- {options.table}: begin -->\n", f"<!-- {options.table}: end -->\n"
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
        after = rest.partition(end)[2]
        PAGE.write_text(f"{before}{begin}    {command}\n\n" + "\n".join(out) + f"\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
