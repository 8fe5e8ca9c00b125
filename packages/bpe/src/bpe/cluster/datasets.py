"""encode() of a Ray Dataset: its rows in order to one output, or to several of a bounded size.

    the Dataset's blocks      read and made by Ray Data, as its plan says
        |
    map_batches               a pool of actors, each with the tokenizer: tables of texts to tables of ids
        |
    the calling machine       writes the ids in the order of the rows, as encode_file() writes those of an iterator

Which texts are in a block changes nothing: ids are written by documents.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpe.cluster.jobs import fetched_tokenizer, make_room, recipe_for
from bpe.cluster.manifest import EncodedFile, Manifest, output_name
from bpe.cluster.session import Summary, TaskReport, this_task
from bpe.native.arrow import pyarrow
from bpe.native.progress import Progress
from bpe.outputs.encode_source import Encoded, encoded_groups, write_encoded

if TYPE_CHECKING:
    from bpe.tokenizer import Tokenizer

SHARDED = "tokens"  # the name of files with shard_tokens, before their numbers
INPUT = "Ray Dataset"  # what the manifest names as its input


def is_dataset(source: Any) -> bool:
    """True if a source is a Ray Dataset."""
    return hasattr(source, "iter_internal_ref_bundles")


def texts_of(table: Any, column: str) -> Any:
    """The column of texts of an Arrow table. ValueError where there is none."""
    if column not in table.column_names:
        raise ValueError(f"the dataset has no column {column!r}; there are {', '.join(table.column_names)}")
    return table[column]


def encode_dataset(
    ray: Any,
    dataset: Any,
    folder: Path,
    tokenizer: Tokenizer,
    plan: Manifest,
    ending: str,
    num_threads: int,
    report: Progress,
    about: Summary,
) -> Manifest:
    """Encode the rows of a Ray Dataset into a folder. Returns the manifest.

    plan: A manifest without files: its settings are encode()'s. ending: Of the token files.
    """
    with suppress(FileNotFoundError):
        plan.check_is_of_same_run(Manifest.load(folder), folder)
    plan.save(folder)
    settings = plan.settings
    shard_tokens, recipe = settings["shard_tokens"], recipe_for(tokenizer, settings)
    out = folder / f"{output_name(0, 1) if shard_tokens is None else SHARDED}{ending}"
    if shard_tokens is None:
        make_room(out, settings["format"])
    # Closed, it gives the actors' CPUs back also after an error.
    with _quiet(dataset), closing(_encoded_tables(ray, dataset, tokenizer, settings, num_threads)) as tables:
        write_encoded(lambda skip: _groups(tables, skip, about), out, recipe, shard_tokens, report)
    paths = [out]
    if shard_tokens is not None:  # by the ending, for that of a folder is none
        paths = sorted(path for path in folder.glob(f"{SHARDED}-*") if path.suffix == ending)
    plan.files = [EncodedFile.of(INPUT, [], path) for path in paths]
    plan.save(folder)
    return plan


@contextmanager
def _quiet(dataset: Any) -> Iterator[None]:
    """A Dataset whose rows come in order, and which draws no bars of its own."""
    context, logger = dataset.context, logging.getLogger("ray.data")
    before = context.execution_options.preserve_order, context.enable_progress_bars, logger.level
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    logger.setLevel(logging.CRITICAL)  # errors are raised
    try:
        yield
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars, level = before
        logger.setLevel(level)


def _encoded_tables(ray: Any, dataset: Any, tokenizer: Tokenizer, settings: dict[str, Any], num_threads: int) -> Any:
    """Tables of what _Encoder gives, in order."""
    from ray.data import ActorPoolStrategy

    cpus = int(ray.cluster_resources().get("CPU", 1))
    encoded = dataset.map_batches(
        _Encoder,
        fn_constructor_args=([ray.put(tokenizer)], settings, num_threads),
        batch_format="pyarrow",
        batch_size=None,
        zero_copy_batch=True,
        num_cpus=num_threads,
        compute=ActorPoolStrategy(min_size=1, max_size=max(1, cpus // num_threads)),
    )
    return iter(encoded.iter_batches(batch_size=None, batch_format="pyarrow"))


class _Encoder:
    """An actor that encodes a table of texts to one of pickled parts: its report, then groups of ids.

    An error is a part too, or Ray Data would tell it in three paragraphs.
    """

    def __init__(self, tokenizer: list[Any], settings: dict[str, Any], num_threads: int) -> None:
        self.tokenizer, self.settings, self.num_threads = fetched_tokenizer(*tokenizer), settings, num_threads
        self.recipe = recipe_for(self.tokenizer, settings)

    def __call__(self, table: Any) -> Any:
        begun = time.perf_counter()
        try:
            groups = list(self._groups(table))
            parts: list[Any] = [this_task(sum(group.read for group in groups), begun), *groups]
        except Exception as error:
            parts = [error]
        return pyarrow().table({"part": pyarrow().array(map(pickle.dumps, parts), pyarrow().large_binary())})

    def _groups(self, table: Any) -> Iterator[Encoded]:
        column = texts_of(table, self.settings["text_key"]).cast(pyarrow().large_binary())
        texts = (text for chunk in column.chunks for text in chunk.to_pylist() if text is not None)
        return encoded_groups(texts, self.recipe, self.num_threads)


def _groups(tables: Any, skip: int, about: Summary) -> Iterator[Encoded]:
    """The groups of tables in order, but for their first `skip` stretches."""
    for part in (pickle.loads(row.as_buffer()) for table in tables for row in table["part"]):
        if isinstance(part, Exception):
            raise part
        if isinstance(part, TaskReport):
            about.add(part)
            continue
        stretches = len(part.stretch_ends)
        if skip < stretches:
            yield _without(part, skip) if skip else part
        skip = max(0, skip - stretches)


def _without(group: Encoded, skip: int) -> Encoded:
    """A group without its first `skip` stretches."""
    ids, text = group.stretch_ends[skip - 1], group.text_ends[skip - 1]
    return Encoded(
        group.ids[ids:],
        group.document_ends[group.document_ends > ids] - ids,
        group.stretch_ends[skip:] - ids,
        group.text_ends[skip:] - text,
        group.read,
    )
