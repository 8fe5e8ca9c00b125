"""Loading: from whatever a model lies in, onto a device, in a dtype; what cannot be loaded is one sentence."""

from __future__ import annotations

import importlib.util
import json
import re
import resource
import time

import pytest
import torch
from llama2c_files import tokenizer_file
from models import random_model
from talks import tokenizer

import lm
from lm.commands.cli import main
from lm.device import use_huge_pages
from lm.generation.stream import StreamDecoder
from lm.interop.loading import model_text
from lm.tokenizer import load_tokenizer


def new_model(**more):
    return random_model(40, 32, 2, 32, 4, 48, **more)


def test_huge_pages_hold_the_same_weights_side_by_side():
    model, ids = new_model(tied_embeddings=True), torch.arange(8)[None]
    before, state = model(ids), {name: weight.clone() for name, weight in model.state_dict().items()}
    model.another = model.embedding
    use_huge_pages(model)
    assert torch.equal(model(ids), before)
    assert model.another.weight is model.embedding.weight
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in state.items())
    places = [(weight.data_ptr(), weight.nbytes) for weight in model.parameters()]
    size = sum(-(-count // 64) * 64 for _, count in places)
    assert max(place + count for place, count in places) - min(place for place, _ in places) <= size


def test_a_gguf_that_is_damaged_or_unknown_is_one_sentence(tmp_path):
    gguf = pytest.importorskip("gguf")
    whole = lm.to_gguf(new_model(), tmp_path / "m.gguf").read_bytes()
    path = tmp_path / "bad.gguf"
    for content, says in [
        (whole[:100], "damaged"),
        (whole[: len(whole) // 2], "damaged"),
        (b"GGML" + whole, "not a GGUF file"),
        (re.sub(rb"(?<=(?:_length|n_count)\x04\0\0\0)\x08", b"\x0c", whole), r"is \(32, 32\), and the configuration"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=says):
            lm.load(path)
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="architecture 'mamba' is not supported"):
        lm.load(path)


@pytest.mark.parametrize("pattern", ["gpt2", "llama3"])
def test_the_tokenizer_in_a_gguf_gives_the_same_ids(tmp_path, pattern):
    bpe = pytest.importorskip("bpe")
    text = "it is 12, d\u00e9j\u00e0 vu!\n\nthe hello and the other one "
    tokenizer = bpe.train([text * 3], 280, pattern=pattern, special_tokens=["<|endoftext|>", "<|im_end|>"])
    tokenizer.save(tmp_path / "tok.json")
    model = random_model(290, 32, 1, 32, 2, 32)  # ten ids have no token
    lm.to_gguf(model, tmp_path / "m.gguf", tokenizer=tmp_path / "tok.json")
    text_read = model_text(tmp_path / "m.gguf")
    assert text_read.tokenizer.encode(text + "<|im_end|>", allowed_special="all") == tokenizer.encode(
        text + "<|im_end|>", allowed_special="all"
    )
    assert text_read.tokenizer.n_vocab == tokenizer.n_vocab
    assert text_read.tokenizer.special_tokens == tokenizer.special_tokens
    assert main(["generate", str(tmp_path / "m.gguf"), "--prompt", "it is", "--max-new-tokens", "2"]) == 0
    writer = StreamDecoder(text_read.tokenizer)
    ids = [*tokenizer.encode("d\u00e9"), 284, *tokenizer.encode("j\u00e0")]  # no token has the id 284
    assert "".join(map(writer.feed, ids)) == "d\u00e9j\u00e0"


def test_pieces_in_a_gguf_give_the_same_ids(tmp_path):
    tokenizer = load_tokenizer(tokenizer_file(tmp_path))
    model = random_model(tokenizer.n_vocab, 32, 1, 32, 2, 32)
    lm.to_gguf(model, tmp_path / "m.gguf", tokenizer=tmp_path / "tokenizer.json")
    tokenizer_read = model_text(tmp_path / "m.gguf").tokenizer
    for text in ("the hello and the other", " the", "\u00e9t\u00e9 \u6f22"):
        assert tokenizer_read.encode(text) == tokenizer.encode(text)
    assert tokenizer_read.special_tokens == tokenizer.special_tokens
    assert StreamDecoder(tokenizer_read).feed(tokenizer.n_vocab + 3) == ""


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_are_what_is_asked_for(tmp_path, dtype):
    model = new_model()
    loaded = lm.load(lm.to_huggingface(model, tmp_path / "m"), dtype=dtype)
    assert {parameter.dtype for parameter in loaded.parameters()} == {DTYPES[dtype]}
    assert not loaded.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.to(DTYPES[dtype]))
    ids = lm.generate(loaded, [1, 2, 3], max_new_tokens=8, temperature=0)
    assert len(ids) == 8
    if dtype in ("fp32", "fp64"):
        assert ids == lm.generate(model, [1, 2, 3], max_new_tokens=8, temperature=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_model_on_cuda_writes_what_it_writes_on_the_cpu(tmp_path):
    folder = lm.to_huggingface(new_model(), tmp_path / "m")
    loaded = lm.load(folder, device="cuda")
    assert {parameter.device.type for parameter in loaded.parameters()} == {"cuda"}
    want = lm.generate(lm.load(folder), [1, 2, 3], max_new_tokens=8, temperature=0)
    assert lm.generate(loaded, [1, 2, 3], max_new_tokens=8, temperature=0) == want


def test_what_cannot_be_loaded_is_one_sentence(tmp_path):
    (tmp_path / "run/checkpoints/00000020").mkdir(parents=True)
    (tmp_path / "run/config.toml").write_text("")
    for path, more, error, says in [
        ("nowhere", {}, FileNotFoundError, "there is no .*nowhere"),
        ("run/config.toml", {}, FileNotFoundError, "name its folder, .*run$"),
        ("run/checkpoints", {}, FileNotFoundError, "name its folder, .*run$"),
        ("run/checkpoints/00000020", {}, FileNotFoundError, "name its folder, .*run, with step 20 "),
        (".", {}, FileNotFoundError, "holds no model"),
        *(("nowhere", {"dtype": x}, ValueError, f"dtype {x!r} is unknown") for x in ("int4", None, torch.int8, 8)),
        *(("nowhere", {"device": x}, ValueError, f"device '{x}' is unknown") for x in ("tpu", None, -1)),
        ("hf://one/two/three", {}, ValueError, "hf://OWNER/NAME"),
    ]:
        with pytest.raises(error, match=says):
            lm.load(path if path.startswith("hf:") else tmp_path / path, **more)
    with pytest.raises(ValueError, match="only a run has steps"):
        lm.load(lm.to_huggingface(new_model(), tmp_path / "m"), 3)


@pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")
def test_every_command_that_computes_takes_device_and_dtype(tmp_path, capsys):
    tokenizer(["<|endoftext|>"]).save(tmp_path / "tok.json")
    model = random_model(257, 64, 1, 32, 2, 32)
    folder = str(lm.to_huggingface(model, tmp_path / "m", tokenizer=tmp_path / "tok.json"))
    (tmp_path / "t.txt").write_text("some text to score")
    where = ["--device", "cpu", "--dtype", "bf16"]
    for command in (
        ["generate", folder, "--prompt", "a", "--max-new-tokens", "2", *where],
        ["eval", folder, "--data", str(tmp_path / "t.txt"), *where],
    ):
        assert main(command) == 0, command
    capsys.readouterr()
    assert main(["generate", folder, "--prompt", "a", "--device", "cuda", "--int8"]) == 2
    assert "--int8 is for decoding on a CPU" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(["generate", folder, "--prompt", "a", "--device", "cuda"]) == 2
        assert "device 'cuda' is not on this machine" in capsys.readouterr().err


def test_a_mistral_without_a_window_has_that_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    assert transformers.MistralConfig().sliding_window == 4096
    model = random_model(19, 8192, 1, 8, 2, 8, sliding_window=4096)
    folder = lm.to_huggingface(model, tmp_path / "m")
    about = json.loads((folder / "config.json").read_text())
    assert about.pop("sliding_window") == 4096
    (folder / "config.json").write_text(json.dumps(about))
    assert lm.load(folder).config.sliding_window == 4096
    (folder / "config.json").write_text(json.dumps({**about, "sliding_window": None}))
    assert lm.load(folder).config.sliding_window is None


@pytest.mark.parametrize("family", [{}, {"qk_norm": True}, {"position": "learned", "norm": "layernorm", "ffn": "gelu"}])
@pytest.mark.parametrize(
    "name",
    ["num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings", "head_dim", "intermediate_size"],
)
def test_absurd_sizes_are_refused_before_anything_is_made(tmp_path, name, family):
    """In a fraction of a second, and in no more memory than the tensors that are there."""
    gpt2 = {"num_hidden_layers": "n_layer", "hidden_size": "n_embd", "max_position_embeddings": "n_positions"}
    folder = lm.to_huggingface(new_model(**family), tmp_path / "m")
    about = json.loads((folder / "config.json").read_text())
    key = gpt2.get(name, name) if family.get("position") else name
    if key not in about:
        pytest.skip(f"its configuration has no {key}")
    about[key] = 10**12
    if family.get("qk_norm"):
        about.pop("layer_types", None)
        about |= {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
        about |= {"num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps(about))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ValueError, match=r"config\.json|divi|layer_types"):
        lm.load(folder)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes
