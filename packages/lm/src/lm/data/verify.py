"""Verification of token files against their JSON files, read through to the last id."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lm.data.token_file import Tokens, finished, open_tokens, token_files


@dataclass
class Verdict:
    """The files that hold, in order, and each damage in a sentence that names it."""

    tokens: list[Tokens] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


def verify(path: str | Path, *, vocab_size: int | None = None, tokenizer: str | None = None) -> Verdict:
    """Read every token file of a folder, or one file, through: counts, hashes, highest ids, tokenizers.

    vocab_size: a bound of the ids; tokenizer: the fingerprint that every file must have.
    """
    path = Path(path)
    verdict = Verdict()
    if path.is_dir():
        if not finished(path):
            verdict.damage.append(f"{path} is not finished: the `lm data` command that began it goes on with it")
        train, heldout = token_files(path, unfinished=True)
        files = [*train, *heldout]
    else:
        files = [path]
    for file in files:
        try:
            tokens = open_tokens(file, verify=True)
        except (ValueError, OSError) as error:
            if not path.is_dir() and isinstance(error, FileNotFoundError):
                raise
            verdict.damage.append(str(error))
            continue
        verdict.tokens.append(tokens)
        if not file.with_suffix(".json").exists():
            verdict.damage.append(f"{file} has no {file.with_suffix('.json').name} to compare its ids to")
        if vocab_size is not None and (highest := tokens.highest or 0) >= vocab_size:
            verdict.damage.append(f"{file} holds token id {highest}, and the vocabulary ends at {vocab_size - 1}")
        if tokenizer is not None and tokens.tokenizer is not None and tokens.tokenizer != tokenizer:
            verdict.damage.append(f"{file} was made by another tokenizer: encode the text with this one")
    tokenizers = {tokens.tokenizer for tokens in verdict.tokens}
    if tokenizer is None and len(tokenizers) > 1:
        verdict.damage.append(f"{path} holds files of {len(tokenizers)} tokenizers: encode all with one")
    return verdict
