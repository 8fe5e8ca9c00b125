"""manifest.json: which file was encoded into which, so that a second run skips what is done.

    {"format": 1, "tokenizer": FINGERPRINT, "settings": {…}, "files": [
        {"input": PATH, "version": [SIZE, TIME OF CHANGE],
         "output": "00000-of-00002.npy", "tokens": COUNT, "sha256": OF THE IDS}, …]}

Files come in the order of the source. One that is not done has no tokens and no hash.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bpe.native.atomic_file import write_atomically
from bpe.outputs.writer import description_of, parse_description

NAME = "manifest.json"
FORMAT = 1


def output_name(number: int, files: int) -> str:
    """The name of an output without its ending."""
    width = max(5, len(str(files)))
    return f"{number:0{width}}-of-{files:0{width}}"


def description(out: Path) -> dict[str, Any] | None:
    """Return the description beside an output; None if it is not one of ids."""
    path = description_of(out)
    return parse_description(path.read_bytes()) if path.exists() else None


@dataclass
class EncodedFile:
    """An input and its output.

    Attributes:
        input: Its path or URL.
        version: By which it is seen whether it has changed: size and time of change, or what its server says.
        output: The name of the token file in the folder of the manifest.
        tokens: How many ids it has; None until it is done.
        sha256: Of the ids, as the description beside the token file has it.
    """

    input: str
    version: list[Any]
    output: str
    tokens: int | None = None
    sha256: str | None = None

    @classmethod
    def of(cls, name: str, version: list[Any], out: Path) -> EncodedFile:
        """An input of this name that is encoded into `out`, by the description beside it."""
        about = json.loads(description_of(out).read_bytes())
        return cls(name, version, out.name, about["count"], about["sha256"])

    def is_in(self, folder: Path) -> bool:
        """True if it is done, and its output is in a folder, described as it was written."""
        path = folder / self.output
        if self.tokens is None or not path.exists():
            return False
        about = description(path)
        return about is not None and (about["count"], about["sha256"]) == (self.tokens, self.sha256)


@dataclass
class Manifest:
    """The sources and settings of a folder of token files.

    Attributes:
        tokenizer: The tokenizer's fingerprint.
        settings: How it was asked to encode.
        files: Of the source, in order.
    """

    tokenizer: str
    settings: dict[str, Any]
    files: list[EncodedFile]

    @property
    def tokens(self) -> int:
        """The ids of all files that are done."""
        return sum(file.tokens or 0 for file in self.files)

    def save(self, folder: Path) -> None:
        """Write it into a folder, whole or not at all."""
        write_atomically(folder / NAME, (json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n").encode())

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Manifest:
        """Read the manifest of a folder.

        Raises:
            FileNotFoundError: There is none.
            ValueError: It is damaged, or of another version.
        """
        path = Path(folder) / NAME
        try:
            about = json.loads(path.read_bytes())
            if about.pop("format") != FORMAT:
                raise ValueError
            return cls(about["tokenizer"], about["settings"], [EncodedFile(**file) for file in about["files"]])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{path} is no manifest of this version: remove it to encode again") from None

    def check_is_of_same_run(self, earlier: Manifest, folder: Path) -> None:
        """ValueError where an earlier run in a folder was of another tokenizer or other settings."""
        for what in ("tokenizer", "settings"):
            if getattr(self, what) != getattr(earlier, what):
                raise ValueError(
                    f"{folder} holds the output of another run, whose {what} was {getattr(earlier, what)} and is now "
                    f"{getattr(self, what)}: name another folder, or remove this one"
                )

    def take_over(self, earlier: Manifest, folder: Path) -> None:
        """Take over what an earlier run has done: inputs that are as they were, outputs that are there whole.

        Raises:
            ValueError: The folder is of another tokenizer, other settings or other files.
        """
        self.check_is_of_same_run(earlier, folder)
        if [file.input for file in self.files] != [file.input for file in earlier.files]:
            raise ValueError(f"{folder} holds the output of other files: name another folder, or remove this one")
        for index, (now, before) in enumerate(zip(self.files, earlier.files, strict=True)):
            if now.version == before.version and before.is_in(folder):
                self.files[index] = before
