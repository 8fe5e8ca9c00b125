"""A run's folder on hosts that do not share a disk: each has one of its own, and all of them are kept alike.

find_keepers    which processes write: process 0, and of those that do not see its folder the first that sees another
gather_newest   sends process 0 the checkpoint of a host that has come further
spread          sends the run, as process 0 has it, to the keepers whose folders differ from its own
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from lm.config import ModelConfig, TrainConfig
from lm.files import atomic_write, fsync
from lm.training import checkpoint
from lm.training.checkpoint import Damaged
from lm.training.distributed import DistributedContext, ProcessesDiffer
from lm.training.run_folder import CHECKPOINTS, CONFIG, METRICS, REFERENCE, remove, writing
from lm.training.start import known_and_asked

SEEN_WITHIN = 5.0  # seconds in which a new file in a folder is seen by all who share it
PIECE = 1 << 24  # bytes of a file that are sent at a time
RECEIVED = ".received"
SENT = (CONFIG, METRICS, "environment.json", "tokenizer.*", f"{REFERENCE}/**/*")


def find_keepers(run_dir: Path, distributed: DistributedContext) -> tuple[int, ...]:
    """The processes that write a run's folder, one for each folder that there is of it. All processes call it."""
    if distributed.size == 1:
        return (0,)
    name = distributed.on_main(lambda: f".here-{secrets.token_hex(8)}")

    def mark() -> Path:
        with writing(run_dir):
            run_dir.mkdir(parents=True, exist_ok=True)
            (path := run_dir / f"{name}-{distributed.rank}").touch()
        return path

    own = distributed.on_all(mark)
    try:
        found = distributed.gather(first_seen(run_dir, name))
    finally:
        own.unlink(missing_ok=True)
    return tuple(sorted({first for _, first in found}))


def first_seen(run_dir: Path, name: str) -> int:
    """The first process whose mark is in the folder: process 0 where it can be seen in time."""
    last = time.monotonic() + SEEN_WITHIN
    while not (run_dir / f"{name}-0").exists():
        if time.monotonic() > last:
            return min(int(path.name.rpartition("-")[2]) for path in run_dir.glob(f"{name}-*"))
        time.sleep(0.05)
    return 0


def refuse_apart(run_dir: Path, distributed: DistributedContext) -> None:
    """For runs whose processes write one checkpoint together: ProcessesDiffer where they do not share a folder."""
    others = [rank for rank in distributed.keepers if rank]
    if others:
        host = distributed.gather(None)[others[0]][0]
        raise ProcessesDiffer(
            f"process {others[0]} on {host} does not see the {run_dir} of process 0, and with parallel 'fsdp' all "
            f"processes write one checkpoint: give them one folder, on a disk that all of them share"
        )


def gather_newest(
    run_dir: Path,
    model: ModelConfig,
    config: TrainConfig,
    data: dict[str, Any],
    distributed: DistributedContext,
    *,
    restart: bool,
) -> None:
    """Sends process 0 the run of the keeper that has come furthest, if that is another. All processes call it.

    restart: removes what the others have instead; process 0 removes its own when it begins again. ValueError: the run
    in one of the folders is another than the one that is asked for; by name.
    """
    if len(distributed.keepers) == 1:
        return
    if restart:
        distributed.on_keepers(lambda: None if distributed.is_main else remove(run_dir))
        return
    distributed.on_keepers(lambda: known_and_asked(run_dir, model, config, data))
    reached = [step for _, step in distributed.gather(newest_step(run_dir) if distributed.is_keeper else None)]
    furthest = max(distributed.keepers, key=lambda rank: (reached[rank], -rank))
    if reached[furthest] > reached[0]:
        bring(run_dir, distributed, furthest, [0])


def spread(run_dir: Path, distributed: DistributedContext) -> None:
    """Sends the run of process 0 to the keepers whose folders differ from its own. All processes call it."""
    if len(distributed.keepers) == 1:
        return
    held = [what for _, what in distributed.gather(contents(run_dir) if distributed.is_keeper else None)]
    lacking = [rank for rank in distributed.keepers if held[rank] != held[0]]
    if lacking:
        bring(run_dir, distributed, 0, lacking)


def newest_step(run_dir: Path) -> int:
    """The step of the newest whole checkpoint of a folder, -1 where there is none."""
    try:
        saved = checkpoint.load(run_dir / CHECKPOINTS) if (run_dir / CONFIG).is_file() else None
    except Damaged:
        return -1
    return -1 if saved is None else saved.step


def contents(run_dir: Path) -> tuple[str, dict[str, str]] | None:
    """What a folder says of its run, and the hashes of its newest checkpoint."""
    try:
        saved = checkpoint.load(run_dir / CHECKPOINTS)
        return (run_dir / CONFIG).read_text(), {} if saved is None else saved.hashes
    except (OSError, Damaged):
        return None


def bring(run_dir: Path, distributed: DistributedContext, source: int, targets: list[int]) -> None:
    """Sends the run in the folder of one process to others', which take it whole or not at all.

    All processes call it. checkpoint.NotSaved: one of them has no space for it.
    """
    received, failed = run_dir / RECEIVED, cast("OSError | None", None)
    pieces = read_pieces(run_dir)
    while (piece := distributed.on_rank(source, lambda: next(pieces, None))) is not None:
        if distributed.rank in targets and failed is None:
            path = received / piece[0]
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "ab") as file:
                    file.write(piece[1])
            except OSError as error:
                failed = error

    def take() -> None:
        try:
            with writing(run_dir):
                if failed is not None:
                    raise failed
                if distributed.rank in targets:
                    put_in_place(received, run_dir)
        finally:
            shutil.rmtree(received, ignore_errors=True)

    distributed.on_all(take)


def read_pieces(run_dir: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a run and of its newest checkpoint, in pieces: each with the name of its file."""
    saved = checkpoint.load(run_dir / CHECKPOINTS)
    paths = [path for pattern in SENT for path in run_dir.glob(pattern)]
    if saved is not None:
        paths += saved.path.rglob("*")
    for path in sorted(path for path in paths if path.is_file()):
        with open(path, "rb") as file:
            name = path.relative_to(run_dir).as_posix()
            yield name, file.read(PIECE)
            while block := file.read(PIECE):
                yield name, block


def put_in_place(received: Path, run_dir: Path) -> None:
    """Moves what was received to where it belongs; the checkpoint first, since the rest may be there without one."""
    for step in checkpoint.steps(received / CHECKPOINTS):
        saved = checkpoint.open_checkpoint(received / CHECKPOINTS / checkpoint.name_of(step))
        final = run_dir / CHECKPOINTS / saved.path.name
        for name in saved.hashes.keys() - {checkpoint.STATE}:
            fsync(saved.path / name)
        final.parent.mkdir(exist_ok=True)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(saved.path, final)
        fsync(final.parent)
        atomic_write(final.parent / "latest", final.name + "\n")
    (run_dir / CHECKPOINTS).mkdir(exist_ok=True)
    if (received / REFERENCE).is_dir():
        shutil.rmtree(run_dir / REFERENCE, ignore_errors=True)
        os.rename(received / REFERENCE, run_dir / REFERENCE)
    for path in received.iterdir():
        if path.is_file():
            os.replace(path, run_dir / path.name)
