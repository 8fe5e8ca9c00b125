"""Models to and from other programs: what they compute does not change, and what is not understood is refused."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import struct

import nanogpt
import pytest
import safetensors.torch
import torch
from llama2c_files import llama2c_file
from models import SHAPES, make, some_ids

from lm import from_huggingface, to_huggingface
from lm.config import ModelConfig
from lm.interop import model_folder as folders
from lm.interop.loading import load
from lm.model import Transformer

GPT2 = SHAPES["gpt2"]
# Every shape that Hugging Face has, and what it is called there.
EXPORTED = {
    "llama": ("LlamaForCausalLM", {"rope_theta": 5e5, "norm_eps": 1e-6}),
    "tied and padded": ("LlamaForCausalLM", {"tied_embeddings": True, "vocab_multiple": 16}),
    "biased": ("LlamaForCausalLM", {"bias": True, "num_kv_heads": 1}),
    "normed": ("Qwen3ForCausalLM", {"num_kv_heads": 1, "head_dim": 6, "qk_norm": True}),
    "windowed": ("MistralForCausalLM", {"sliding_window": 3}),
    "normed and windowed": ("Qwen3ForCausalLM", {"sliding_window": 4, "qk_norm": True}),
    "slowed": ("LlamaForCausalLM", {"rope_factor": 2.0}),
    "slowed in part": (
        "LlamaForCausalLM",
        {"rope_factor": 8.0, "rope_original_context_length": 20, "rope_theta": 100.0, "head_dim": 16},
    ),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2 without biases": ("GPT2LMHeadModel", GPT2 | {"bias": False, "tied_embeddings": False, "ffn": "relu2"}),
    "gpt2 with the exact gelu": ("GPT2LMHeadModel", GPT2 | {"ffn": "gelu_exact"}),
    "gpt2 with silu": ("GPT2LMHeadModel", GPT2 | {"ffn": "silu", "vocab_multiple": 16}),
}


def single(**change):
    return make(dtype=torch.float32, **change)


def logits_of(model, ids=None):
    with torch.no_grad():
        return model(some_ids() if ids is None else ids)


def same(actual, want):
    torch.testing.assert_close(actual, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", EXPORTED)
def test_transformers_has_the_same_logits_of_an_export_and_it_comes_back(tmp_path, shape):
    transformers = pytest.importorskip("transformers")
    transformers.logging.disable_progress_bar()
    architecture, change = EXPORTED[shape]
    model = single(**change)
    folder = to_huggingface(model, tmp_path / "out")
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert type(theirs).__name__ == architecture
    with torch.no_grad():
        same(theirs(some_ids()).logits, logits_of(model))
    back = from_huggingface(folder)
    same(logits_of(back), logits_of(model))
    own, config = (dataclasses.replace(one.config, num_kv_heads=one.config.kv_heads) for one in (model, back))
    bias = own.bias or own.position == "learned"  # GPT-2's matrices always have one
    assert config.shape() == dataclasses.replace(own, vocab_multiple=1, bias=bias).shape()
    for name in ("norm_eps", "rope_theta", "ffn", "rope_scaling"):
        assert getattr(config, name) == getattr(own, name), name


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (SHAPES["post"] | {"ffn": "swiglu"}, "norm_placement 'post'"),
        ({"position": "none"}, "position 'none'"),
        ({"ffn": "silu"}, "ffn 'silu'"),
        ({"value_embeddings": True}, "value_embeddings"),
        ({"logit_softcap": 30.0}, "logit_softcap"),
        ({"norm": "layernorm"}, "norm 'layernorm' and position 'rope'"),
        ({"qk_norm": True, "bias": True}, "qwen3 has no model with qkv_bias True, output_bias True and ffn_bias True"),
        ({"sliding_window": 3, "bias": True}, "mistral has no model with qkv_bias True"),
        ({"output_bias": True}, "llama has no model with qkv_bias False, output_bias True and ffn_bias False"),
        (GPT2 | {"norm": "rmsnorm"}, "norm 'rmsnorm'"),
        (GPT2 | {"sliding_window": 3}, "window 3"),
        (GPT2 | {"ffn": "swiglu"}, "ffn 'swiglu'"),
        (GPT2 | {"num_kv_heads": 1}, "num_kv_heads 1"),
    ],
)
def test_what_hugging_face_has_no_architecture_for_is_refused_by_name(tmp_path, change, says):
    with pytest.raises(ValueError, match=says):
        to_huggingface(single(**change), tmp_path / "out")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_shards_are_no_larger_than_asked(tmp_path, dtype):
    model = single()
    limit = 2000
    folder = to_huggingface(model, tmp_path / "out", shard_bytes=limit, dtype=dtype)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 1
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    for shard in shards:
        tensors = safetensors.torch.load_file(shard)
        assert {tensor.dtype for tensor in tensors.values()} == {kind}
        assert len(tensors) == 1 or sum(tensor.nbytes for tensor in tensors.values()) <= limit
    back = logits_of(from_huggingface(folder))
    torch.testing.assert_close(back, logits_of(model), rtol=0, atol=1e-6 if dtype == "fp32" else 0.1)


def test_an_export_replaces_itself_and_nothing_else(tmp_path):
    model = single()
    folder = to_huggingface(model, tmp_path / "out")
    to_huggingface(single(seed=1), folder)
    same(logits_of(from_huggingface(folder)), logits_of(single(seed=1)))
    (folder / "notes.txt").write_text("mine")
    before = sorted(os.listdir(folder))
    with pytest.raises(FileExistsError, match="holds no export"):
        to_huggingface(model, folder)
    assert sorted(os.listdir(folder)) == before
    other = tmp_path / "other"
    other.mkdir()
    to_huggingface(model, other)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(other)
    for name in ("file", "link"):
        with pytest.raises(FileExistsError, match="holds no export"):
            to_huggingface(model, tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "other", "out"]


@pytest.mark.parametrize("when", ["weights", "sync", "rename"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, when):
    folder = to_huggingface(single(), tmp_path / "out")

    def full(*args, **settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    def rename(source, target, real=os.rename):
        return full() if str(target) == str(folder) and ".partial" in str(source) else real(source, target)

    place = {"weights": (folders.safetensors.torch, "save_file"), "sync": (folders, "fsync"), "rename": (os, "rename")}[
        when
    ]
    monkeypatch.setattr(*place, rename if when == "rename" else full)
    with pytest.raises(OSError, match="the disk is full"):
        to_huggingface(single(seed=1), folder)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["out"]
    same(logits_of(from_huggingface(folder)), logits_of(single()))


@pytest.mark.parametrize("change", ["a file less", "cut short"])
def test_an_export_that_is_not_whole_is_refused_with_the_file(tmp_path, change):
    folder = to_huggingface(single(), tmp_path / "out")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    if change == "a file less":
        weights.rename(folder / "pytorch_model.bin")  # nothing pickled is read
    with pytest.raises((ValueError, FileNotFoundError), match=r"holds no weights|damaged"):
        from_huggingface(folder)


def edited(folder, **change):
    """An export with settings of config.json put in or, where None, taken out; as if another program had written it."""
    path = folder / "config.json"
    table = {key: value for key, value in (json.loads(path.read_text()) | change).items() if value is not None}
    path.write_text(json.dumps(table))
    return folder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported"),
        ({"model_type": None}, "model_type None"),
        ({"num_hidden_layers": None}, "'num_hidden_layers' is missing"),
        ({"num_hidden_layers": "2"}, "should be int"),
        ({"num_hidden_layers": 3}, r"'model\.layers\.2\.\S+' is missing"),
        ({"num_hidden_layers": 1}, r"'model\.layers\.1\.\S+' and 8 more has no place"),
        ({"vocab_size": 20}, r"embed_tokens\.weight' is \(19, 8\), and the configuration makes it \(20, 8\)"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"rope_parameters": {"rope_type": "proportional"}}, "rope_type 'proportional'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscal": 1.0}}, "has no setting 'mscal'"),
        ({"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}}, "lacks the setting 'long_factor'"),
        ({"rope_scaling": {"type": "ntk", "factor": 4.0}}, "rope_type 'ntk'"),
        ({"rope_scaling": {"type": "linear"}}, "lacks the setting 'factor'"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "as factor of rope_type 'linear', got '2'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": math.nan}}, "as rope_theta of .* got nan"),
        ({"model_type": "gemma3_text", "hidden_act": None, "rope_parameters": {"full_attention": 3}}, "' is 3"),
        ({"model_type": "olmo2", "rms_norm_eps": -1e-6}, "norm_eps must be more than 0, got -1e-06"),
        ({"model_type": "mixtral", "num_local_experts": 0}, "num_local_experts must be at least 1, got 0"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"attention_bias": True}, r"q_proj\.bias' is missing"),
        ({"num_local_experts": 8}, "num_local_experts = 8"),
        *(({"quantization_config": value}, "quantization_config") for value in ({"bits": 4}, 4)),
        ({"tie_word_embeddings": True}, "is said to be the embedding"),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused_by_name(tmp_path, change, says):
    folder = edited(to_huggingface(single(), tmp_path / "out"), **change)
    with pytest.raises(ValueError, match=says):
        from_huggingface(folder)


def test_a_tied_matrix_may_have_the_name_of_the_head(tmp_path):
    """As safetensors' save_model writes it, which keeps either name of a shared tensor."""
    model = single(tied_embeddings=True)
    folder = edited(to_huggingface(model, tmp_path / "out"))
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    same(logits_of(from_huggingface(folder)), logits_of(model))


