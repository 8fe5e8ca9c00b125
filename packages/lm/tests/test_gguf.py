"""GGUF files: read back number by number, and continued by llama.cpp where its Python bindings are installed."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from llama2c_files import tokenizer_file
from models import SHAPES

import lm
from lm import to_gguf
from lm.commands.cli import main
from lm.config import ModelConfig
from lm.generation.stream import generate
from lm.model import Transformer
from lm.tokenizer import load_tokenizer, prompt_ids

gguf = pytest.importorskip("gguf")
SHAPES = {
    "llama": {},
    "grouped and tied": {"num_kv_heads": 1, "tied_embeddings": True, "rope_theta": 5e4, "vocab_multiple": 64},
    "biased": {"bias": True},
    "slowed": {"rope_factor": 4.0, "rope_original_context_length": 16, "rope_theta": 500.0},
    "normed": {"qk_norm": True, "head_dim": 32},
    "gpt2": SHAPES["gpt2"],
    "gpt2 without biases": SHAPES["gpt2"] | {"bias": False, "tied_embeddings": False},
}
DATA = os.environ.get("GROUNDUP_DATA")


def make(vocab_size=288, **change):
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocab_size, 64, 2, 64, 2, 96, **change)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    bpe = pytest.importorskip("bpe")
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    bpe.train(["the hello and the other one, 12 times over; d\u00e9j\u00e0 vu "] * 3, 288).save(path)
    return path


def llama_cpp_of(path):
    """The model in llama.cpp, its cache in fp32 as ours is."""
    llama_cpp = pytest.importorskip("llama_cpp")
    return llama_cpp.Llama(
        str(path), n_ctx=256, n_threads=1, verbose=False, logits_all=True, type_k=0, type_v=0, flash_attn=False
    )


def continued(llama, ids, count):
    tokens = []
    for token in llama.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
        tokens.append(token)
        if len(tokens) == count:
            return tokens
    return tokens


@pytest.mark.parametrize("shape", SHAPES)
def test_llama_cpp_writes_the_same_tokens(tmp_path, tokenizer, shape):
    model = make(**SHAPES[shape])
    llama = llama_cpp_of(to_gguf(model, tmp_path / "model.gguf", dtype="fp32", tokenizer=tokenizer))
    ours = load_tokenizer(tokenizer)
    for text in ("the hello d\u00e9j\u00e0 12", "  and\n\nthe"):
        ids = llama.tokenize(text.encode(), add_bos=False)
        assert ids == ours.encode(text)
        llama.reset()
        llama.eval(ids)
        with torch.no_grad():
            want = model(torch.tensor([ids]))[0]
        actual = torch.from_numpy(np.array(llama.scores[: len(ids)]))
        # llama.cpp's GELU is a table of half-precision numbers.
        tolerance = 5e-3 if model.config.ffn == "gelu" else 1e-4
        torch.testing.assert_close(actual, want, rtol=0, atol=tolerance)
        if model.config.ffn == "swiglu":
            assert continued(llama, ids, 20) == generate(model, ids, max_new_tokens=20, temperature=0)


@pytest.mark.parametrize(("dtype", "bound"), [("fp32", 0), ("fp16", 2**-11), ("bf16", 2**-8), ("q8_0", 1 / 127)])
@pytest.mark.parametrize("shape", ["llama", "gpt2"])
def test_what_is_written_reads_back(tmp_path, dtype, bound, shape):
    model = make(**SHAPES[shape])
    reader = gguf.GGUFReader(to_gguf(model, tmp_path / "model.gguf", dtype=dtype))
    there = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    assert sum(array.size for array in there.values()) == sum(array.size for array in state.values())
    pairs = {"token_embd.weight": state["embedding.weight"], "blk.1.ffn_down.weight": state["blocks.1.ffn.down.weight"]}
    if shape == "llama":
        halves = state["blocks.0.attention.qkv.weight"][64:128].reshape(model.config.kv_heads, 2, -1, 64)
        pairs["blk.0.attn_k.weight"] = halves.swapaxes(1, 2).reshape(64, 64)  # llama.cpp's pairs are neighbours
        pairs["blk.1.ffn_up.weight"] = state["blocks.1.ffn.gate_up.weight"][96:]
        pairs["output.weight"] = state["head.weight"]
    else:
        pairs["blk.0.attn_qkv.bias"] = state["blocks.0.attention.qkv.bias"]
        pairs["position_embd.weight"] = state["positions.weight"]
    for name, want in pairs.items():
        is_fp32 = want.ndim == 1 or name.startswith("position")
        np.testing.assert_allclose(
            there[name], want, rtol=0, atol=0 if is_fp32 else bound * np.abs(want).max(), err_msg=name
        )
    kind = "llama" if shape == "llama" else "gpt2"
    for key, value in {
        "block_count": 2,
        "embedding_length": 64,
        "context_length": 64,
        "attention.head_count": 2,
    }.items():
        assert reader.fields[f"{kind}.{key}"].contents() == value


def test_int8_is_what_llama_cpp_makes_of_the_same_weights(tmp_path):
    llama_cpp = pytest.importorskip("llama_cpp")
    whole, ours, theirs = (str(tmp_path / f"{name}.gguf") for name in ("whole", "ours", "theirs"))
    model = make()
    to_gguf(model, whole, dtype="fp32")
    to_gguf(model, ours, dtype="q8_0")
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    assert llama_cpp.llama_model_quantize(whole.encode(), theirs.encode(), ctypes.byref(settings)) == 0
    tensors = [
        {t.name: (t.tensor_type, t.data.tobytes()) for t in gguf.GGUFReader(path).tensors} for path in (ours, theirs)
    ]
    assert tensors[0] == tensors[1]


def test_a_tokenizer_of_pieces_in_llama_cpp(tmp_path):
    tokenizer = load_tokenizer(tokenizer_file(tmp_path))
    model = make(vocab_size=tokenizer.n_vocab)
    path = to_gguf(model, tmp_path / "model.gguf", dtype="fp32", tokenizer=tmp_path / "tokenizer.json")
    kinds = gguf.GGUFReader(path).fields["tokenizer.ggml.token_type"].contents()
    assert kinds[:4] == [2, 3, 3, 6]
    llama = llama_cpp_of(path)
    for text in ("the hello", "  he\n\u6f22 z\u00e9"):
        ids = llama.tokenize(text.encode(), add_bos=True, special=False)
        assert ids == prompt_ids(tokenizer, text)
        assert continued(llama, ids, 10) == generate(model, ids, max_new_tokens=10, temperature=0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sliding_window": 4}, "window 4"),
        ({"norm_placement": "post"}, "norm_placement 'post'"),
        ({"qk_norm": True, "rope_factor": 2.0, "rope_original_context_length": 16}, "rope_type 'llama3'"),
        (SHAPES["gpt2"] | {"ffn": "gelu_exact"}, "activation_function 'gelu'"),
        (SHAPES["gpt2"] | {"head_dim": 16}, "head_dim 16"),
    ],
)
def test_what_llama_cpp_cannot_be_is_refused_by_name(tmp_path, change, says):
    with pytest.raises(ValueError, match=says):
        to_gguf(make(**change), tmp_path / "model.gguf")
    assert os.listdir(tmp_path) == []


def test_what_is_in_the_way_or_does_not_fit_is_refused(tmp_path, tokenizer, capsys):
    model = make()
    for arguments, says in [
        ({"path": tmp_path / "model.bin"}, "does not end in .gguf"),
        ({"dtype": "int4"}, "dtype 'int4'"),
    ]:
        with pytest.raises(ValueError, match=says):
            to_gguf(model, **{"path": tmp_path / "model.gguf", **arguments})
    (tmp_path / "model.gguf").write_text("mine")
    with pytest.raises(FileExistsError, match="not a GGUF file"):
        to_gguf(model, tmp_path / "model.gguf")
    with pytest.raises(ValueError, match="288 tokens, and the model's vocab_size is 19"):
        to_gguf(make(vocab_size=19), tmp_path / "small.gguf", tokenizer=tokenizer)
    with pytest.warns(UserWarning, match="288 tokens, and the model's vocab_size is 330"):
        assert to_gguf(make(vocab_size=330), tmp_path / "large.gguf", tokenizer=tokenizer).unlink() is None
    bpe = pytest.importorskip("bpe")
    odd = bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], pattern=r"\S+|\s+")
    odd.save(tmp_path / "odd.json")
    with pytest.raises(ValueError, match="no split pattern"):
        to_gguf(make(vocab_size=256), tmp_path / "odd.gguf", tokenizer=tmp_path / "odd.json")
    assert sorted(os.listdir(tmp_path)) == ["model.gguf", "odd.json"]
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "x.gguf"), "--shard-bytes", "5"]) == 2
    assert "--shard-bytes has no effect" in capsys.readouterr().err
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "x.html")]) == 2
    assert "--page" in capsys.readouterr().err
    bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], pattern="gpt2").save(tmp_path / "bytes.json")
    with pytest.raises(ValueError, match="has no merges"):
        to_gguf(make(vocab_size=256), tmp_path / "x.gguf", tokenizer=tmp_path / "bytes.json")


@pytest.mark.skipif(not DATA, reason="GROUNDUP_DATA names no folder of real weights")
def test_the_storyteller_tells_the_same_story_in_llama_cpp(tmp_path, capsys):
    real, llama2c = Path(DATA), pytest.importorskip("llama2c")
    weights, words = real / "weights/stories260K.bin", tmp_path / "tokenizer.json"
    llama2c.tokenizer_of(real / "weights/tok512.bin").to_huggingface(words)
    path = str(tmp_path / "stories.gguf")
    model, tokenizer = llama2c.from_llama2c(weights), load_tokenizer(words)
    to_gguf(model, path, dtype="fp32", tokenizer=words)
    llama = llama_cpp_of(path)
    text = (real / "data/tinystories.txt").read_text()[:3000]
    assert llama.tokenize(text.encode(), add_bos=True, special=False) == prompt_ids(tokenizer, text)
    ids = prompt_ids(tokenizer, "Lily and Ben")
    tokens = continued(llama, ids, 100)
    assert tokens == generate(model, ids, max_new_tokens=100, temperature=0)
    assert llama.detokenize(tokens).decode() == tokenizer.decode_stream().step(tokens)


@pytest.mark.parametrize("theta", [500.0, 1e6])
@pytest.mark.parametrize("original", [None, 256, 1000, 16384])
@pytest.mark.parametrize("bounds", [(1.0, 4.0), (2.5, 9.25)])
def test_any_scaling_that_is_written_is_read(tmp_path, theta, original, bounds):
    scaling = {"rope_factor": 10 / 3, "qk_norm": original is None}
    if original is not None:
        scaling |= {"rope_original_context_length": original}
        scaling |= dict(zip(("rope_low_freq_factor", "rope_high_freq_factor"), bounds, strict=True))
    model = make(**scaling, rope_theta=theta, head_dim=16)
    back = lm.load(to_gguf(model, tmp_path / "model.gguf", dtype="fp32"))
    assert back.config == dataclasses.replace(model.config, num_kv_heads=2, norm_eps=back.config.norm_eps)
    ids = torch.arange(60)[None]
    with torch.no_grad():
        torch.testing.assert_close(back(ids), model(ids), rtol=1e-6, atol=1e-6)
