"""CPU seconds of engines that encode by bpe, beside one thread that does the same: nox -s bench -- engines FILE.

Each reads the text from Parquet, a row for 4,000 characters, adds the ids and writes Parquet, with 1, 2 and 4 workers
of one CPU. The CPU seconds are those of all processes that the engine starts. Those of the same work without bpe,
copying, are taken away, and what is left is encoding.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

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


def one_thread(source: str, out: str, workers: int, encoder: Any) -> None:
    """pyarrow alone."""
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    for batch in parquet.ParquetFile(source).iter_batches(1 << 10):
        table = encoder(pa.Table.from_batches([batch]))
        writer = writer or parquet.ParquetWriter(f"{out}/0.parquet", table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def ray_data(source: str, out: str, workers: int, encoder: Any) -> None:
    """Ray Data."""
    import ray

    ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.read_parquet(source, override_num_blocks=16)
    dataset.map_batches(encoder, batch_format="pyarrow", batch_size=1 << 10, zero_copy_batch=True).write_parquet(out)


def dask(source: str, out: str, workers: int, encoder: Any) -> None:
    """Dask, in processes."""
    import dask
    import dask.dataframe
    import pyarrow as pa

    dask.config.set({"dataframe.convert-string": True})
    frame = dask.dataframe.read_parquet(source, split_row_groups=4)
    meta = {"text": "string[pyarrow]"} | ({} if encoder is copied else {"ids": object})
    schema = pa.schema([("text", pa.large_string()), ("ids", pa.list_(pa.uint32()))][: len(meta)])
    encoded = frame.map_partitions(copied if encoder is copied else encoder.frame, meta=meta)
    workers_of_dask = {"scheduler": "processes", "num_workers": workers}
    encoded.to_parquet(out, write_index=False, schema=schema, compute_kwargs=workers_of_dask)


def datasets(source: str, out: str, workers: int, encoder: Any) -> None:
    """datasets.map."""
    import datasets

    datasets.disable_progress_bars()
    dataset = datasets.Dataset.from_parquet(source, cache_dir=out).with_format("arrow")
    dataset.map(encoder, batched=True, batch_size=1 << 10, num_proc=workers).to_parquet(f"{out}/0.parquet")


def datatrove(source: str, out: str, workers: int, encoder: Any) -> None:
    """datatrove, a file for each worker."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    from bpe.integrations.datatrove import Encode

    steps = [] if encoder is copied else [Encode(next(iter(encoder._tokenizers.values())))]
    pipeline = [ParquetReader(str(Path(source).parent / "parts")), *steps, ParquetWriter(out)]
    LocalPipelineExecutor(pipeline, tasks=4, workers=workers, logging_dir=f"{out}/logs").run()


def copied(table: Any) -> Any:
    """The same table: the engine's own work."""
    return table


ENGINES = {engine.__name__: engine for engine in (one_thread, ray_data, dask, datasets, datatrove)}


def measure(name: str, source: str, tokenizer: str, workers: int, encodes: bool) -> None:
    """Run an engine, and print its CPU seconds, without those of its imports."""
    import bpe
    from bpe.integrations.engines import ArrowEncoder

    with tempfile.TemporaryDirectory() as out:
        ENGINES[name](source, out, workers, ArrowEncoder(bpe.load(tokenizer)) if encodes else copied)
        print(f"CPU {cpu_seconds()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, tokenizer, workers, encodes = options.measure
        measure(name, str(options.file), tokenizer, int(workers), encodes == "1")
        return
    import pyarrow as pa
    from pyarrow import parquet

    import bpe

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
        base = 0.0
        print(
            "| engine | workers | CPU, encoding | CPU, copying | of encoding | rate a core, of one thread's |",
            flush=True,
        )
        print("|---|---|---|---|---|---|")
        for name in options.engines:
            for workers in [1] if name == "one_thread" else options.workers:
                seconds = []
                for encodes in "10":
                    command = [sys.executable, __file__, source, "--measure", name, tokenizer, str(workers), encodes]
                    environment = {**os.environ, TAG: uuid.uuid4().hex, "RAY_AUTH_MODE": "disabled"}
                    done = subprocess.run(command, env=environment, capture_output=True, text=True)
                    if done.returncode:
                        sys.exit(done.stderr[-2000:])
                    seconds.append(
                        next(float(line[4:]) for line in done.stdout.splitlines() if line.startswith("CPU "))
                    )
                    time.sleep(1)
                net = seconds[0] - seconds[1]
                base = base or net
                cells = (f"{value:.2f} s" for value in (*seconds, net))
                print(f"| {name} | {workers} | {' | '.join(cells)} | {base / net:.2f} |", flush=True)


if __name__ == "__main__":
    main()
