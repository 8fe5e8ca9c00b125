"""`lm export --check`: what was written is read again, and a difference is named."""

from __future__ import annotations

import importlib.util
import json

import pytest
import safetensors.torch
import torch
from models import SHAPES, make
from talks import MARKS

import lm
from lm.chat_template import default_template
from lm.commands.cli import main
from lm.interop.check import check_export

bpe = pytest.importorskip("bpe")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A model in a folder, with a tokenizer and a chat template."""
    folder = tmp_path_factory.mktemp("source")
    tokenizer = bpe.train(["the quick brown fox, the other one, 12 times"], 270, special_tokens=MARKS)
    tokenizer.save(folder / "tok.json")
    model = make(vocab_size=tokenizer.n_vocab, context_length=80, **SHAPES["grouped"])
    out = lm.to_huggingface(model, folder / "model", tokenizer=folder / "tok.json")
    about = json.loads((out / "tokenizer_config.json").read_text())
    template = default_template(tokenizer).source
    (out / "tokenizer_config.json").write_text(json.dumps(about | {"chat_template": template}))
    return out


@pytest.mark.parametrize(("name", "dtype"), [("out", "fp32"), ("out", "bf16"), ("m.gguf", "fp32"), ("m.gguf", "q8_0")])
def test_an_export_is_what_it_was_made_of(source, tmp_path, capsys, name, dtype):
    assert main(["export", str(source), "--out", str(tmp_path / name), "--dtype", dtype, "--check"]) == 0
    output = capsys.readouterr().out
    assert "lm reads it: logits differ by" in output
    assert ("transformers reads it" in output) == (name == "out")
    assert ("llama.cpp reads it" in output) == (name != "out" and importlib.util.find_spec("llama_cpp") is not None)


@pytest.mark.parametrize("shape", ["gpt2", "llama"])
@pytest.mark.parametrize("name", ["out", "m.gguf"])
def test_every_reader_of_two_families(tmp_path, shape, name):
    model = make(vocab_size=270, context_length=80, dtype=torch.float32, **SHAPES[shape], d_model=32)
    lm.to_huggingface(model, tmp_path / "model")
    write = lm.to_huggingface if name == "out" else lm.to_gguf
    readers = list(check_export(tmp_path / "model", write(model, tmp_path / name, dtype="fp32"), dtype="fp32"))
    assert len(readers) == 1 + (name == "out" or importlib.util.find_spec("llama_cpp") is not None), readers


def test_a_difference_is_named(source, tmp_path):
    for number, change in enumerate(("weights", "tokenizer", "template", "config")):
        out = lm.to_huggingface(source, tmp_path / str(number))
        if change == "weights":
            tensors = safetensors.torch.load_file(out / "model.safetensors")
            tensors["model.embed_tokens.weight"][1] += 0.5  # a row of which the logits do not tell
            safetensors.torch.save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
            message = r"lm reads another model: the tensor model\.embed_tokens\.weight differs"
        elif change == "tokenizer":
            file = json.loads((out / "tokenizer.json").read_text())
            vocab = file["model"]["vocab"]
            vocab["q"], vocab["u"] = vocab["u"], vocab["q"]
            (out / "tokenizer.json").write_text(json.dumps(file))
            message = "encodes"
        elif change == "template":
            about = json.loads((out / "tokenizer_config.json").read_text())
            (out / "tokenizer_config.json").write_text(json.dumps(about | {"chat_template": "{{ messages }}"}))
            message = "chat template that was written is another"
        else:
            table = json.loads((out / "config.json").read_text())
            (out / "config.json").write_text(json.dumps(table | {"rms_norm_eps": 0.5}))
            message = "lm reads another model"
        with pytest.raises(ValueError, match=message):
            list(check_export(source, out, dtype="bf16" if change == "weights" else "fp32"))


def test_transformers_is_compared_with_what_lm_reads(source, tmp_path, monkeypatch):
    out = lm.to_huggingface(source, tmp_path / "out")
    read = transformers.AutoModelForCausalLM.from_pretrained

    def changed(*args, **more):
        model = read(*args, **more)
        with torch.no_grad():
            model.lm_head.weight[7] += 1
        return model

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", changed)
    with pytest.raises(ValueError, match="transformers reads another model"):
        list(check_export(source, out, dtype="fp32"))
