"""`bpe encode --format`, from the outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from strategies import corpus

import bpe
from bpe.commands.encode import FORMATS
from bpe.commands.main import main
from bpe.outputs import writers


def test_formats_are_written_in_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert FORMATS == writers.FORMATS
    text, saved, out = tmp_path / "text.txt", tmp_path / "tokenizer.bpe", tmp_path / "train.bin"
    text.write_text(corpus(1))
    tokenizer = bpe.train(text, 300)
    tokenizer.save(saved)
    command = ["encode", str(saved), str(text)]
    for more, says in (
        (["--format", "bin"], "--format is for --out"),
        (["--shard-tokens", "9", "--out", str(tmp_path / "ids.txt")], "--shard-tokens needs a --format"),
    ):
        assert main([*command, *more]) == 2
        assert says in capsys.readouterr().err
    end = ["--end-of-text", "<|endoftext|>"]
    assert main([*command, "--out", str(out), "--format", "bin", "--shard-tokens", "100", *end]) == 0
    shards = [np.fromfile(path, dtype="<u2") for path in sorted(tmp_path.glob("train-*.bin"))]
    assert max(map(len, shards)) <= 100
    ids = tokenizer.encode(corpus(1), allowed_special="all")
    assert np.concatenate(shards).tolist() == ids + [256] * (ids[-1] != 256)
