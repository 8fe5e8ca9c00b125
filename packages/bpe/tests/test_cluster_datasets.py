"""Ray Datasets are counted and encoded as their texts would be on one machine. Skipped where Ray is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_node import QUIET, contents, one_node_of_ray, write_files
from strategies import corpus

import bpe
import bpe.cluster
from bpe.cluster.manifest import Manifest

ray = pytest.importorskip("ray")
pytestmark = QUIET


@pytest.fixture(scope="module", autouse=True)
def one_node() -> Iterator[None]:
    """A cluster that all tests of this file share."""
    with one_node_of_ray():
        yield


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write_files(tmp_path)


def test_a_dataset_is_counted_by_its_column(files: list[Path]) -> None:
    pytest.importorskip("pyarrow")
    import ray.data

    texts = [corpus(i, 40) for i in range(50)]
    dataset = ray.data.from_items([{"body": text} for text in texts], override_num_blocks=7)
    assert bpe.cluster.count(dataset, text_key="body") == bpe.count(texts)
    with pytest.raises(ValueError, match="body"):
        bpe.cluster.count(dataset)


def test_a_dataset_is_encoded_in_order(files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import ray.data

    tokenizer = bpe.train(files, 400)
    texts = [corpus(i, 30 + 40 * (i % 7)) for i in range(90)] + [""]
    items = [{"body": text, "number": i} for i, text in enumerate(texts)]
    options: dict[str, Any] = {"end_of_text": "<|endoftext|>", "text_key": "body"}
    for blocks, format in ((1, "npy"), (7, "parquet")):
        out, alone = tmp_path / f"{blocks}-{format}", tmp_path / f"{blocks}-{format}-alone"
        dataset = ray.data.from_items([*items, {"body": None, "number": -1}], override_num_blocks=blocks)
        messages: list[bpe.cluster.Summary] = []
        manifest = bpe.cluster.encode(dataset, out, tokenizer, format=format, summary=messages.append, **options)
        alone.mkdir()
        count = tokenizer.encode_file(
            iter(texts), alone / manifest.files[0].output, format=format, end_of_text="<|endoftext|>"
        )
        assert manifest.tokens == count == bpe.cluster.merge(out)
        assert manifest == Manifest.load(out)
        assert messages[0].bytes == sum(len(text.encode()) for text in texts)
        result = contents(out)
        assert {name: result[name] for name in contents(alone)} == contents(alone)


@pytest.mark.parametrize("blocks", [2, 9])
def test_a_dataset_is_encoded_into_shards(files: list[Path], tmp_path: Path, blocks: int) -> None:
    """They go on where a run was stopped: here after the first two."""
    pytest.importorskip("pyarrow")
    import ray.data

    tokenizer, out, alone = bpe.train(files, 400), tmp_path / "tokens", tmp_path / "alone"
    texts = [corpus(i, 100) for i in range(80)]
    dataset = ray.data.from_items([{"text": text} for text in texts], override_num_blocks=blocks)
    alone.mkdir()
    count = tokenizer.encode_file(iter(texts), alone / "tokens.npy", shard_tokens=3000)

    def stopped(phase: str, done: int, total: int | None) -> None:
        if len(list(out.glob("tokens-*.npy"))) >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bpe.cluster.encode(dataset, out, tokenizer, shard_tokens=3000, progress=stopped)
    with pytest.raises(ValueError, match="not encoded yet"):
        bpe.cluster.merge(out)
    for _ in range(2):  # the second time nothing is left to do
        manifest = bpe.cluster.encode(dataset, out, tokenizer, shard_tokens=3000)
        assert manifest.tokens == count == bpe.cluster.merge(out)
    result = contents(out)
    assert {name: result[name] for name in contents(alone)} == contents(alone)
    with pytest.raises(ValueError, match="another run"):
        bpe.cluster.encode(dataset, out, tokenizer, shard_tokens=2000)


def test_mistakes_with_a_dataset(files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import ray.data

    tokenizer = bpe.train(files, 300)
    dataset = ray.data.from_items([{"body": "a"}])
    with pytest.raises(ValueError, match="body"):
        bpe.cluster.encode(dataset, tmp_path / "out", tokenizer)

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError("never by nothing")

    failing, out = dataset.map(fails), tmp_path / "failing"
    for call in (bpe.cluster.count, lambda source, **more: bpe.cluster.encode(source, out, tokenizer, **more)):
        with pytest.raises(RuntimeError, match="never by nothing") as raised:
            call(failing, text_key="body")
        assert "\n" not in str(raised.value)
    for folder in (tmp_path / "out", out):
        assert [path.name for path in folder.iterdir()] == ["manifest.json"]
