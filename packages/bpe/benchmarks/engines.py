"""CPU seconds of engines that encode by bpe, beside one thread that does the same: nox -s bench -- engines FILE.

Each reads the text from Parquet, a row for 4,000 characters, adds the ids and writes Parquet, with 1, 2 and 4 workers
of one CPU. Of bpe are the seconds of the threads that call it, measured around each call, with the conversions from the
engine's tables and to them. The engine's own work is the same with ids that are there already: what it reads, carries
and writes. The CPU seconds of a whole run are those of all processes that the engine starts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

import bpe
from bpe.integrations.engines import ArrowEncoder, _OfTables

TICK = os.sysconf("SC_CLK_TCK")
TAG = "BPE_BENCH_ENGINES"


def cpu_seconds() -> float:
    """CPU seconds of this program and all that it started, by a mark in their environment."""
    mark, ticks = f"{TAG}={os.environ[TAG]}".encode(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return ticks / TICK


class Carrier(_OfTables):
    """Adds ids that are there already, about as many as the encoder's, in place of encoding."""

    def __init__(self, tokenizer: bpe.Tokenizer, sample: str) -> None:
        self.text, self.tokenizer = "text", tokenizer  # which each process has to load too
        self.ids = tokenizer.encode_to_numpy(sample)
        self.rate = len(self.ids) / len(sample.encode())

    def __call__(self, table: Any) -> Any:
        sizes = pc.binary_length(self._column(table).combine_chunks()).to_numpy()
        ends = np.concatenate([[0], np.cumsum(sizes * self.rate)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(np.resize(self.ids, ends[-1])))
        return table.append_column("ids", lists)


class Timed:
    """Calls a function, and appends the CPU seconds of the calling thread to a file."""

    def __init__(self, function: Any, log: str) -> None:
        self.function, self.log = function, log

    def __call__(self, argument: Any) -> Any:
        begun = time.thread_time()
        result = self.function(argument)
        with open(self.log, "a") as file:
            file.write(f"{time.thread_time() - begun}\n")
        return result


class EveryBatch:
    """The batches of a function, for Spark, which takes a generator; each is timed."""

    def __init__(self, encoder: Any, log: str) -> None:
        self.encoder, self.timed = encoder, Timed(self.encoded, log)

    def encoded(self, batch: Any) -> list[Any]:
        return list(self.encoder.batches([batch]))

    def __call__(self, batches: Any) -> Any:
        return itertools.chain.from_iterable(map(self.timed, batches))


def one_thread(source: str, out: str, workers: int, encoder: Any, log: str) -> None:
    """pyarrow alone."""
    writer = None
    for batch in parquet.ParquetFile(source).iter_batches(1 << 10):
        table = Timed(encoder, log)(pa.Table.from_batches([batch]))
        writer = writer or parquet.ParquetWriter(f"{out}/0.parquet", table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def ray_data(source: str, out: str, workers: int, encoder: Any, log: str) -> None:
    """Ray Data."""
    import ray

    ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.read_parquet(source, override_num_blocks=16)
    batches = {"batch_format": "pyarrow", "batch_size": 1 << 10, "zero_copy_batch": True}
    dataset.map_batches(Timed(encoder, log), **batches).write_parquet(out)


def dask(source: str, out: str, workers: int, encoder: Any, log: str) -> None:
    """Dask, in processes."""
    import dask
    import dask.dataframe

    dask.config.set({"dataframe.convert-string": True})
    frame = dask.dataframe.read_parquet(source, split_row_groups=4)
    schema = pa.schema([("text", pa.large_string()), ("ids", pa.list_(pa.uint32()))])
    encoded = frame.map_partitions(Timed(encoder.frame, log), meta={"text": "string[pyarrow]", "ids": object})
    workers_of_dask = {"scheduler": "processes", "num_workers": workers}
    encoded.to_parquet(out, write_index=False, schema=schema, compute_kwargs=workers_of_dask)


def spark(source: str, out: str, workers: int, encoder: Any, log: str) -> None:
    """Spark, a Python process for each worker. Needs Java."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{workers}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 1 << 10).config(
        "spark.driver.memory", "4g"
    )
    session = builder.config("spark.sql.files.maxPartitionBytes", Path(source).stat().st_size // 15).getOrCreate()
    texts = session.read.parquet(source)
    texts.mapInArrow(EveryBatch(encoder, log), "text string, ids array<int>").write.parquet(f"{out}/ids")


def datasets(source: str, out: str, workers: int, encoder: Any, log: str) -> None:
    """datasets.map."""
    import datasets

    datasets.disable_progress_bars()
    dataset = datasets.Dataset.from_parquet(source, cache_dir=out).with_format("arrow")
    encoded = dataset.map(Timed(encoder, log), batched=True, batch_size=1 << 10, num_proc=workers)
    encoded.to_parquet(f"{out}/0.parquet")


def datatrove(source: str, out: str, workers: int, encoder: Any, log: str) -> None:
    """datatrove, a file for each worker."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    from bpe.integrations.datatrove import Encode

    if isinstance(encoder, Carrier):

        def step(documents: Any) -> Any:
            table = encoder(pa.table({"text": [document.text for document in documents]}))
            ids, ends = table["ids"].chunk(0).values.to_numpy(), table["ids"].chunk(0).offsets.to_numpy()
            for document, begin, end in zip(documents, ends[:-1], ends[1:], strict=True):
                document.metadata |= {"ids": ids[begin:end], "token_count": int(end - begin)}
            return documents
    else:
        encode = Encode(encoder._tokenizers["ids"])

        def step(documents: Any) -> Any:
            return list(encode.run(documents))

    def timed(documents: Any, rank: int = 0, world_size: int = 1) -> Any:
        call = Timed(step, log)
        while batch := list(itertools.islice(documents, 1000)):
            yield from call(batch)

    pipeline = [ParquetReader(str(Path(source).parent / "parts")), timed, ParquetWriter(out)]
    LocalPipelineExecutor(pipeline, tasks=4, workers=workers, logging_dir=f"{out}/logs").run()


ENGINES = {engine.__name__: engine for engine in (one_thread, ray_data, dask, spark, datasets, datatrove)}


def measure(name: str, source: str, tokenizer: str, workers: int, encodes: bool) -> None:
    """Run an engine, and print its CPU seconds, and those of the calls."""
    loaded = bpe.load(tokenizer)
    first = next(parquet.ParquetFile(source).iter_batches(256))["text"].to_pylist()
    encoder = ArrowEncoder(loaded) if encodes else Carrier(loaded, "".join(first))
    with tempfile.TemporaryDirectory() as out:
        log = Path(out, "seconds")
        Path(out, "out").mkdir()
        ENGINES[name](source, f"{out}/out", workers, encoder, str(log))
        print(f"CPU {cpu_seconds()} {sum(map(float, log.read_text().split()))}")


def calls(file: Path, rounds: int) -> None:
    """Print the CPU seconds of bpe's calls as the engines make them, on batches of 1,000 rows, beside encode_arrow."""
    import pandas as pd
    from datatrove.data import Document

    from bpe.integrations.datatrove import Encode

    tokenizer = bpe.train(file, 32_000)
    text = file.read_text(encoding="utf-8", errors="replace").replace("<|", "|")
    batches = pa.table({"text": [text[begin : begin + 4000] for begin in range(0, len(text), 4000)]}).to_batches(1000)
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    frames = [pd.DataFrame({"text": pd.array(table["text"], dtype="string[pyarrow]")}) for table in tables]
    documents = [[Document(text=row, id="") for row in table["text"].to_pylist()] for table in tables]
    encoder, step = ArrowEncoder(tokenizer), Encode(tokenizer)
    functions = {
        "encode_arrow, one thread": lambda at: tokenizer.encode_arrow(tables[at]["text"], num_threads=1),
        "Ray Data, datasets: a table": lambda at: encoder(tables[at]),
        "Dask: a pandas frame": lambda at: encoder.frame(frames[at]),
        "Spark: a record batch, ids as int32": lambda at: list(encoder.batches([batches[at]])),
        "datatrove: documents": lambda at: list(step.run(documents[at])),
    }
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for at, _, (name, function) in itertools.product(range(len(batches)), range(rounds), functions.items()):
        begun = time.thread_time()
        function(at)
        seconds[name].append(time.thread_time() - begun)
    base, *_ = middle = [statistics.median(each) for each in seconds.values()]
    print("| call | CPU for 1,000 rows | rate |\n|---|---|---|")
    for name, one in zip(functions, middle, strict=True):
        print(f"| {name} | {1000 * one:.2f} ms | {base / one:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3, help="of which the least seconds count (%(default)s)")
    parser.add_argument("--calls", action="store_true", help="only bpe's part, in this process: seconds of each call")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, tokenizer, workers, encodes = options.measure
        measure(name, str(options.file), tokenizer, int(workers), encodes == "1")
        return
    if options.calls:
        calls(options.file, options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        text = options.file.read_text(encoding="utf-8", errors="replace").replace("<|", "|")
        rows = [text[begin : begin + 4000] for begin in range(0, len(text), 4000)]
        table, source, tokenizer = pa.table({"text": rows}), f"{folder}/text.parquet", f"{folder}/tokenizer.bpe"
        parquet.write_table(table, source, row_group_size=len(rows) // 16 + 1)
        Path(folder, "parts").mkdir()
        for part in range(4):
            quarter = table.slice(len(rows) * part // 4, len(rows) // 4 + 1)
            parquet.write_table(quarter, f"{folder}/parts/{part}.parquet")
        bpe.train(options.file, 32_000).save(tokenizer)
        runs = [(name, workers) for name in options.engines for workers in (options.workers, [1])[name == "one_thread"]]
        least: dict[Any, list[float]] = {}
        for _, (name, workers), encodes in itertools.product(range(options.rounds), runs, "10"):
            command = [sys.executable, __file__, source, "--measure", name, tokenizer, str(workers), encodes]
            environment = {**os.environ, TAG: uuid.uuid4().hex, "RAY_AUTH_MODE": "disabled"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr[-2000:])
            line = next(line for line in done.stdout.splitlines() if line.startswith("CPU "))
            seconds = list(map(float, line.split()[1:]))
            least[name, workers, encodes] = list(map(min, least.get((name, workers, encodes), seconds), seconds))
            time.sleep(1)
    print("| engine | workers | CPU in all | with ids that are there already | of bpe | rate a core, of one thread's |")
    print("|---|---|---|---|---|---|")
    base = least[(*runs[0], "1")][1]
    for name, workers in runs:
        (total, ours), (carrying, _) = (least[name, workers, encodes] for encodes in "10")
        print(f"| {name} | {workers} | {total:.1f} s | {carrying:.1f} s | {ours:.2f} s | {base / ours:.2f} |")


if __name__ == "__main__":
    main()
