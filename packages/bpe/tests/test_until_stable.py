"""`bpe train --until-stable` reads as much text as the merges need."""

from __future__ import annotations

from pathlib import Path

import pytest
from strategies import corpus

import bpe
from bpe.commands import until_stable
from bpe.commands.main import main


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons from some kilobytes on."""
    monkeypatch.setattr(until_stable, "FIRST", 4_000)
    monkeypatch.setattr(until_stable, "HELD_OUT", 2_000)


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k"])
def test_it_stops_where_more_text_changes_little(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pattern: str
) -> None:
    """The tokenizer is that of the text that was read, which the last line says the size of."""
    text, out = tmp_path / "corpus.txt", tmp_path / "t.bpe"
    text.write_text(corpus(1, 200) * 400)
    command = ["train", str(text), "--vocab-size", "300", "--pattern", pattern, "--out", str(out)]
    assert main([*command, "--until-stable", "0.99"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "held-out" in line]
    read = int(lines[-1].split()[0].replace(",", ""))
    assert read < text.stat().st_size / 4
    expected = bpe.train([text.read_bytes()[:read]], 300, pattern=pattern)
    assert bpe.load(out).fingerprint == expected.fingerprint


def test_all_is_read_where_there_is_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(2)]
    for number, file in enumerate(files):
        file.write_text(corpus(number, 300))
    out = tmp_path / "t.bpe"
    assert main(["train", *map(str, files), "--vocab-size", "290", "--out", str(out), "--until-stable", "0.999"]) == 0
    size = sum(file.stat().st_size for file in files)
    assert f"all {size:,} bytes were read" in capsys.readouterr().err
    assert bpe.load(out).fingerprint == bpe.train(files, 290).fingerprint


def test_what_it_does_not_go_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", __file__, "--vocab-size", "300", "--out", str(tmp_path / "t.bpe"), "--until-stable"]
    assert main([*command, "0.9", "--checkpoint", str(tmp_path / "run")]) == 2
    assert "--checkpoint" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "99"])
