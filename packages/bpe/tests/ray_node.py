"""Helpers of the tests of bpe.cluster: a cluster of one node, files to count and encode, and comparisons of outputs."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from strategies import corpus

QUIET = [  # what Ray's own modules warn of
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@contextmanager
def one_node_of_ray() -> Iterator[None]:
    """A cluster of one node with two CPUs. The test is skipped where Ray is not installed, or does not start."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    try:
        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=80_000_000,
            _node_ip_address="127.0.0.1",
        )
    except Exception as error:  # it says no more
        pytest.skip(f"Ray does not start here: {error}")
    yield
    ray.shutdown()


def write_files(folder: Path) -> list[Path]:
    """A text of several parts, JSON lines, an empty file and a compressed one."""
    (folder / "a.txt").write_text(corpus(1, 20_000))
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": corpus(i, 50)}) + "\n" for i in range(60)))
    (folder / "c.txt").touch()
    (folder / "d.txt.gz").write_bytes(gzip.compress(corpus(2, 5_000).encode()))
    return sorted(folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
