"""Which token files of a folder are for training, and which are held out."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lm.data.token_formats import ENDINGS

PREPARED = "prepared.json"  # of prepare: what the folder is made of, and whether it is finished
HELD_OUT = re.compile(r"(heldout|held-out|held_out|val|valid|validation|dev)(?![a-z])", re.IGNORECASE)
TRAINING = re.compile(r"train(?![a-z])", re.IGNORECASE)
NEITHER = re.compile(r"test(?![a-z])", re.IGNORECASE)


def token_files(folder: str | Path, *, unfinished: bool = False) -> tuple[list[Path], list[Path]]:
    """The token files of a folder that are for training, and those held out, each in the order of their names.

    They are the .npy files; where there are none, the .bin files, then .ds, .parquet and .arrow.

    Names that begin with heldout, val, valid, validation or dev are held out, those that begin with test are left
    alone. The others are for training; where some of them begin with train, only those. Numbers in names count as
    numbers.
    unfinished: also of a folder that prepare has not finished. ValueError: it has not.
    FileNotFoundError: no such folder, or nothing in it to train on.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}: make it with `lm data prepare` or `lm data get`")
    if not unfinished and not finished(folder):
        raise ValueError(f"{folder} is not finished: the `lm data` command that began it goes on with it")
    there = list(folder.iterdir())
    ending = next((ending for ending in ENDINGS if any(path.suffix == ending for path in there)), None)
    names = sorted((path for path in there if path.suffix == ending), key=by_number)
    heldout = [path for path in names if HELD_OUT.match(path.name)]
    others = [path for path in names if path not in heldout and not NEITHER.match(path.name)]
    named = [path for path in others if TRAINING.match(path.name)]
    if not others:
        raise FileNotFoundError(
            f"there is no token file to train on in {folder}: it takes train.npy, train-00000.npy and so on, or any "
            f"file of ids, which end in {', '.join(ENDINGS)}"
        )
    return named or others, heldout


def finished(folder: Path) -> bool:
    """Whether a folder is whole, as one is that was not made by prepare."""
    try:
        return bool(json.loads((folder / PREPARED).read_text())["finished"])
    except FileNotFoundError:
        return True
    except (ValueError, KeyError, TypeError):
        return False


def by_number(path: Path) -> list[tuple[int, str]]:
    """A key by which part-2 comes before part-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.stem)]
