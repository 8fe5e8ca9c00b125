"""manifest.json: which file was encoded into which, so that a second run skips what is done.

    {"format": 1, "tokenizer": FINGERPRINT, "settings": {…}, "files": [
        {"input": PATH, "version": [SIZE, TIME OF CHANGE],
         "output": "00000.npy", "tokens": COUNT, "sha256": OF THE IDS, "error": null}, …]}

Files come in the order of the source. One that is not done has no tokens and no hash, and an error if it was skipped.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bpe.cluster.ranges import Input
from bpe.corpus import remote
from bpe.outputs.writer import description_of, parse_description

NAME = "manifest.json"
FORMAT = 1


def description(out: str) -> dict[str, Any] | None:
    """Return the description beside an output; None where there is none of ids."""
    with suppress(FileNotFoundError):
        return parse_description(remote.read_bytes(beside(out)))
    return None


def beside(out: str) -> str:
    """The path, or the URL, of the description of an output."""
    return remote.beside(out, description_of(Path(remote.name_of(out))).name)


@dataclass
class EncodedFile:
    """An input and its output."""

    input: str  # path or URL
    version: list[Any]  # size and time of change, or what its server says
    output: str  # the name of the token file in the folder of the manifest
    tokens: int | None = None  # number of ids; None until it is done
    sha256: str | None = None  # of the ids, as the description beside the token file has it
    error: str | None = None  # why on_error="skip" left the input out

    def is_in(self, folder: str) -> bool:
        """True if it is done, and its output is in a folder, described as it was written."""
        path = remote.inside(folder, self.output)
        about = None if self.tokens is None else description(path)
        is_same = about is not None and (about["count"], about["sha256"]) == (self.tokens, self.sha256)
        return is_same and (remote.is_there(path) if remote.is_url(path) else os.path.exists(path))


@dataclass
class Manifest:
    """The sources and settings of a folder of token files."""

    tokenizer: str  # its fingerprint
    settings: dict[str, Any]  # of encode_file()
    files: list[EncodedFile]  # of the source, in order

    @property
    def tokens(self) -> int:
        """The ids of all files that are done."""
        return sum(file.tokens or 0 for file in self.files)

    def save(self, folder: str) -> None:
        """Write it into a folder, whole or not at all."""
        with remote.output(remote.inside(folder, NAME)) as file:
            file.write((json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n").encode())

    @classmethod
    def load(cls, folder: str) -> Manifest:
        """Read the manifest of a folder. FileNotFoundError: there is none. ValueError: it is damaged."""
        path = remote.inside(folder, NAME)
        try:
            about = json.loads(remote.read_bytes(path))
            if about.pop("format") != FORMAT:
                raise ValueError
            return cls(about["tokenizer"], about["settings"], [EncodedFile(**file) for file in about["files"]])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{path} is no manifest of this version: remove it to encode again") from None

    @classmethod
    def planned(
        cls, folder: str, tokenizer: str, settings: dict[str, Any], inputs: list[Input], ending: str
    ) -> Manifest:
        """A manifest of inputs, with what earlier runs in the folder have done, and saved there.

        An earlier manifest names the version that each output was to be of. An output that is there, described, is of
        that version: a task writes it whole, and what is of another version loses its description here, before the
        manifest names the new version. So outputs are believed that the earlier run had no time to note.

        ValueError: the folder is of another tokenizer or other settings, or of files that are no longer named.
        """
        try:
            earlier = cls.load(folder)
        except FileNotFoundError:
            earlier = cls(tokenizer, settings, [])
        for what, now in (("tokenizer", tokenizer), ("settings", settings)):
            if getattr(earlier, what) != now:
                raise ValueError(
                    f"{folder} holds the output of another run, whose {what} was {getattr(earlier, what)} and is now "
                    f"{now}: name another folder, or remove this one"
                )
        before: dict[str, list[EncodedFile]] = {}
        for file in earlier.files:
            before.setdefault(file.input, []).append(file)
        number, manifest = len(earlier.files), cls(tokenizer, settings, [])
        for entry in inputs:
            if before.get(entry.name):
                old = before[entry.name].pop(0)
            else:
                old = EncodedFile(entry.name, [], f"{number:05}{ending}")
                number += 1
            file = EncodedFile(entry.name, entry.version, old.output)
            out = remote.inside(folder, old.output)
            if (about := description(out)) is not None:
                described = replace(file, tokens=about["count"], sha256=about["sha256"])
                is_noted = old.sha256 in (None, described.sha256) and about["tokenizer"] == tokenizer
                if old.version == entry.version and is_noted and described.is_in(folder):
                    file = described
                else:
                    remote.remove(beside(out))
            manifest.files.append(file)
        if left := [file.input for rows in before.values() for file in rows]:
            raise ValueError(
                f"{folder} holds the output of other files, as {left[0]}: name them too, name another folder, or "
                "remove this one"
            )
        manifest.save(folder)
        return manifest
