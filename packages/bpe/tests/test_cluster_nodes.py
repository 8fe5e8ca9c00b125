"""bpe.cluster on several nodes, of which one may die; and on several hosts, as far as network namespaces are such.

Marked soak: starting the nodes takes most of a minute. Namespaces need root and `ip`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from strategies import corpus

import bpe
import bpe.cluster
from bpe.cluster import counting

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray's own modules
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of processes that its Cluster starts
]
STORE = 80_000_000  # bytes of each node's object store; Ray takes no less


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, list[Any]]]:
    """A head and two nodes of one CPU each: (the cluster, the two nodes, which may be killed)."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    result = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": STORE})
    others = [result.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2)]
    ray.init(address=result.address, log_to_driver=False)
    yield result, others
    ray.shutdown()
    result.shutdown()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(corpus(number, 60_000))
    return sorted(tmp_path.iterdir())


def killer(cluster: tuple[Any, list[Any]], after: int) -> Callable[[str, int, int | None], None]:
    """A progress that kills a node when it has been told something `after` times."""
    messages: list[int] = []

    def progress(phase: str, done: int, total: int | None) -> None:
        messages.append(done)
        if len(messages) == after:
            nodes, others = cluster
            nodes.remove_node(others.pop(), allow_graceful=False)

    return progress


@pytest.mark.parametrize("after", [1, 10])
def test_a_node_that_dies_while_counting_changes_nothing(
    cluster: tuple[Any, list[Any]], files: list[Path], after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, messages = counting.count_part, list[bpe.cluster.Summary]()

    def slow(*arguments: Any) -> Any:
        """Or one node has done all before another has a process that counts."""
        import time

        time.sleep(0.3)
        return task(*arguments)

    monkeypatch.setattr(counting, "count_part", slow)
    counts = bpe.cluster.count(files, part_size=60_000, progress=killer(cluster, after), summary=messages.append)
    assert counts == bpe.count(files)
    assert len(messages[0].nodes) > 1


@pytest.mark.parametrize(("part_size", "after"), [(None, 2), (60_000, 2), (60_000, 20)])
def test_a_node_that_dies_while_encoding_changes_nothing(
    cluster: tuple[Any, list[Any]], files: list[Path], tmp_path: Path, part_size: int | None, after: int
) -> None:
    """Files whole, and in parts, whose ids were on the node and are made again."""
    tokenizer, out = bpe.train(files, 1000), tmp_path / "tokens"
    manifest = bpe.cluster.encode(files, out, tokenizer, part_size=part_size, progress=killer(cluster, after))
    for number, file in enumerate(files):
        tokenizer.encode_file(file, tmp_path / "one.npy")
        assert (out / manifest.files[number].output).read_bytes() == (tmp_path / "one.npy").read_bytes()
    assert not [path for path in out.iterdir() if path.suffix not in (".npy", ".json")]  # nothing half-written


LIMITED = """
import os, sys, ray
ray.init("local", num_cpus=1, object_store_memory=80_000_000, include_dashboard=False, log_to_driver=False,
         _node_ip_address="127.0.0.1", object_spilling_directory=os.environ.get("SPILL"))
import bpe, bpe.cluster
from pathlib import Path
tokenizer, text, out = bpe.load(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
try:
    told = bpe.cluster.encode(text, out, tokenizer, part_size=4_000_000).tokens
except (MemoryError, OSError) as error:
    told = f"{type(error).__name__}: {error}"
print(f"\\ntold {told}")
"""


def limited(tmp_path: Path, times: int, **environment: str) -> tuple[str, int]:
    """The output of a program that encodes a text in parts on a small node; and the expected number of ids."""
    tokenizer, text = bpe.train([corpus(1)], 257), tmp_path / "text.txt"
    tokenizer.save(tmp_path / "tokenizer.bpe")
    text.write_text(corpus(1, 20_000) * times)
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "tokenizer.bpe"), str(text), str(tmp_path / "out")]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "PYTHONWARNINGS": "ignore", **environment},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    (output,) = (line for line in ran.stdout.splitlines() if line.startswith("told "))  # among what Ray prints
    return output.removeprefix("told "), tokenizer.encode_file(text, tmp_path / "one.npy")


def test_an_object_store_that_is_full_is_moved_to_the_disk(tmp_path: Path) -> None:
    output, count = limited(tmp_path, 500)
    assert int(output) == count
    assert 2 * count > 80_000_000  # bytes of ids that are in it until the file is written
    result = tmp_path / "out" / "00000.npy"
    assert result.read_bytes() == (tmp_path / "one.npy").read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file system of its own, of 20 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    result = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", str(folder)], capture_output=True)
    if result.returncode:
        pytest.skip(f"no file system can be mounted here: {result.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_object_store_and_a_full_disk_are_one_sentence(tmp_path: Path, small_disk: Path) -> None:
    output, _ = limited(tmp_path, 500, SPILL=str(small_disk))
    assert output.startswith(
        "OSError: a node's object store, which keeps the ids of large files, and its disk are full: free"
    )
    assert "OutOfDiskError" in output
    assert "\x1b" not in output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"manifest.json"}


