"""Engines of data encode and count by bpe as one machine does. Each is skipped where it is not installed."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_node import QUIET, one_node_of_ray
from strategies import corpus

import bpe
from bpe.integrations.engines import ArrowCounter, ArrowEncoder
from bpe.tokenizer import Tokenizer

pyarrow = pytest.importorskip("pyarrow")
pytestmark = QUIET
TEXTS = [*(corpus(number, 5 + 60 * (number % 3)).replace("<|", "|") for number in range(60)), "", "größer 字"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return bpe.train(TEXTS, 400)


@pytest.fixture(scope="module")
def rows(tokenizer: Tokenizer) -> list[list[int]]:
    return tokenizer.encode_batch(TEXTS)


def counts_of(table: Any) -> bpe.Counts:
    return bpe.Counts.from_arrow(table)


def test_tables_are_encoded_and_counted(tokenizer: Tokenizer, rows: list[list[int]]) -> None:
    other = bpe.train(TEXTS, 300)
    table = pyarrow.table({"body": [*TEXTS, None]})
    encoder = ArrowEncoder({"large": tokenizer, "small": other}, text="body", num_threads=2)
    encoded = pickle.loads(pickle.dumps(encoder))(table)
    assert encoded["large"].to_pylist() == [*rows, None]
    assert encoded["small"].to_pylist() == [*other.encode_batch(TEXTS), None]
    assert counts_of(ArrowCounter(text="body")(table)) == bpe.count(TEXTS)
    with pytest.raises(ValueError, match=r"'text'.*body"):
        ArrowEncoder(tokenizer)(table)
    with pytest.raises(ValueError, match="endoftext"):
        ArrowEncoder(tokenizer)(pyarrow.table({"text": ["<|endoftext|>"]}))


def test_datasets(tokenizer: Tokenizer, rows: list[list[int]]) -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"text": TEXTS}).with_format("arrow")
    encoded = dataset.map(ArrowEncoder(tokenizer), batched=True, batch_size=7)
    assert encoded.with_format(None)["ids"][:] == rows


def test_dask(tokenizer: Tokenizer, rows: list[list[int]]) -> None:
    pandas, dask = pytest.importorskip("pandas"), pytest.importorskip("dask")
    dataframe = pytest.importorskip("dask.dataframe")
    with dask.config.set(scheduler="threads"):
        frame = dataframe.from_pandas(pandas.DataFrame({"text": TEXTS}), npartitions=5)
        encoded = frame.map_partitions(ArrowEncoder(tokenizer).frame, meta={"text": str, "ids": object}).compute()
        assert [list(row) for row in encoded["ids"]] == rows
        assert list(encoded.index) == list(range(len(TEXTS)))
        counted = frame.map_partitions(ArrowCounter().frame, meta={"word": object, "count": "int64"}).compute()
    assert counts_of(counted) == bpe.count(TEXTS)


def test_ray_data(tokenizer: Tokenizer, rows: list[list[int]]) -> None:
    pytest.importorskip("ray")
    with one_node_of_ray():
        import ray.data

        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order, context.enable_progress_bars = True, False
        dataset = ray.data.from_items([{"text": text} for text in TEXTS], override_num_blocks=4)
        encoded = dataset.map_batches(
            ArrowEncoder, fn_constructor_args=(tokenizer,), batch_format="pyarrow", concurrency=1
        )
        assert [list(row["ids"]) for row in encoded.take_all()] == rows
        counted = dataset.map_batches(ArrowCounter(), batch_format="pyarrow").to_arrow_refs()
        assert counts_of(pyarrow.concat_tables(ray.get(counted))) == bpe.count(TEXTS)


@pytest.mark.parametrize("lists", [False, True])
def test_datatrove(tokenizer: Tokenizer, rows: list[list[int]], tmp_path: Path, lists: bool) -> None:
    pytest.importorskip("datatrove")
    from datatrove.data import Document
    from datatrove.executor import LocalPipelineExecutor

    from bpe.integrations.datatrove import Encode

    documents = [Document(text=text, id=str(number)) for number, text in enumerate(TEXTS)]
    written: list[Any] = []

    def collect(data: Any, rank: int = 0, world_size: int = 1) -> Any:
        for document in data:
            written.append(document)
            yield document

    pipeline = [documents, Encode(tokenizer, batch=7, lists=lists), collect]
    stats = LocalPipelineExecutor(pipeline, logging_dir=str(tmp_path)).run()
    assert {type(document.metadata["ids"]) for document in written} == {list if lists else np.ndarray}
    assert [list(document.metadata["ids"]) for document in written] == rows
    assert [document.metadata["token_count"] for document in written] == list(map(len, rows))
    assert stats.stats[0].stats["tokens"].total == sum(map(len, rows))


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_spark(tokenizer: Tokenizer, rows: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs Java. The rows come in the order of their partitions."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    sql = pytest.importorskip("pyspark.sql")
    session = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame = session.createDataFrame([(text,) for text in TEXTS], "text string").repartitionByRange(3, "text")
        encoded = frame.mapInArrow(ArrowEncoder(tokenizer).batches, "text string, ids array<int>").collect()
        assert {row.text: list(row.ids) for row in encoded} == dict(zip(TEXTS, rows, strict=True))
        counted = frame.mapInArrow(ArrowCounter().batches, "word binary, count bigint").toArrow()
        assert counts_of(counted) == bpe.count(TEXTS)
    finally:
        session.stop()
