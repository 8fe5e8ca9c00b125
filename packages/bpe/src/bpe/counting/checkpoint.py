"""The counts of a training run on disk: a run that was stopped learns its merges from them again, with the same result.

A checkpoint is a folder with one file, `counts` (see bpe.counting.counts_file), which bpe.Counts.load() reads too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpe import patterns
from bpe.corpus import sources
from bpe.counting import counts_file
from bpe.native.atomic_file import StrPath

if TYPE_CHECKING:
    from bpe.counting.records import Records


class Checkpoint:
    """The counts of one corpus, pattern and list of special tokens in a folder.

    Raises:
        ValueError: The corpus is not a list of files, so that a later run could not tell whether it is the same.
    """

    def __init__(
        self, folder: StrPath, source: sources.Source, pattern: patterns.Pattern, special_tokens: tuple[str, ...]
    ) -> None:
        self._path = Path(folder) / "counts"
        self._source = source
        self._about: dict[str, Any] = {
            "corpus": _corpus(source),
            "pattern": patterns.to_plain(pattern),
            "special_tokens": list(special_tokens),
        }

    def read(self) -> Records | None:
        """Return the records, a map of their file; None if there is no file yet.

        Raises:
            ValueError: The counts are those of another run, or the file is damaged.
        """
        if not self._path.exists():
            return None
        try:
            about, records = counts_file.read(self._path)
        except ValueError as error:
            raise ValueError(f"{error}; delete it to count again") from None
        for name, value in self._about.items():
            other = about.get(name) if isinstance(about, dict) else None
            if other != value:
                difference = (
                    _difference(other, value) if name == "corpus" else f"its {name} is {other!r}, not {value!r}"
                )
                raise ValueError(
                    f"{self._path.parent} is the checkpoint of another run: {difference}; name another folder, "
                    "or delete it"
                )
        return records

    def write(self, records: Records) -> None:
        """Write the records, whole or not at all. ValueError if the corpus has changed since the run began."""
        if _corpus(self._source) != self._about["corpus"]:
            raise ValueError("the corpus was changed while it was counted; train again when its files are complete")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        counts_file.write(self._path, self._about, [records])


def _corpus(source: sources.Source) -> list[list[Any]]:
    files = sources.identity(source)
    if files is None:
        raise ValueError(
            "a checkpoint needs a corpus of files, to compare it with that of a later run; write the texts to a file, "
            "or train without a checkpoint"
        )
    return sorted(files, key=repr)


def _difference(other: Any, files: list[list[Any]]) -> str:
    """Return which file makes two corpora differ."""
    versions = {tuple(map(str, file[:3])): file for file in other or []}
    for file in files:
        previous = versions.pop(tuple(map(str, file[:3])), None)
        if previous is None:
            return f"{file[2]} was not in its corpus"
        if previous != file:
            return f"{file[2]} has changed since"
    return f"{next(iter(versions))[2]} was in its corpus" if versions else "a file occurs another number of times"
