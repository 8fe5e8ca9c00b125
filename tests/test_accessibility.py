"""axe-core finds nothing on any page that opens in a browser: light, dark and forced colours, telephone and desk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import chromium
import pytest

import bpe
import lm
from accounting.commands.parser import main as accounting
from bpe.commands.main import main as bpe_command
from lm.commands.cli import main as lm_command
from lm.page.export import asset, chat_shell

TEXT = "The quick brown fox, été and 語 😀, jumps over the lazy dog.\n" * 40


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core."""
    return chromium.axe(tmp_path_factory.mktemp("axe")) or pytest.skip("npm cannot fetch axe-core")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps beside its text and its tokenizer."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(TEXT, "utf-8")
    tokenizer = bpe.train([TEXT], 300)
    tokenizer.save(folder / "tok.json")
    tokenizer.encode_file(folder / "text.txt", folder / "text.npy")
    model = lm.ModelConfig(vocab_size=300, context_length=64, num_layers=2, d_model=32, num_heads=2, d_ff=64)
    train = lm.TrainConfig(steps=6, batch_size=2, eval_every=3, warmup_steps=1)
    lm.train(model, train, folder / "text.npy", folder / "run", tokenizer=folder / "tok.json")
    return folder


PAGES: dict[str, Callable[[str, str], object]] = {  # each from the folder of the run, to a file
    "model": lambda run, page: lm_command(["export", f"{run}/run", "--page", page, "--course", "../{}/"]),
    "chat": lambda run, page: lm_command(["chat", f"{run}/run", "--page", page, "--system", "Be brief."]),
    "server": lambda run, page: Path(page).write_text(chat_shell("small", "", asset("chat.js")), "utf-8"),
    "run": lambda run, page: lm_command(["report", f"{run}/run", "--out", page]),
    "tokenizer": lambda run, page: bpe_command(["view", f"{run}/tok.json", f"{run}/tok.json", "--out", page]),
    "report": lambda run, page: bpe_command(["report", f"{run}/tok.json", "--on", f"{run}/text.txt", "--html", page]),
    "accounting": lambda run, page: accounting(["page", "--out", page]),
}


@pytest.mark.parametrize("write", PAGES.values(), ids=PAGES)
def test_axe_finds_nothing(
    browser: chromium.Chromium, axe: str, run: Path, tmp_path: Path, write: Callable[[str, str], object]
) -> None:
    page = tmp_path / "page.html"
    write(str(run), str(page))
    browser.open(page)
    for width in (390, 1280):
        assert browser.violations(axe, width) == []
        assert browser.run("document.documentElement.scrollWidth <= innerWidth") is True
