"""Runs that begin with the weights of a model of another program, from a folder or the Hub."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest
import torch
from runs import CONFIG, MODEL, assert_same_run, stop_at
from talks import lines, tokenizer

import lm
from lm import to_huggingface
from lm.commands.cli import main
from lm.interop import loading
from lm.model import Transformer
from lm.training.run import read
from lm.training.train import Stopped

pytestmark = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")

TALK = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A small model with its tokenizer, as Hugging Face has it."""
    folder = tmp_path_factory.mktemp("hub")
    torch.manual_seed(0)
    tokenizer().save(folder / "tokenizer.json")
    config = dataclasses.replace(MODEL, vocab_size=tokenizer().n_vocab, context_length=64)
    to_huggingface(Transformer(config), folder / "model", tokenizer=folder / "tokenizer.json")
    return folder / "model"


@pytest.fixture(scope="module")
def talks(exported, tmp_path_factory):
    folder = tmp_path_factory.mktemp("talks")
    file = lines(folder / "talks.jsonl", *[TALK] * 8)
    command = ["data", "chat", file, "--tokenizer", str(exported / "tokenizer.json"), "--out", str(folder / "tokens")]
    assert main([*command, "--heldout", "0"]) == 0
    return folder / "tokens"


def test_a_run_begins_with_a_model_on_the_hub_and_ends_as_one_that_chats(
    exported, talks, tmp_path, monkeypatch, capsys
):
    names = []
    monkeypatch.setattr("lm.data.hub.model_folder", lambda name: names.append(name) or exported)
    config = dataclasses.replace(
        CONFIG, init_from="hf://us/small", lora_rank=2, steps=8, batch_size=2, document_masking=True, objective="sft"
    )
    with pytest.raises(Stopped):
        lm.train(None, config, talks, tmp_path / "moved", progress=False, on_step=stop_at(5))
    (tmp_path / "moved").rename(tmp_path / "run")
    lm.train(None, config, talks, tmp_path / "run", progress=False)
    lm.train(None, config, talks, tmp_path / "whole", progress=False)
    assert set(names) == {"hf://us/small"}
    begun = read(tmp_path / "run")
    assert begun.model == read(tmp_path / "whole").model
    assert begun.start["kind"] == "weights"
    one, other = (tmp_path / name / "config.toml" for name in ("run", "whole"))
    assert one.read_text().replace(str(tmp_path / "moved"), "") == other.read_text().replace(
        str(tmp_path / "whole"), ""
    )
    assert_same_run(tmp_path / "run", tmp_path / "whole", but=("seconds", "config"))
    text = loading.model_text(tmp_path / "run")
    assert text.tokenizer.fingerprint == tokenizer().fingerprint
    assert text.template.prompt([])
    chat = ["generate", str(tmp_path / "run"), "--prompt", "2+2?", "--max-new-tokens", "3", "--seed", "0"]
    assert main(chat) == 0
    to_huggingface(tmp_path / "run", tmp_path / "hf")
    assert (tmp_path / "hf" / "config.json").is_file()
    capsys.readouterr()


def test_the_command_takes_the_model_from_init_from(exported, talks, tmp_path, capsys):
    file = tmp_path / "tune.toml"
    settings = "steps = 2\nwarmup_steps = 0\nbatch_size = 2\neval_every = 0\ndocument_masking = true\n"
    file.write_text(f"[train]\n{settings}objective = 'sft'\n")
    command = ["train", str(file), "--data", str(talks), "--out", str(tmp_path / "run"), "--quiet"]
    assert main([*command, "--train.init_from", str(exported)]) == 0
    assert read(tmp_path / "run").model.context_length == 64
    assert main([*command[:-3], "--out", str(tmp_path / "other"), "--quiet"]) == 2
    assert "[model] lacks" in capsys.readouterr().err


def test_no_model_at_all_is_refused(talks, tmp_path):
    with pytest.raises(ValueError, match=r"there is no \[model\]"):
        lm.train(None, CONFIG, talks, tmp_path / "run", progress=False)
    with pytest.raises(FileNotFoundError, match="there is no nowhere"):
        lm.train(None, dataclasses.replace(CONFIG, init_from="nowhere"), talks, tmp_path / "run", progress=False)
