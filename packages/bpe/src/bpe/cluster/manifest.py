"""manifest.json: which file was encoded into which, so that a second run skips what is done.

Its keys are the fields of Manifest and EncodedFile. A file that is not done has no tokens and no hash.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from bpe.cluster.ranges import Input
from bpe.corpus import remote
from bpe.outputs.writer import beside, parse_description

NAME = "manifest.json"


def description(out: str) -> dict[str, Any] | None:
    """Return the description beside an output; None where there is none of ids."""
    with suppress(FileNotFoundError):
        return parse_description(remote.read_bytes(beside(out)))
    return None


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
        return is_same and remote.is_there(path)


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
            file.write(
                (json.dumps(vars(self), default=vars) + "\n").encode()
            )  # with indent= Python would encode it, not C

    @classmethod
    def load(cls, folder: str) -> Manifest:
        """Read the manifest of a folder. FileNotFoundError: there is none. ValueError: it is damaged."""
        path = remote.inside(folder, NAME)
        try:
            about = json.loads(remote.read_bytes(path))
            return cls(about["tokenizer"], about["settings"], [EncodedFile(**file) for file in about["files"]])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path} is no manifest of this version: remove it to encode again") from None

    @classmethod
    def planned(cls, folder: str, tokenizer: str, settings: Any, inputs: list[Input], ending: str) -> Manifest:
        """Return a manifest of inputs, with what earlier runs in the folder have done, and save it there.

        An output that has a description is whole, and of the version that the earlier manifest names, whether or not
        that run had time to note it: one of another version loses its description before the manifest is saved.

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
        for file in reversed(earlier.files):
            before.setdefault(file.input, []).append(file)
        number, manifest = count(len(earlier.files)), cls(tokenizer, settings, [])
        for entry in inputs:
            same = before.get(entry.name)
            old = same.pop() if same else EncodedFile(entry.name, [], f"{next(number):05}{ending}")
            manifest.files.append(file := EncodedFile(entry.name, entry.version, old.output))
            out = remote.inside(folder, old.output)
            if (about := description(out)) is not None:
                if old.version == entry.version and about["tokenizer"] == tokenizer and remote.is_there(out):
                    file.tokens, file.sha256 = about["count"], about["sha256"]
                else:
                    remote.remove(beside(out))
        for file in chain.from_iterable(before.values()):
            raise ValueError(
                f"{folder} holds the output of other files, as {file.input}: name them too, name another folder, or "
                "remove this one"
            )
        manifest.save(folder)
        return manifest