def test_settings_that_say_nothing_of_the_model_are_passed_over(tmp_path):
    more = {"_name_or_path": "x", "transformers_version": "5", "use_cache": True, "task_specific_params": {"a": 1}}
    folder = edited(to_huggingface(single(), tmp_path / "out"), rope_parameters=None, head_dim=None, **more)
    same(logits_of(from_huggingface(folder)), logits_of(single()))


def test_an_index_and_its_files_must_agree(tmp_path):
    folder = to_huggingface(single(), tmp_path / "out", shard_bytes=2000)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())

    def says(change, message):
        path.write_text(json.dumps({"weight_map": {**index["weight_map"], **change}}))
        with pytest.raises(ValueError, match=message):
            from_huggingface(folder)

    last = sorted(folder.glob("*.safetensors"))[-1].name
    says({"model.extra": last}, "lacks the tensor 'model.extra'")
    says({"model.embed_tokens.weight": last}, "has the tensor 'model.embed_tokens.weight'")
    says({"model.norm.weight": "../elsewhere.safetensors"}, "not a file of its own folder")
    says({"model.norm.weight": "model-9.safetensors"}, r"not whole: model-9\.safetensors")
    path.write_text("{}")
    with pytest.raises(ValueError, match='no "weight_map"'):
        from_huggingface(folder)


