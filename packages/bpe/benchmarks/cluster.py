"""The cost of Ray: counting, training and encoding by clusters of 1, 2 and 4 nodes of one CPU each, beside one machine.

    python packages/bpe/benchmarks/cluster.py FILE [--vocab-size 32000] [--nodes 1 2 4] [--rounds 3]
        [--write]                               put it into docs/design/cluster-costs.md
        [--small 1000]                          instead: the driver's time a task, for as many small files

The nodes are Ray's own test cluster on this machine, so that more nodes than it has processors share these. Each
measurement is a process of its own; seconds are the median of the rounds, CPU seconds are those of all its processes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers import processor

PAGE = Path(__file__).parents[3] / "docs/design/cluster-costs.md"
BEGIN, END = "<!-- written by nox -s bench -- cluster: begin -->\n", "<!-- end -->\n"
TICK = os.sysconf("SC_CLK_TCK")
STORE = 500_000_000  # bytes of each node's object store


# What a process and those below it have used


def descendants(root: int) -> Iterator[int]:
    """A process and all below it."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    waiting = [root]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += parents.get(process, [])


def used() -> dict[str, tuple[float, float]]:
    """CPU seconds of all processes of a kind, and the most bytes that one of them ever held."""
    results: dict[str, tuple[float, float]] = {}
    for process in descendants(os.getpid()):
        folder = Path("/proc", str(process))
        try:
            name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            status = (folder / "status").read_text()
        except OSError:
            continue
        memory = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
        kind = kind_of(name, process)
        cpu, most = results.get(kind, (0.0, 0.0))
        results[kind] = cpu + (int(fields[11]) + int(fields[12])) / TICK, max(most, float(memory))
    return results


def kind_of(command: str, process: int) -> str:
    """The kind of a process of a cluster."""
    if process == os.getpid():
        return "driver"
    program = command.split(" ")[0]
    for name, kind in (("raylet/raylet", "raylets"), ("gcs/gcs_server", "GCS")):
        if name in program:
            return kind
    # a worker has its command until it has a title, and both must be of one kind or its seconds would be taken away
    is_worker = command.startswith("ray::") or "/default_worker.py" in command
    return "workers" if is_worker and "Agent" not in command else "agents"


def cpu_between(before: dict[str, tuple[float, float]], after: dict[str, tuple[float, float]]) -> dict[str, float]:
    """CPU seconds of each kind between two times."""
    return {kind: cpu - before.get(kind, (0.0, 0.0))[0] for kind, (cpu, _) in after.items()}


# The measurements, each in a process of its own


def alone(path: Path, size: int) -> dict[str, Any]:
    """bpe.train in its two steps and encode_file, by one thread."""
    import bpe

    results: dict[str, Any] = {"cpu": {}, "seconds": {}, "base": used()["driver"][1]}
    counts: Any = None
    tokenizer: Any = None

    def count() -> None:
        nonlocal counts
        counts = bpe.count(path, num_threads=1)

    def learn() -> None:
        nonlocal tokenizer
        tokenizer = bpe.train_from_counts(counts, size)

    def encode() -> None:
        with tempfile.TemporaryDirectory() as folder:
            results["ids"] = tokenizer.encode_file(path, Path(folder, "ids.npy"), num_threads=1)

    for name, work in (("count", count), ("learn", learn), ("encode", encode)):
        timed(results, name, work)
    results["fingerprint"] = tokenizer.fingerprint
    results["distinct"] = len(counts)
    return results


def timed(found: dict[str, Any], name: str, work: Any) -> None:
    """Do some work, and keep its seconds, the CPU seconds of all processes, and their memory."""
    before, begun = used(), time.perf_counter()
    work()
    found["seconds"][name] = time.perf_counter() - begun
    after = used()
    found["cpu"][name] = cpu_between(before, after)
    found["memory"] = {kind: memory for kind, (_, memory) in after.items()}


def on_nodes(path: Path, size: int, nodes: int) -> dict[str, Any]:
    """The same on a cluster of nodes with one CPU each."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    import ray
    from ray.cluster_utils import Cluster

    import bpe
    import bpe.cluster

    results: dict[str, Any] = {"cpu": {}, "seconds": {}, "tasks": {}}
    begun = time.perf_counter()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": STORE})
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.txt")
        small.write_text("a small text " * 1000)
        for _ in range(3):  # until every node has a worker with bpe in it
            bpe.cluster.count([small] * (2 * nodes))
        results["seconds"]["start"] = time.perf_counter() - begun
        reports: list[bpe.cluster.Summary] = []
        counts: Any = None
        tokenizer: Any = None

        def count() -> None:
            nonlocal counts
            counts = bpe.cluster.count(path, summary=reports.append)

        def learn() -> None:
            nonlocal tokenizer
            tokenizer = bpe.train_from_counts(counts, size)

        def encode() -> None:
            manifest = bpe.cluster.encode(path, Path(folder, "tokens"), tokenizer, summary=reports.append)
            results["ids"] = manifest.tokens

        for name, work in (("count", count), ("learn", learn), ("encode", encode)):
            timed(results, name, work)
            if name != "learn":
                results["tasks"][name] = reports[-1].tasks
    results["fingerprint"] = tokenizer.fingerprint
    ray.shutdown()
    cluster.shutdown()
    return results


def of_small_files(text: str, count: int) -> None:
    """Print the CPU milliseconds a task that the driver takes, the calling thread alone and with Ray's threads."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    import ray

    import bpe
    import bpe.cluster

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    for memory in (None, "/dev/shm"):
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            files = [Path(folder, f"{number:05}.txt") for number in range(count)]
            for file in files:
                file.write_text(text)
            tokenizer = bpe.train(files[0], 300)
            least: dict[str, tuple[float, ...]] = {}
            for turn in range(4):
                out = Path(folder, f"tokens{turn}")
                for name in ("count", "encode"):
                    begun = time.thread_time(), time.process_time()
                    _ = bpe.cluster.count(files) if name == "count" else bpe.cluster.encode(files, out, tokenizer)
                    ended = time.thread_time(), time.process_time()
                    spent = tuple(1000 * (end - begin) / count for begin, end in zip(begun, ended, strict=True))
                    least[name] = tuple(map(min, least.get(name, spent), spent))
        for name, (thread, process) in least.items():
            print(f"{name}, files in {memory or 'a temporary folder'}: {thread:.2f} ms, {process:.2f} ms")