@pytest.mark.parametrize("part_size", [None, 60_000])
def test_a_full_disk_leaves_nothing_half_written(
    cluster: tuple[Any, list[Any]], files: list[Path], small_disk: Path, part_size: int | None
) -> None:
    """The work done before stays, and the rest is written when there is room."""
    tokenizer, out, alone = bpe.train(files, 257), small_disk / "tokens", files[0].parent / "one.npy"
    tokenizer.encode_file(files[0], alone)
    left = 7 * alone.stat().st_size // 2  # room for three files of eight
    with open(small_disk / "ballast", "wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, shutil.disk_usage(small_disk).free - left)
    with pytest.raises(OSError, match="No space left on device") as raised:
        bpe.cluster.encode(files, out, tokenizer, part_size=part_size)
    assert "\n" not in str(raised.value)
    (small_disk / "ballast").unlink()
    first = bpe.cluster.Manifest.load(out)
    assert any(file.tokens is None for file in first.files)
    manifest = bpe.cluster.encode(files, out, tokenizer, part_size=part_size)
    for file, encoded in zip(files, manifest.files, strict=True):
        tokenizer.encode_file(file, alone)
        assert (out / encoded.output).read_bytes() == alone.read_bytes()
    assert not list(out.glob(".*"))


def test_no_memory_is_one_sentence(tmp_path: Path) -> None:
    """Ray's watch over memory, told that a hundredth of it is all there is, ends every task."""
    output, _ = limited(
        tmp_path, 1, RAY_memory_usage_threshold="0.01", RAY_memory_monitor_refresh_ms="100", RAY_task_oom_retries="2"
    )
    assert output.startswith("MemoryError: a node has too little memory")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"manifest.json"}


HOSTS = ("head", "first", "second")
WAIT = """
import os, socket, sys, time
while True:
    try:
        socket.create_connection(("10.77.0.1", 6379), timeout=5).close()
        break
    except OSError:
        time.sleep(1)
time.sleep(5)
os.execv(sys.argv[1], sys.argv[1:])
"""
PROGRAM = """
import sys, time, ray, bpe, bpe.cluster
from pathlib import Path
while True:
    try:
        ray.init(address=sys.argv[1], log_to_driver=False)
        break
    except ConnectionError:
        time.sleep(1)
while sum(node["Alive"] for node in ray.nodes()) < 3:
    time.sleep(1)
told = []
files = [Path(name) for name in sys.argv[3:]]
tokenizer = bpe.cluster.train(files, 1000, part_size=3_000, summary=told.append)
bpe.cluster.encode(files, sys.argv[2], tokenizer, part_size=30_000, summary=told.append)
for summary in told:
    print(summary)
print(tokenizer.fingerprint, *({node.split()[0] for summary in told for node in summary.nodes}))
"""


@pytest.fixture
def hosts() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function that starts a command on one of three hosts: network namespaces, joined by a bridge in a fourth."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the command ip")
    tag = f"bpe{os.getpid()}"
    names = [f"{tag}-{host}" for host in ("switch", *HOSTS)]
    started: list[subprocess.Popen[str]] = []

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
        switch, *rest = names
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate(rest, 1):
            ip("-n", name, "link", "add", "eth", "type", "veth", "peer", "name", f"port{number}", "netns", switch)
            ip("-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth")
            for device in ("lo", "eth"):
                ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "route", "add", "default", "dev", "eth")  # or Ray does not know its own address

        def start(host: str, *command: str) -> subprocess.Popen[str]:
            whole = ["ip", "netns", "exec", f"{tag}-{host}", *command]
            environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "PYTHONWARNINGS": "ignore"}
            started.append(
                subprocess.Popen(
                    whole,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=environment,
                    start_new_session=True,
                )
            )
            return started[-1]

        yield start
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode()}")
    finally:
        for process in started:
            process.terminate()
        for name in names:
            inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            subprocess.run(["kill", "-9", *inside], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        for process in started:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def test_hosts_give_what_one_gives(hosts: Callable[..., Any], files: list[Path], tmp_path: Path) -> None:
    """The tokenizer and every token file. Each host has its own folder of Ray's."""
    start = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", "--disable-usage-stats")
    with ExitStack() as stack:
        running = []
        for number, host in enumerate(HOSTS, 1):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True))
            command = [*start, f"--object-store-memory={STORE}", f"--node-ip-address=10.77.0.{number}"]
            command += [f"--temp-dir={folder}"]
            if number == 1:
                command += ["--head", "--port=6379", "--include-dashboard=false"]
            else:  # once the head listens: they give up early
                command = [sys.executable, "-c", WAIT, *command, "--address=10.77.0.1:6379"]
            running.append(hosts(host, *command))
        out = tmp_path / "tokens"
        program = hosts("head", sys.executable, "-c", PROGRAM, "10.77.0.1:6379", str(out), *map(str, files))
        while program.poll() is None:
            for host, process in zip(HOSTS, running, strict=True):
                assert process.poll() is None, (host, process.communicate()[0])
            time.sleep(0.5)
        output, _ = program.communicate()
        assert program.returncode == 0, output
    fingerprint, *addresses = output.splitlines()[-1].split()
    tokenizer = bpe.train(files, 1000)
    assert fingerprint == tokenizer.fingerprint
    assert len(addresses) > 1, output  # that all three take part is up to Ray
    for number, file in enumerate(files):
        tokenizer.encode_file(file, tmp_path / "one.npy")
        assert (out / f"{number:05}.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()