class Evil:
    """An object whose unpickling must never run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_gpt2_files_without_their_prefix_and_with_masks(tmp_path):
    model = single(**GPT2)
    folder = to_huggingface(model, tmp_path / "out")
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare |= {"h.0.attn.bias": torch.ones(1, 1, 10, 10), "h.1.attn.masked_bias": torch.tensor(-1e4)}
    safetensors.torch.save_file(bare, folder / "model.safetensors")
    same(logits_of(from_huggingface(folder)), logits_of(model))


# nanoGPT

NANOGPT = {"embedding": "wte", "positions": "wpe", "final_norm": "ln_f"}
NANOGPT_BLOCK = {
    "attention_norm": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn.up": "mlp.c_fc",
    "ffn.down": "mlp.c_proj",
}


def nanogpt_checkpoint(model, prefix="_orig_mod."):
    """The checkpoint that nanoGPT saves of a model of its shape, written out from its own names."""
    state = {}
    for name, tensor in model.state_dict().items():
        ours, kind = name.rsplit(".", 1)
        if ours.startswith("blocks."):
            _, number, part = ours.split(".", 2)
            state[f"{prefix}transformer.h.{number}.{NANOGPT_BLOCK[part]}.{kind}"] = tensor
        else:
            state[f"{prefix}transformer.{NANOGPT[ours]}.{kind}"] = tensor
    state[f"{prefix}lm_head.weight"] = state[f"{prefix}transformer.wte.weight"]
    c = model.config
    args = {"n_layer": c.num_layers, "n_head": c.num_heads, "n_embd": c.d_model, "block_size": c.context_length}
    args |= {"bias": c.bias, "vocab_size": c.vocab_size, "dropout": 0.0}
    return {"model": state, "model_args": args, "optimizer": {"state": {}}, "iter_num": 7, "config": {"out_dir": "out"}}


def nanogpt_like(bias):
    shape = GPT2 | {"ffn": "gelu_exact", "bias": bias}
    torch.manual_seed(0)
    return Transformer(ModelConfig(19, 10, 2, 8, 2, 32, **shape)).eval()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_a_checkpoint_of_nanogpt(tmp_path, bias, prefix):
    model = nanogpt_like(bias)
    torch.save(nanogpt_checkpoint(model, prefix), tmp_path / "ckpt.pt")
    nanogpt.main([str(tmp_path / "ckpt.pt"), str(tmp_path / "out")])
    same(logits_of(load(tmp_path / "out")), logits_of(model))


def test_a_checkpoint_of_nanogpt_that_is_not_understood_is_refused(tmp_path):
    path, good = tmp_path / "ckpt.pt", nanogpt_checkpoint(nanogpt_like(True))

    def says(message, **change):
        torch.save({**good, **change}, path)
        with pytest.raises(ValueError, match=message):
            nanogpt.from_nanogpt(path)

    says("use_rmsnorm", model_args=good["model_args"] | {"use_rmsnorm": True})
    says("'n_embd' is missing", model_args={})
    says("no model and model_args", model_args=None)
    says("has no place", model=good["model"] | {"_orig_mod.transformer.extra": torch.ones(1)})
    says("more than tensors", config=Evil(str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"ckpt\.pt"):
        nanogpt.from_nanogpt(path)


# llama2.c


def llama2c_model(tied):
    torch.manual_seed(3)
    return Transformer(ModelConfig(24, 10, 2, 16, 4, 24, num_kv_heads=2, tied_embeddings=tied)).eval()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_files_of_llama2c(tmp_path, version, tied):
    llama2c = pytest.importorskip("llama2c")  # which needs bpe
    model, path = llama2c_model(tied), tmp_path / "model.bin"
    path.write_bytes(llama2c_file(model, version))
    llama2c.main([str(path), str(tmp_path / "out")])
    actual = load(tmp_path / "out")
    assert actual.config == model.config
    for name, tensor in model.state_dict().items():
        # Rounding to 1/127 of a group's largest is off by half of that at most.
        atol = 0 if version < 2 or "norm" in name else float(tensor.abs().max()) / 127 / 2 + 1e-6
        torch.testing.assert_close(actual.state_dict()[name], tensor, rtol=0, atol=atol)


def test_files_that_are_not_llama2cs_are_refused(tmp_path):
    llama2c = pytest.importorskip("llama2c")
    path, data = tmp_path / "model.bin", llama2c_file(llama2c_model(False), 1)

    def says(content, message):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            llama2c.from_llama2c(path)

    says(b"", "0 bytes")
    says(data[:-1], "cut short")
    says(data + b"\0", "1 bytes more")
    says(data[:4] + struct.pack("<i", 3) + data[8:], "version 3")
    says(b"GGUF" + data[4:], "its header asks for the sizes")
    says(llama2c_file(llama2c_model(False), 2)[:37] + struct.pack("<i", 7) + data[41:], "groups of 7")
    with pytest.raises(FileNotFoundError):
        llama2c.from_llama2c(tmp_path / "none.bin")