def measure(path: Path, size: int, what: str) -> dict[str, Any]:
    """A measurement in a process of its own."""
    command = [sys.executable, __file__, str(path), "--vocab-size", str(size), "--worker", what]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{what}: {process.stderr[-2000:]}")
    results: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    print(f"  {what}: {results.get('seconds', '')}", file=sys.stderr)
    return results


def middle(runs: list[Any]) -> Any:
    """The median of each number of several results; of what is no number the first."""
    first = runs[0]
    if isinstance(first, dict):
        return {name: middle([run[name] for run in runs if name in run]) for name in first}
    if isinstance(first, list):
        return [middle(list(column)) for column in zip(*runs, strict=True)]
    return statistics.median(runs) if isinstance(first, (int, float)) else first


# The page


def tables(one: dict[str, Any], clusters: dict[int, dict[str, Any]]) -> list[str]:
    """Seconds and CPU seconds; where they go; memory."""
    lines = [
        "| | counting | learning | encoding | CPU of counting | times one machine's | of encoding | times |",
        "|---|---|---|---|---|---|---|---|",
    ]
    every = {"`bpe`, one thread": one} | {
        f"{nodes} node{'s' * (nodes > 1)}": results for nodes, results in clusters.items()
    }
    base = {name: sum(one["cpu"][name].values()) for name in ("count", "encode")}
    for name, results in every.items():
        seconds, cpu = results["seconds"], {key: sum(results["cpu"][key].values()) for key in base}
        cells = [f"{seconds[key]:.2f} s" for key in ("count", "learn", "encode")]
        for key in base:
            cells += [f"{cpu[key]:.2f} s", f"{cpu[key] / base[key]:.2f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        "Where the time goes. Starting is what passes until every node has a process that can count. CPU seconds are",
        "of counting and encoding together.",
        "",
        "| nodes | starting | tasks, counting | tasks, encoding | CPU of workers | driver | raylets | GCS | agents |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for nodes, results in clusters.items():
        reports = [f"{results['seconds']['start']:.1f} s"]
        reports += [f"{results['tasks'][key]:.0f}" for key in ("count", "encode")]
        for kind in ("workers", "driver", "raylets", "GCS", "agents"):
            cpu = sum(results["cpu"][key].get(kind, 0.0) for key in ("count", "encode"))
            reports.append(f"{cpu:.2f} s")
        lines.append(f"| {nodes} | {' | '.join(reports)} |")
    lines += [
        "",
        "The most that one process held, MB, with the pages of the object store that it has mapped:",
        "",
        "| nodes | driver (counts, learning) | a worker | a raylet | GCS | an agent |",
        "|---|---|---|---|---|---|",
        f"| `bpe`, one thread | {one['memory']['driver'] / 1e6:.0f} | - | - | - | - |",
    ]
    for nodes, results in clusters.items():
        kinds = ("driver", "workers", "raylets", "GCS", "agents")
        sizes = [f"{results['memory'].get(kind, 0) / 1e6:.0f}" for kind in kinds]
        lines.append(f"| {nodes} | {' | '.join(sizes)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, metavar="FILE")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--nodes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--small", type=int)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    path, size = options.text.absolute(), options.vocab_size
    if options.worker:
        kind, _, nodes = options.worker.partition(" ")
        print(json.dumps(on_nodes(path, size, int(nodes)) if kind == "nodes" else alone(path, size)))
        return
    if options.small:
        of_small_files(path.read_text()[:1000], options.small)
        return
    names = ["alone", *(f"nodes {nodes}" for nodes in options.nodes)]
    runs: dict[str, list[Any]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            runs[name].append(measure(path, size, name))
    same = {(run["fingerprint"], run["ids"]) for name in names for run in runs[name]}
    if len(same) > 1:
        raise SystemExit(f"the results differ: {same}")
    one = middle(runs["alone"])
    clusters = {nodes: middle(runs[f"nodes {nodes}"]) for nodes in options.nodes}
    import ray

    text = path.stat().st_size
    out = [
        f"{os.cpu_count()} processors ({processor()}), Python {platform.python_version()}, Ray {ray.__version__};"
        f" {path.name}, {text / 1e6:,.1f} MB, {size:,} tokens; {time.strftime('%d %B %Y').lstrip('0')}; median of"
        f" {options.rounds} rounds.",
        "Tokenizer and number of ids were the same in all of them.",
        "",
        *tables(one, clusters),
    ]
    print("\n".join(out))
    if options.write:
        command = " ".join(sys.argv[1:]).replace(str(options.text), path.name)
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(
            f"{before}{BEGIN}    nox -s bench -- cluster {command}\n\n" + "\n".join(out) + f"\n{END}{after}"
        )


if __name__ == "__main__":
    main()
