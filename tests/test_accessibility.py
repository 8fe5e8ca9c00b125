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


def model_page(run: Path, page: Path) -> None:
    lm_command(["export", str(run / "run"), "--page", str(page), "--course", "../{}/"])


def chat_page(run: Path, page: Path) -> None:
    lm_command(["chat", str(run / "run"), "--page", str(page), "--system", "Be brief."])


def server_page(run: Path, page: Path) -> None:
    page.write_text(chat_shell("small", "", asset("chat.js")), "utf-8")


def run_report(run: Path, page: Path) -> None:
    lm_command(["report", str(run / "run"), "--out", str(page)])


def tokenizer_view(run: Path, page: Path) -> None:
    bpe_command(["view", str(run / "tok.json"), str(run / "tok.json"), "--out", str(page)])


def tokenizer_report(run: Path, page: Path) -> None:
    bpe_command(["report", str(run / "tok.json"), "--on", str(run / "text.txt"), "--html", str(page)])


def accounting_page(run: Path, page: Path) -> None:
    accounting(["page", "--out", str(page)])


PAGES = (model_page, chat_page, server_page, run_report, tokenizer_view, tokenizer_report, accounting_page)


@pytest.mark.parametrize("write", PAGES, ids=lambda write: write.__name__)
def test_axe_finds_nothing(
    browser: chromium.Chromium, axe: str, run: Path, tmp_path: Path, write: Callable[[Path, Path], None]
) -> None:
    page = tmp_path / "page.html"
    write(run, page)
    browser.open(page)
    for width in (390, 1280):
        assert browser.violations(axe, width) == []
        assert browser.run("document.documentElement.scrollWidth <= innerWidth") is True
